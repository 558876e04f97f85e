package verbs

import (
	"crypto/tls"
	"net"
	"os"
	"time"
)

// Memory is a region as its server holds it: mapped bytes and, where clients of the same host can
// map it too, its file.
type Memory struct {
	ID    RegionID
	Bytes []byte
	File  *os.File // nil = cannot be shared with other processes
}

// Peer is who stands behind a connection.
type Peer struct {
	Index  string // UID of the DMIndex object
	Client uint16 // the client's incarnation within the index; never 0
}

// Admission decides which connections a memory server accepts. Safe for concurrent use.
type Admission interface {
	// Admit consumes a token: a second Admit of the same one fails with ErrRefused.
	Admit(Token) (Peer, error)
}

// TLSAdmission is an Admission that binds tokens to who shows them. Where an Admission is one, it
// is asked by AdmitTLS for connections under TLS, and by Admit for those in the clear alone.
type TLSAdmission interface {
	// AdmitTLS is Admit for a connection under TLS whose handshake has succeeded.
	AdmitTLS(Token, *tls.ConnectionState) (Peer, error)
}

// ServerOptions is what a memory server gives to each of its providers.
type ServerOptions struct {
	Memory []Memory // mapped at multiples of 8, until after Server.Close
	// of the content; clients that expect another are refused with ErrLostMemory
	Incarnation uint64
	Admission   Admission // required

	// Reach is what a peer may reach, asked once for each connection, after its admission and
	// before its end. Nil lets all reach everything. A provider whose clients reach the memory by
	// themselves, shm or ibv, does not ask. Safe for concurrent use.
	Reach func(Peer) *Reach

	Executor Executor // of calls; nil = connections have none
	// how many calls are executed at once; who comes when there are as many is told that all are
	// busy. 0 = DefaultCallThreads
	CallThreads int

	// TLS lets a server of tcp speak TLS with the clients that begin with it, at the same address
	// as with others. Nil = with nobody. Who may come in the clear is for Admission to say.
	TLS *tls.Config

	// Journal records the changes of the memory, for a copy of it. Nil = there is none. Only a
	// provider that executes lists itself can: others refuse it.
	Journal *Journal

	HandshakeLimit time.Duration // for a client to present its token; 0 = DefaultHandshakeLimit
	// admitted connections at once; those not admitted yet have as many places of their own. 0 =
	// DefaultMaxConns
	MaxConns int

	// Panicked is told of a panic in the code that serves a connection, which has ended then. Nil =
	// such a panic ends the process. Safe for concurrent use.
	Panicked func(peer Peer, value any, stack []byte)
}

// Defaults of ServerOptions.
const (
	DefaultHandshakeLimit = 5 * time.Second
	DefaultMaxConns       = 1024
	DefaultCallThreads    = 4
)

// WithDefaults is o with its zero limits filled in.
func (o ServerOptions) WithDefaults() ServerOptions {
	if o.HandshakeLimit == 0 {
		o.HandshakeLimit = DefaultHandshakeLimit
	}
	if o.MaxConns == 0 {
		o.MaxConns = DefaultMaxConns
	}
	if o.CallThreads == 0 {
		o.CallThreads = DefaultCallThreads
	}
	return o
}

// Server is the memory server's half of a provider. It serves regions that outlive it.
type Server interface {
	// Serve accepts connections of l until Close; it returns nil after Close.
	Serve(l net.Listener) error

	// Disconnect cuts every connection whose peer matches and returns how many. When it returns, no
	// request of theirs takes effect any more, as far as the provider can tell: a peer of shm that
	// maps the memory is beyond its reach.
	Disconnect(match func(Peer) bool) int

	// Fence cuts every connection whose peer matches, as Disconnect does, and returns nil once no
	// request of theirs can take effect any more, whatever they do: a peer of shm that maps the
	// memory must have said so or be dead. ErrTimeout: that could not be known of all within limit;
	// the error names those that are left, and a later Fence waits for them again. The caller sees
	// to it that its Admission lets no matching peer in meanwhile.
	Fence(match func(Peer) bool, limit time.Duration) error

	// Close stops accepting, cuts all connections and waits for them to end.
	Close() error
}

// Lasting is a Server whose clients reach the memory without its process, also when that has ended
// and another one took its place.
type Lasting interface {
	// Quiet is nil if nothing can take effect any more of all connections that peer ever had to
	// this server, or to an earlier process that served the same memory. Else the error says who is
	// left. It does not wait.
	Quiet(peer Peer) error
}

// LocalAtomics is a Server whose atomics the CPU of its own host must not join, since its NIC does
// not see them (G2). Where a provider is one, the memory server changes words of atomics through
// it; elsewhere by sync/atomic.
type LocalAtomics interface {
	// CompareSwap is the verb of that name on the server's own memory.
	CompareSwap(region RegionID, remote, compare, swap uint64) (old uint64, err error)
}

// LocalReads is a LocalAtomics that reads many words in one request. Who only looks for a few words
// among many need not swap each.
type LocalReads interface {
	// ReadLocal is the verb READ on the server's own memory, of whole words.
	ReadLocal(region RegionID, remote uint64, dst []uint64) error
}

// OfDevice is a Server or Device that has an RDMA device.
type OfDevice interface {
	// DeviceName is its name, as in /sys/class/infiniband.
	DeviceName() string
}

// OnChip is a Server that can put the lock region into the NIC's own memory.
type OnChip interface {
	// OnChip is how many bytes of RegionLocks lie there, from offset 0 on.
	OnChip() int
}
