// Package config is what the operator tells its servers: the files that it mounts into their pods,
// their ports and their arguments. Servers hold no Kubernetes API token; these files, the
// superblock and the partition map are all they know.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// Ports of the pods.
const (
	PortControl = 7471 // memory server: gRPC, rpc.Memory
	// memory server: the tcp provider, or the ibv provider's bootstrap connections
	PortFabric  = 7470
	PortMirror  = 7473 // memory server: changes of its volume, for its copies
	PortRPC     = 7480 // compute server: gRPC, rpc.Compute
	PortRESP    = 6379 // compute server: RESP
	PortMetrics = 9090 // every server: /metrics, /healthz, /readyz
)

// Paths in the pods.
const (
	// memory server: emptyDir of memory or huge pages
	DataDir = "/var/lib/dmindex"
	// memory server: emptyDir of memory, if the other one is of huge pages
	StateDir = "/var/lib/dmindex-state"
	// memory server: PersistentVolumeClaim of a pool with persistence, and the directory in it: a
	// file system that was just made is not empty
	DiskDir    = "/var/lib/dmindex-disk"
	PersistDir = DiskDir + "/memory"
	// tls.crt, tls.key, ca.crt; reloaded when they change
	TLSDir = "/etc/dmindex/tls"
	// in TLSDir of compute servers: the salt of digests of keys
	KeySaltFile = "keys.salt"
	// compute server: tls.crt and tls.key for RESP, if they are not those of TLSDir
	RESPTLSDir = "/etc/dmindex/resp-tls"
	IndexFile  = "/etc/dmindex/index/index.json" // compute server: an Index
	// compute server: what AUTH and SDK clients must show
	PasswordFile = "/etc/dmindex/auth/password"
	// compute server: ACL files with the user default and its passwords, with further users, and
	// with those of DMUser objects
	DefaultACL = "/etc/dmindex/auth/default.acl"
	UsersACL   = "/etc/dmindex/auth/users.acl"
	ObjectsACL = "/etc/dmindex/auth/objects.acl"
	// compute server: emptyDir that its process locks as long as it lives
	GuardDir = "/run/dmindex/guard"
)

// Environment of a compute server: not flags, which an older image would not know.
const (
	EnvGuardDir   = "DMINDEX_GUARD_DIR"   // names GuardDir
	EnvDefaultACL = "DMINDEX_DEFAULT_ACL" // names DefaultACL
	EnvUsersACL   = "DMINDEX_USERS_ACL"   // names UsersACL
	EnvObjectsACL = "DMINDEX_OBJECTS_ACL" // names ObjectsACL
	EnvRESPTLS    = "DMINDEX_RESP_TLS"    // RESPTLSOptional or RESPTLSRequired
	// names RESPTLSDir; without it the certificate of TLSDir is shown
	EnvRESPTLSDir = "DMINDEX_RESP_TLS_DIR"
	EnvFabricTLS  = "DMINDEX_FABRIC_TLS" // "true": memory is reached under TLS only
)

// Environment of a memory server: flags that an older image would not know.
const (
	EnvMirror = "DMINDEX_MIRROR" // --mirror
	// --persist-existing, unless it is empty; read at each start of the container
	EnvPersistExisting = "DMINDEX_PERSIST_EXISTING"
	// --persist-accept-loss, unless it is empty; read at each start of the container
	EnvPersistAcceptLoss = "DMINDEX_PERSIST_ACCEPT_LOSS"
)

// PersistMayLack is in the error of a memory server that does not open its directory since what was
// acknowledged last may be missing there, and nowhere else in what it says.
const PersistMayLack = "start this server once with --persist-accept-loss"

// How a compute server speaks RESP: EnvRESPTLS.
const (
	RESPTLSOff      = "off"
	RESPTLSOptional = "optional" // under TLS and in the clear
	RESPTLSRequired = "required" // under TLS only
)

// Bytes that a memory server's process needs at most besides its volumes. The operator sizes pods
// and GOMEMLIMIT by it.
const (
	// for connections to the memory: tcp.Budget(verbs.DefaultMaxConns) and a little
	MemoryServerFabric = 256 << 20
	// for control replies that are not read, and requests that are not ended
	MemoryServerControl = 32 << 20
	MemoryServerRest    = 48 << 20 // ledger, leases, locks, connections of the control service
	// what is not Go's: the program, the kernel's buffers of sockets
	MemoryServerOutside = 32 << 20
)

// Key types.
const (
	KeyUint64 = "Uint64" // 8 bytes, big-endian
	KeyBytes  = "Bytes"  // up to MaxKeyBytes
)

// Bytes that a compute server's process takes at most beside its cache and 256 MiB for itself.
const (
	// for 10,000 RESP connections: the first 32 KiB of each, 32 KiB of TLS, and 256 MiB for what
	// exceeds that
	ComputeServerClients = 10_000*(32+32)<<10 + 256<<20
	// what is not Go's: the program, the kernel's buffers of sockets
	ComputeServerOutside = 64 << 20
)

