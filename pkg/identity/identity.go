// Package identity says who somebody is: names in certificates, and TLS configurations that ask for
// them.
//
// Every certificate of the platform carries one URI as subject alternative name:
//
//	dmindex://operator                  the operator: may call anything, of any index
//	dmindex://index/<identity>          a client of one index
//	dmindex://index/<identity>/compute  a compute server of one index
//	dmindex://pool/<uid>/memory         a memory server of one pool
//
// <identity> is the index's identity (the object's UID, with "/" and a count once it was made
// anew), escaped as one path segment, and <uid> the UID of the pool's object. Servers are
// recognised the usual way, by host name. The URI of a memory server says that it may send its
// changes to another one of its pool.
package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Scheme is the scheme of all URIs of this package.
const Scheme = "dmindex"

// MaxIndex is the length of the longest identity of an index, in bytes.
const MaxIndex = 128

// ErrNone is returned when a certificate carries no identity, more than one, or one that is not
// understood.
var ErrNone = errors.New("certificate says no dmindex identity")

// Role is what somebody is.
type Role uint8

// The roles.
const (
	RoleNone     Role = iota // nobody: the zero Identity
	RoleOperator             // may call anything
	RoleClient               // a client of Identity.Index
	RoleCompute              // a compute server of Identity.Index
	RoleMemory               // a memory server of Identity.Pool
)

// String is the role in words.
func (r Role) String() string {
	switch r {
	case RoleOperator:
		return "operator"
	case RoleClient:
		return "client"
	case RoleCompute:
		return "compute server"
	case RoleMemory:
		return "memory server"
	}
	return "nobody"
}

// Identity is who somebody is.
type Identity struct {
	Role  Role
	Index string // identity of the index; empty for the operator and memory servers
	Pool  string // UID of the pool, for a memory server
}

// String is the identity in words, for messages.
func (i Identity) String() string {
	switch {
	case i.Role == RoleMemory:
		return i.Role.String() + " of pool " + i.Pool
	case i.Index == "":
		return i.Role.String()
	}
	return i.Role.String() + " of index " + i.Index
}

// MayUse reports whether i may make calls of an index: the operator may, and whoever belongs to
// that index.
func (i Identity) MayUse(index string) bool {
	switch i.Role {
	case RoleOperator:
		return true
	case RoleClient, RoleCompute:
		return i.Index == index && index != ""
	}
	return false
}

// URI is i as it stands in a certificate. Nil for nobody.
func (i Identity) URI() *url.URL {
	switch i.Role {
	case RoleOperator:
		return Operator()
	case RoleClient:
		return Index(i.Index)
	case RoleCompute:
		return Compute(i.Index)
	case RoleMemory:
		return Memory(i.Pool)
	}
	return nil
}

// Operator is the URI of the operator.
func Operator() *url.URL { return &url.URL{Scheme: Scheme, Host: "operator"} }

// Index is the URI of a client of an index.
func Index(identity string) *url.URL { return indexURI(identity, "") }

// Compute is the URI of a compute server of an index.
func Compute(identity string) *url.URL { return indexURI(identity, "/compute") }

func indexURI(identity, suffix string) *url.URL { return uriOf("index", identity, suffix) }

// Memory is the URI of a memory server of a pool.
func Memory(pool string) *url.URL { return uriOf("pool", pool, "/memory") }

func uriOf(host, name, suffix string) *url.URL {
	return &url.URL{Scheme: Scheme, Host: host, Path: "/" + name + suffix, RawPath: "/" + url.PathEscape(name) + suffix}
}

// CheckIndex says what is wrong with an identity of an index: letters, digits and "-._/" are
// possible, 1 to MaxIndex of them, the first and the last a letter or digit.
func CheckIndex(identity string) error {
	if len(identity) == 0 || len(identity) > MaxIndex {
		return fmt.Errorf("index identity has %d bytes; 1 to %d are possible", len(identity), MaxIndex)
	}
	for i := range len(identity) {
		c := identity[i]
		alphanumeric := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		inside := i > 0 && i < len(identity)-1
		if !alphanumeric && !(inside && strings.IndexByte("-._/", c) >= 0) {
			return fmt.Errorf("index identity %q: letters and digits are possible, and -._/ between them", identity)
		}
	}
	return nil
}

// Parse reads an identity from its URI. Only the spelling that URI produces is accepted.
func Parse(u *url.URL) (Identity, error) {
	id, ok := parse(u)
	if !ok || id.URI().String() != u.String() {
		return Identity{}, fmt.Errorf("%w: %q is neither %s://operator nor %s://index/<identity>[/compute] nor %s://pool/<uid>/memory", ErrNone, u, Scheme, Scheme, Scheme)
	}
	return id, nil
}

func parse(u *url.URL) (Identity, bool) {
	if u.Scheme != Scheme {
		return Identity{}, false
	}
	segments := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	id := Identity{Role: RoleClient}
	switch {
	case u.Host == "operator" && u.Path == "":
		return Identity{Role: RoleOperator}, true
	case u.Host == "pool" && len(segments) == 2 && segments[1] == "memory":
		id.Role = RoleMemory
		var err error
		id.Pool, err = url.PathUnescape(segments[0])
		return id, err == nil && CheckIndex(id.Pool) == nil
	case u.Host != "index":
		return Identity{}, false
	case len(segments) == 2 && segments[1] == "compute":
		id.Role = RoleCompute
	case len(segments) != 1:
		return Identity{}, false
	}
	var err error
	if id.Index, err = url.PathUnescape(segments[0]); err != nil || CheckIndex(id.Index) != nil {
		return Identity{}, false
	}
	return id, true
}

// FromCertificate reads the identity of a verified certificate. It must carry exactly one URI of
// this package's scheme; URIs of other schemes are passed over.
func FromCertificate(c *x509.Certificate) (Identity, error) {
	var found *url.URL
	for _, u := range c.URIs {
		if u.Scheme != Scheme {
			continue
		}
		if found != nil {
			return Identity{}, fmt.Errorf("%w: it carries both %q and %q; issue one certificate for each", ErrNone, found, u)
		}
		found = u
	}
	if found == nil {
		return Identity{}, fmt.Errorf("%w: certificate of %q has no %s:// URI among its subject alternative names", ErrNone, c.Subject.CommonName, Scheme)
	}
	return Parse(found)
}
