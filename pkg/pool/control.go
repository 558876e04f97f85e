package pool

import (
	"errors"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Control is the two-sided path to the memory servers of one index. A call is ordered after the
// requests that its caller has completed, and sees them. Safe for concurrent use. Every call ends
// within limit.
//
// Errors: ErrPoolFull (no chunk left in the quota, or to adopt), verbs.ErrLostMemory (the server is
// not the one that the index knew), verbs.ErrDisconnected and verbs.ErrTimeout (it cannot be
// reached), verbs.ErrRefused (it does not know the index, or the caller may not ask), ErrFenced
// (the caller is fenced there).
type Control interface {
	// Servers are the memory servers that the index was made on, the home first. They do not
	// change. Others may join: see [Joins].
	Servers() []uint16

	// Register gives this client its number within the index, which no other client of the index
	// ever has. Its lower 16 bits are the client's id, which it writes into locks: never 0, never
	// Repair. A later client may have the id, once nothing is left of this one.
	Register(limit time.Duration) (client uint32, err error)

	// Predecessors are the clients of this process's name that are not fenced yet, client apart:
	// they ended without a word.
	Predecessors(client uint32, limit time.Duration) ([]uint32, error)

	// Connect asks a server to admit a connection, and begins the client's lease there.
	Connect(server uint16, client uint32, limit time.Duration) (Grant, error)

	// Renew lets the client's lease on a server begin anew, and tells and asks which epochs were
	// passed; see EpochTables. verbs.ErrRefused: the server never told this client of an epoch that
	// it passed; the client is to be given up.
	Renew(server uint16, client uint32, e Epochs, limit time.Duration) (Renewal, error)

	// Fence ends clients on a server for good. When it returns nil, none of their requests takes
	// effect there any more, and the locks that they held say Repair. A client fences itself when
	// it ends. Idempotent.
	Fence(server uint16, clients []uint32, limit time.Duration) error

	// AllocateChunk takes a chunk of the server, with slabs of slabBytes, and returns its offset, a
	// multiple of the size of its chunks. With adopt it is one with such slabs that a fenced client
	// (fenced on that server, its fence complete) had and that now belongs to this client, content
	// as left; ErrPoolFull: there is none. Without adopt it is one from the quota, zero;
	// ErrPoolFull: the quota is used up.
	AllocateChunk(server uint16, client uint32, slabBytes int, adopt bool, limit time.Duration) (offset uint64, err error)

	// FreeChunk gives a chunk back that this client allocated or adopted.
	FreeChunk(server uint16, client uint32, offset uint64, limit time.Duration) error
}

// Epochs is what a client tells a memory server about reclamation when it renews its lease.
type Epochs struct {
	Passed uint64 // it holds no address any more that it got before it learned of this epoch
	Wanted uint64 // the epoch that it wants to be safe; 0 = none

	// the same of the epochs for memory that no cache leads to: no operation holds such an address
	UncachedPassed, UncachedWanted uint64

	Servers uint64 // at the home: the client reaches all servers of this version of [JoinedList]
}

// Renewal is the answer.
type Renewal struct {
	Lease time.Duration // from before the call on
	Epoch uint64        // the current one
	Safe  uint64        // every client that is not fenced there has passed it

	UncachedEpoch, UncachedSafe uint64 // for memory that no cache leads to

	Servers uint64 // of the home: the version of its [JoinedList]
}

// Grant is what a memory server gave the index, and how to connect.
type Grant struct {
	Provider   string // which Device to connect with
	Target     verbs.Target
	Superblock uint64 // offset of the superblock slot in the data region
	LockOffset uint64 // of the slice of the lock table, a multiple of 8
	Locks      uint64 // 16-bit locks in the slice, a multiple of 4
	ChunkBytes uint64
	// offset of the slice's repair records in the data region: repairBytes for each lock
	Repair uint64
	// offset of the index's intent slots in the data region, and how many there are: IntentBytes
	// each; 0 = lock words cannot be used
	Intents     uint64
	IntentSlots int
	// offset of their presence words in the data region, 8 bytes each; 0 = there are none
	Presence uint64
	// a fence looks at all lock words of strips (SweepWords); else, as with an older server, only
	// at those that intent slots name
	SweepsStrips bool
	Lease        time.Duration // from before Connect was called; 0 = there are no leases
	// the current epochs of reclamation; see EpochTables. UncachedEpoch is 0 where an older server
	// has none of these
	Epoch, UncachedEpoch uint64
	Turn                 uint64 // which process of the server gave it; see Moves
}

// Errors of the pool. Package index passes them on under its own names.
var (
	// ErrPoolFull is returned when no server has a chunk left in the quota of the index.
	ErrPoolFull = errors.New("memory pool is full")
	// ErrTimeout is returned when an operation went over the limit of its session.
	ErrTimeout = errors.New("operation took too long")
	// ErrFenced is returned when a lock that this client held is not its own any more: it was
	// declared dead.
	ErrFenced = errors.New("client is fenced")
	// ErrFormat is returned when a superblock is of another format version, or is none.
	ErrFormat = errors.New("unknown format")
)