// Index is what a compute server must know to open its index: the content of IndexFile. It never
// changes while the index lives, but for MemoryServers' addresses.
type Index struct {
	// Identity tells this incarnation of the index from every other one: the UID of the object and,
	// after it was made anew because its data was lost, "/" and a count.
	Identity  string `json:"identity"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`

	// name in the registry of designs, lower case: "sherman"
	Design        string `json:"design"`
	KeyType       string `json:"keyType"`       // KeyUint64 or KeyBytes
	MaxKeyBytes   int    `json:"maxKeyBytes"`   // 8 for KeyUint64
	MaxValueBytes int    `json:"maxValueBytes"` // longest value
	// size of a tree node; 0 = the design's default for these lengths
	NodeBytes  int    `json:"nodeBytes"`
	Durability string `json:"durability"` // "Memory"
	// ExpiryEnabled, or empty for an index whose pairs do not expire: what is stored has another
	// form then
	Expiry  string `json:"expiry,omitempty"`
	Routing string `json:"routing"` // RoutingAny or RoutingOwner

	// the first is the home: it has superblock and map
	MemoryServers []MemoryServer `json:"memoryServers"`
}

// ExpiryEnabled is Expiry of an index whose pairs may expire.
const ExpiryEnabled = "Enabled"

// Expires reports whether pairs may expire.
func (i *Index) Expires() bool { return i.Expiry == ExpiryEnabled }

// How compute servers and clients route requests, for designs in which every server can serve every
// key.
const (
	RoutingAny   = "Any"   // whoever gets a request serves it
	RoutingOwner = "Owner" // requests go to the owner of their range
)

// MemoryServer is one server that holds memory of the index.
type MemoryServer struct {
	ID uint16 `json:"id"` // in global addresses: 1 to 32767, unique in the index
	// host:port of rpc.Memory; the host is also the name in its certificate. Of the primary, where
	// the memory is kept more than once
	Control string `json:"control"`
	// the same of the other copies of its memory, at most MaxCopies with Control, each as the
	// copies spell it themselves (rpc.Volume.Obey). Programs that know no copies use Control alone
	Copies      []string `json:"copies,omitempty"`
	Incarnation uint64   `json:"incarnation"` // of its region when the index was admitted
	Pod         string   `json:"pod"`         // for people

	// Transport by which it is reached: TransportTCP or TransportIBV. Empty = what the client's
	// --transport says.
	Transport string `json:"transport,omitempty"`
}

// MaxCopies is how many addresses a memory server may have.
const MaxCopies = 8

// Addresses are those of all copies, the primary's first.
func (m *MemoryServer) Addresses() []string { return append([]string{m.Control}, m.Copies...) }

// Transports of memory servers.
const (
	TransportTCP = "tcp"
	TransportIBV = "ibv" // RDMA
)

// Validate says what is wrong with i.
func (i *Index) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if i.Identity == "" {
		bad("identity is empty")
	}
	if i.Design == "" {
		bad("design is empty")
	}
	switch i.KeyType {
	case KeyUint64:
		if i.MaxKeyBytes != 8 {
			bad("maxKeyBytes is %d; Uint64 keys have 8", i.MaxKeyBytes)
		}
	case KeyBytes:
		if i.MaxKeyBytes < 1 || i.MaxKeyBytes > 1024 {
			bad("maxKeyBytes is %d; 1 to 1024 are possible", i.MaxKeyBytes)
		}
	default:
		bad("keyType is %q; write %s or %s", i.KeyType, KeyUint64, KeyBytes)
	}
	if i.MaxValueBytes < 0 || i.MaxValueBytes > 4096 {
		bad("maxValueBytes is %d; 0 to 4096 are possible", i.MaxValueBytes)
	}
	if i.Expiry != "" && i.Expiry != ExpiryEnabled {
		bad("expiry is %q; write %s, or leave it out", i.Expiry, ExpiryEnabled)
	}
	if i.Routing != RoutingAny && i.Routing != RoutingOwner {
		bad("routing is %q; write %s or %s", i.Routing, RoutingAny, RoutingOwner)
	}
	if len(i.MemoryServers) == 0 {
		bad("memoryServers is empty")
	}
	seen := map[uint16]bool{}
	for _, m := range i.MemoryServers {
		if m.ID == 0 || m.ID >= 1<<15 || seen[m.ID] {
			bad("memory server id %d is used twice or not within 1 to 32767", m.ID)
		}
		if m.Control == "" {
			bad("memory server %d has no control address", m.ID)
		}
		if len(m.Copies) >= MaxCopies || slices.Contains(m.Copies, "") {
			bad("memory server %d has an empty address, or more than %d", m.ID, MaxCopies)
		}
		if m.Transport != "" && m.Transport != TransportTCP && m.Transport != TransportIBV {
			bad("memory server %d has transport %q; write %s or %s", m.ID, m.Transport, TransportTCP, TransportIBV)
		}
		seen[m.ID] = true
	}
	return errors.Join(errs...)
}

// ReadIndex reads and validates an Index from a file.
func ReadIndex(path string) (*Index, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the index's configuration: %w", err)
	}
	var i Index
	if err := json.Unmarshal(data, &i); err != nil {
		return nil, fmt.Errorf("read the index's configuration %s: %w", path, err)
	}
	if err := i.Validate(); err != nil {
		return nil, fmt.Errorf("the index's configuration %s: %w", path, err)
	}
	return &i, nil
}
