package combine

import (
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
)

// How large a table is. A slot is taken while a READ of its address is under way, so a client with
// a hundred sessions finds the slot of one address in ten taken by another one. Then both READ.
const (
	slotBits = 10
	numSlots = 1 << slotBits

	numMutexes = 64
)

// A slot's word, zero where nothing is registered:
//
//	bit 0      asked: somebody has looked under the mutex, so the flight ends under it
//	bit 1-16   the number of the reader whose READ is the flight
//	bit 17-63  of the hash of the address
const (
	asked      = 1
	idShift    = 1
	idBits     = 16
	tagMask    = ^uint64(1<<(idShift+idBits) - 1)
	maxReaders = 1 << 12 // that have a number; the others READ alone
	hashing    = 0x9E3779B97F4A7C15
	idMask     = 1<<idBits - 1
)

// slot is where sessions meet that READ one address.
type slot struct {
	word atomic.Uint64
	mu   env.Mutex // of one slot in numMutexes apart, too
	next *Reader   // whose window is open; guarded by mu
	_    [32]byte
}

// Reads is the table of one client. Safe for concurrent use. It allocates nothing once it is made.
type Reads struct {
	env     env.Env
	slots   [numSlots]slot
	readers [maxReaders]atomic.Pointer[Reader] // by number
	mu      struct {
		env.Mutex
		free  []uint16 // numbers of closed readers
		given uint16   // the last new number, from 1 on
	}
	delegated atomic.Uint64
	loads     [sizes]load
}

// NewReads makes the table of one client.
func NewReads(e env.Env) *Reads {
	t := &Reads{env: e}
	var mutexes [numMutexes]env.Mutex
	for i := range mutexes {
		mutexes[i] = e.NewMutex()
	}
	for i := range t.slots {
		t.slots[i].mu = mutexes[i%numMutexes]
	}
	t.mu.Mutex = e.NewMutex()
	return t
}

// Delegated is how many READs were spared.
func (t *Reads) Delegated() uint64 { return t.delegated.Load() }
