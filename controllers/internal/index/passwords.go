package index

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/dmindex/dmindex/pkg/identity"
)

// passwords is what the operator knows of the passwords of an index. It is kept in the Secret
// <index>-auth. A rotation goes like this, so that a program which reads the Secret <index>-conn
// again when it connects notices nothing:
//
//  1. A new password is made, and its digest is given to the compute servers beside the present
//     one. It is not told to programs yet: a server that does not know it would refuse them.
//  2. Every compute server that is ready has read both digests. The new password is written into
//     <index>-conn. The former one is still right.
//  3. The grace is over. The former digest is taken away, and servers cut connections with it.
//
// Each step is decided from what is stored, so an operator that dies goes on where it was. If it
// dies between writing <index>-conn and <index>-auth, the password there is the next one already,
// and step 2 is completed. A password that somebody wrote into <index>-conn by hand takes effect
// without step 1: programs may be refused until all servers have read it.
type passwords struct {
	// Done is the request (dmv1.AnnotationRotatePassword) that was carried out last.
	Done string `json:"done,omitempty"`
	// Current is the digest of the password in <index>-conn.
	Current string `json:"current,omitempty"`
	// Next is a new password that programs do not know yet.
	Next string `json:"next,omitempty"`
	// For is the request that Next is made for.
	For string `json:"for,omitempty"`
	// Former are digests that are right for some time yet, the oldest first.
	Former []formerPassword `json:"former,omitempty"`
}

type formerPassword struct {
	Digest string    `json:"digest"`
	Until  time.Time `json:"until"`
}

// formerMost bounds Former. A server takes 16 passwords of a user.
const formerMost = 8

// passwordsView is what the next step of passwords is decided from.
type passwordsView struct {
	password string // in <index>-conn
	request  string // the annotation
	grace    time.Duration
	now      time.Time
	// known reports whether all compute servers that are ready have read this ACL file.
	known func(acl string) bool
	// create returns a new password.
	create func() string
}

// passwordsStep is what is to be done. The ACL file is written last: it and what is stored are one
// Secret.
type passwordsStep struct {
	after    passwords
	acl      string
	publish  string        // not empty: the password to write into <index>-conn
	rotated  bool          // a request was carried out
	waits    bool          // for compute servers to read the ACL file
	nextLook time.Duration // when a former password ends; 0 = never
}

// decide makes one step. It changes nothing.
func (p passwords) decide(v passwordsView) passwordsStep {
	p.Former = slices.Clone(p.Former)
	given := digestOf(v.password)
	switch {
	case p.Current == "":
		p.Current = given
	case p.Current != given:
		p.replace(given, v)
		if p.Next != "" && given == digestOf(p.Next) {
			p.Done, p.Next, p.For = p.For, "", ""
		}
	}
	if p.Next != "" && v.request != p.For && (v.request == "" || v.request == p.Done) {
		p.Next, p.For = "", "" // the request was taken back
	}
	p.Former = slices.DeleteFunc(p.Former, func(f formerPassword) bool { return !f.Until.After(v.now) || f.Digest == p.Current })
	if v.request != "" && v.request != p.Done && p.Next == "" && len(p.Former) < formerMost {
		p.Next, p.For = v.create(), v.request
	}
	step := passwordsStep{acl: p.acl()}
	if p.Next != "" {
		if v.known(step.acl) {
			step.publish, step.rotated = p.Next, true
			p.replace(digestOf(p.Next), v)
			p.Done, p.Next, p.For = p.For, "", ""
		} else {
			step.waits = true
		}
	}
	for _, f := range p.Former {
		if left := f.Until.Sub(v.now); step.nextLook == 0 || left < step.nextLook {
			step.nextLook = left
		}
	}
	step.after = p
	return step
}

// replace makes another digest the current one.
func (p *passwords) replace(digest string, v passwordsView) {
	if p.Current != digestOf("") { // as an older operator may have stored it
		p.Former = append(p.Former, formerPassword{p.Current, v.now.Add(v.grace)})
	}
	if n := len(p.Former) - formerMost; n > 0 { // by hand, many times within the grace
		p.Former = p.Former[n:]
	}
	p.Current = digest
}

// acl is the ACL file with the user default (computeserver/users). It is the same text before and
// after the next password becomes the current one, so servers that have read it need not read it
// again.
func (p passwords) acl() string {
	digests := []string{p.Current}
	if p.Next != "" {
		digests = append(digests, digestOf(p.Next))
	}
	for _, f := range p.Former {
		digests = append(digests, f.Digest)
	}
	slices.Sort(digests)
	return "user default on ~* +@all #" + strings.Join(slices.Compact(digests), " #") + "\n"
}

// digestOf is the SHA-256 of a password, as servers compute it: white space at the end does not
// count.
func digestOf(password string) string {
	d := sha256.Sum256([]byte(identity.TrimPassword(password)))
	return hex.EncodeToString(d[:])
}
