// Package verbs is the fabric as the indexes see it: lists of one-sided requests against the memory
// of a memory server.
//
// A queue pair ([QP]) executes lists of work requests ([Request]): READ, WRITE, compare-and-swap,
// fetch-and-add and the masked forms of both; and two-sided calls, where the provider has them. One
// list is one doorbell and one round trip. Providers live in folders below this one (shm, tcp);
// package verbstest holds the conformance suite that all of them pass.
//
// # What every provider guarantees
//
// G1, order of effect on one QP, within a list and across lists: a WRITE takes effect before
// anything after it; an atomic before a later READ or atomic; a READ or atomic before a later WRITE
// only where that WRITE carries Fence. A READ before a later READ only with
// [Capabilities.OrderedReads]; else wait for the completion of the first.
//
// G2, atomicity: aligned 8-byte words of READs and WRITEs are never torn, longer transfers may be
// seen word by word in any order. Atomics are atomic against atomics on the same server only:
// neither against WRITEs to the same word nor against the server's CPU. So a word that atomics
// target is never WRITTEN, unless the provider has [Capabilities.ReleaseByWrite].
//
// G3, completion: when [QP.Wait] returns nil, every request of the list took effect and every later
// request of anybody sees it. When it returns an error the QP is dead and whether its unfinished
// requests took effect is unknown. A new [Conn] of a client is usable only when the client's
// earlier QPs are quiet: nothing of theirs takes effect afterwards.
package verbs

import "time"

// Op is the kind of a work request.
type Op uint8

// The kinds of work requests.
const (
	Read Op = iota
	Write
	CompareSwap
	FetchAdd
	MaskedCompareSwap
	MaskedFetchAdd
	Call   // two-sided: see call.go
	NumOps // how many kinds there are; sizes arrays by kind
)

var opNames = [NumOps]string{"READ", "WRITE", "CAS", "FAA", "MASKED_CAS", "MASKED_FAA", "CALL"}

// String is the verb's usual name.
func (o Op) String() string {
	if o < NumOps {
		return opNames[o]
	}
	return "INVALID"
}

// Atomic reports whether o is one of the four atomics.
func (o Op) Atomic() bool { return o >= CompareSwap && o <= MaskedFetchAdd }

// RegionID names one of the memory regions of a memory server.
type RegionID uint8

// The regions of a memory server.
const (
	RegionData RegionID = 0 // superblocks and chunks
	// lock tables: on-chip memory of the NIC where there is any, else host memory
	RegionLocks RegionID = 1
)

// Limits of every provider. A list that breaks one is refused before anything of it is posted.
const (
	MaxList     = 64      // requests of one list
	MaxTransfer = 1 << 20 // bytes of one READ or WRITE
)

// Request is one work request. The list it stands in and its local buffer belong to the QP from
// Start to Wait.
type Request struct {
	Op     Op
	Region RegionID
	Fence  bool // take effect after every earlier READ and atomic of this QP has

	// Remote is the offset in the region, in bytes. Atomics need a multiple of 8. READs and WRITEs
	// may start anywhere, but G2 speaks of aligned words, so shared structures are aligned.
	Remote uint64

	// Local is in the arena that the QP was made with. READ: where the bytes go. WRITE: what is
	// written. Atomics: 8 bytes, aligned, that receive the old value in the machine's byte order.
	Local []byte

	// Compare and Swap are the operands of CompareSwap: if the word is Compare it becomes Swap.
	// MaskedCompareSwap looks only at bits in CompareMask and changes only bits in SwapMask.
	Compare, Swap         uint64
	CompareMask, SwapMask uint64

	// Add is added by FetchAdd, modulo 2^64. MaskedFetchAdd adds fields separately: each bit set in
	// Boundary is the highest bit of a field, and no carry leaves a field.
	Add, Boundary uint64

	// Args is how many bytes of Local are the request of a Call. Region and Remote mean nothing
	// there.
	Args int
}

// Capabilities are what a connection offers beyond G1 to G3. A design that uses one carries a
// fallback without it.
type Capabilities struct {
	CacheLineAtomic bool // READs and WRITEs within one aligned 64-byte line are never torn
	OrderedWrite    bool // the words of one WRITE take effect in address order
	OrderedReads    bool // a READ takes effect before a later READ of the same QP
	ReleaseByWrite  bool // a WRITE to a word that atomics target is safe for its holder
	MaskedAtomics   bool // MaskedCompareSwap and MaskedFetchAdd
	Calls           bool // two-sided calls, which the memory server's processors execute
	// bytes of RegionLocks that lie in the NIC's own memory; 0 = all in host memory
	DeviceMemory int
	// bytes of one WRITE of which a dying client applies all or none; at least 8
	WholeWrite int
	// the same where the memory server's process dies, and its memory stays
	WholeAlways bool
}

// Region is the size of one region of the connected server.
type Region struct {
	ID   RegionID
	Size uint64 // bytes
}

// Token admits one connection, once, within a short time. A memory server's control service hands
// it out under TLS ([Target]). On its way to the fabric it is as well protected as the connection
// it opens: plain tcp shows both to whoever can listen on the network. It is never logged.
type Token [32]byte

// Target is where and as whom to connect.
type Target struct {
	Address     string // tcp: host:port; shm: path of a Unix socket
	Token       Token  // from the server's control service; says index and client
	Incarnation uint64 // of the region that the caller expects; 0 = whichever is there
	// the name in the server's certificate, where there is TLS; empty = the host of Address
	Server string
}

// Device is a provider on this host. Safe for concurrent use.
type Device interface {
	// Provider is the provider's name, as in --transport: "shm", "tcp".
	Provider() string

	// NewArena registers size bytes for local buffers, outside Go's heap.
	NewArena(size int) (*Arena, error)

	// Connect opens a connection within limit. Errors: ErrRefused (the token is not known or was
	// used), ErrLostMemory (the server's incarnation is another one), ErrTimeout, ErrDisconnected.
	Connect(t Target, limit time.Duration) (Conn, error)

	// Close ends the device. Its connections must be closed before.
	Close() error
}

// AnyArena is a Device whose queue pairs take arenas of every other device too, since it needs no
// registration: so a session can have one arena for servers of several providers.
type AnyArena interface {
	// TakesAnyArena does nothing.
	TakesAnyArena()
}

// Conn is an admitted association of one client with one memory server. Safe for concurrent use.
type Conn interface {
	// NewQP makes a queue pair whose local buffers are in a.
	NewQP(a *Arena) (QP, error)

	Capabilities() Capabilities
	Regions() []Region
	Incarnation() uint64

	// Close closes all queue pairs. When it returns, nothing of theirs takes effect any more.
	Close() error
}

// Cutter is a Conn to a server whose place another process may take, at another address. Others
// need not be one.
type Cutter interface {
	// Cut ends the connection at once, as if the network had broken it: nothing is sent, and
	// nothing waited for. Close, which is still called, does not wait for the server either, also
	// if it was called before.
	Cut(why error)
}

// QP is a queue pair. It belongs to one goroutine at a time; different QPs of a connection are
// independent.
type QP interface {
	// Start posts a list and returns without waiting for it. At most one list is under way: Start
	// after Start without Wait is an error of the program and panics. A list that is malformed (see
	// Check) is refused whole and the QP lives on; any other error kills the QP.
	Start(list []Request) error

	// Wait waits for the started list. A nil error means that all of it took effect. An error kills
	// the QP: what of the list took effect is unknown, and every later call returns the same error.
	Wait() error

	// Poll waits at most for limit until the started list has ended, and reports whether it has:
	// then Wait follows and returns at once. Else the list is under way as before, and Poll or Wait
	// follows, perhaps on another goroutine. A limit of zero or less only looks. Poll never kills
	// the QP.
	Poll(limit time.Duration) bool

	// SetLimit bounds every later Wait; one that takes longer fails with ErrTimeout and kills the
	// QP. The default is DefaultLimit.
	SetLimit(limit time.Duration)

	// Tally counts what was posted on this QP.
	Tally() *Tally

	// Err is nil while the QP is alive, else why it died.
	Err() error

	Close() error
}

// DefaultLimit bounds a Wait unless [QP.SetLimit] says otherwise.
const DefaultLimit = 10 * time.Second

// Post posts a list and waits for it: one round trip.
func Post(qp QP, list []Request) error {
	if p, ok := qp.(Poster); ok {
		return p.Post(list)
	}
	if err := qp.Start(list); err != nil {
		return err
	}
	qp.Tally().RoundTrip()
	return qp.Wait()
}

// Poster is a QP whose provider has a shorter way for Post than Start and Wait. Post uses it;
// others need not.
type Poster interface {
	// Post does, answers and counts what Post of this package does.
	Post(list []Request) error
}

// Stager is a QP whose provider sends the lists of several queue pairs together. PostAll uses it;
// others need not.
type Stager interface {
	// Stage is Start, except that the list need not be on its way before Flush or Wait of this
	// queue pair, or a Start of any of the same connection.
	Stage(list []Request) error
	// Flush sends what is staged on the connection of this queue pair, and does nothing where
	// nothing is.
	Flush()
}

// PostAll posts lists[i] on qps[i] and waits for all of them: one round trip in all. Empty lists
// are passed over. It returns the first error in order, after every started list has ended. The QPs
// must differ.
func PostAll(qps []QP, lists [][]Request) error {
	started, err := StartAll(qps, lists)
	if e := WaitAll(qps[:started], lists); err == nil {
		err = e
	}
	return err
}

// StartAll is the first half of PostAll: it posts the lists and does not wait. started is on how
// many of the QPs, the first ones; WaitAll waits for these, whatever the error is.
func StartAll(qps []QP, lists [][]Request) (started int, err error) {
	for ; started < len(qps); started++ {
		list := lists[started]
		if len(list) == 0 {
			continue
		}
		if s, ok := qps[started].(Stager); ok {
			err = s.Stage(list)
		} else {
			err = qps[started].Start(list)
		}
		if err != nil {
			break
		}
	}
	for i, qp := range qps[:started] {
		if s, ok := qp.(Stager); ok && len(lists[i]) > 0 {
			s.Flush() // all of them before the first wait: they may be of different connections
		}
	}
	return started, err
}

// WaitAll is the second half of PostAll.
func WaitAll(qps []QP, lists [][]Request) (first error) {
	counted := false
	for i, qp := range qps {
		if len(lists[i]) == 0 {
			continue
		}
		if !counted {
			qp.Tally().RoundTrip()
			counted = true
		}
		if err := qp.Wait(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
