package verbs

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
)

// A Journal has the changes of a memory server's memory, in one order, for a copy of it in another
// process. A provider that executes lists itself records each change, and lets no answer out before
// the copy has what the answer depends on. So the copy's memory is what the server's was behind a
// prefix of its changes, and nobody knows of the rest.
//
// # The protocol
//
// A list that changes recorded memory:
//
//	Begin   1. waits for room in the window, and takes the order
//	Record  2. of each change, before it is made: the item, then the stamps of its blocks
//	        3. the change itself
//	Done    4. gives the order to others
//	Seen    5. of what the list READ or compared: the stamps, looked at behind the bytes
//	Wait    6. until the copy has the last item of the list, and all that 5 found; then the answer
//
// A list of READs alone does 5 and 6. A stamp is the position of the last change of a block, and is
// stored before that change is. So a reader of any byte of a change finds the stamp of that change,
// or of a later one, and waits for it: what an answer says is in the copy. On processors that keep
// neither two stores nor two loads in order, the provider has a barrier between 2 and 3, and before
// 5. Between 2 and 3 nobody else changes what is recorded, so the new value of an atomic is known
// before it is stored.
//
// All items have one order, of which the copy has a prefix. Both what a list changed and what it
// found lie within that prefix when it is answered. A server that dies loses changes of lists that
// it did not answer, as a server does that dies before it executes them.
//
// # What is not recorded
//
// The lock region, and spans of the data region that the server names: a server that opens writes
// them anew. Their changes take no order, and answers that say what they hold do not wait for them.
// That is safe for a lock: who takes one that was just freed READs what the lock guards, and waits
// for the stamps of that; its own changes come behind those of the earlier holder.
//
// # The server itself
//
// What the server changes by itself is in the same order: words of atomics, memory that it zeroes
// (Zero), and its ledger (Splice), which the copy has as it has the memory. An answer of the server
// that says what the ledger says waits for the ledger's last change (Ledger).
//
// # The stream
//
// The items are a stream of bytes, and a position is an offset in it. The copy applies whole items
// ([NextItem]), and answers with the position behind the last one. The window is the part of the
// stream that the copy is not known to have. Whoever waits sends what is not sent, unless somebody
// does, and takes the copy's answers: so there is no goroutine between a list and the copy. How
// long a wait may take is the link's to say: where a copy is silent for too long, Receive fails,
// and the journal with it. Then no list changes recorded memory any more, and no answer goes out
// that needs what the copy is not known to have.
type Journal struct {
	link       Link
	unrecorded []Span    // of the data region
	behind     uint64    // from here on all of the data region is recorded
	order      env.Mutex // held from before an item is made until its change is
	taking     env.Mutex // held by the one that takes the copy's answers

	ring    []byte // the window: byte i of the stream is at i modulo its length
	stamps  []atomic.Uint64
	end     atomic.Uint64 // of the stream; it grows under order
	ledger  atomic.Uint64 // where its last change ends
	applied atomic.Uint64 // what the copy is known to have
	sent    atomic.Uint64
	sending atomic.Bool // somebody sends, who looks again behind it
	broken  atomic.Pointer[error]
}

// Position is an offset in the stream of a journal: behind a change. 0 is before all of them.
type Position uint64

// Link is a connection to the copy. One goroutine at a time sends, and one receives.
type Link interface {
	// Send sends the next bytes of the stream, and keeps nothing of them.
	Send(b []byte) error
	// Receive waits until the copy has more of the stream, and returns how much. It fails where the
	// copy has answered nothing for too long.
	Receive() (Position, error)
}

const (
	// JournalWindow is how much of the stream the copy may lack. A list fits, whatever it has.
	JournalWindow = 8 << 20

	// JournalReserve is how much the copy may lack besides because of changes that do not wait for
	// room: of the server itself.
	JournalReserve = 4 << 20

	ringBytes = JournalWindow + JournalReserve

	stampShift = 8 // a stamp is of a block of 256 bytes
	stampCount = 1 << 17
)

// NewJournal makes the journal of a server whose copy, at the other end of the link, has memory
// that is equal to the server's but for the lock region, and those spans of the data region.
func NewJournal(e env.Env, link Link, unrecorded ...Span) *Journal {
	j := &Journal{
		link: link, unrecorded: unrecorded, order: e.NewMutex(), taking: e.NewMutex(),
		ring: make([]byte, ringBytes), stamps: make([]atomic.Uint64, stampCount),
	}
	for _, s := range unrecorded {
		j.behind = max(j.behind, s.End)
	}
	return j
}

// Recorded reports whether a change of n bytes is recorded: if one of them is.
func (j *Journal) Recorded(region RegionID, at uint64, n int) bool {
	if region != RegionData || n == 0 {
		return false
	}
	if at < j.behind {
		for i := range j.unrecorded {
			if s := &j.unrecorded[i]; at >= s.First && at+uint64(n) <= s.End {
				return false
			}
		}
	}
	return true
}

// Begin takes the order, when there is room for n more bytes of items ([ItemBytes]). The caller
// makes its changes at once and waits for nothing until Done. After an error the order was not
// taken, and the journal is broken or n is more than the window.
func (j *Journal) Begin(n int) error {
	for {
		j.order.Lock()
		err := j.failure()
		if err == nil && j.end.Load()+uint64(n) <= j.applied.Load()+JournalWindow {
			return nil
		}
		j.order.Unlock()
		if err == nil && n > JournalWindow {
			err = fmt.Errorf("changes of %d bytes, and the window has %d: %w", n, JournalWindow, ErrTooMany)
		}
		if err == nil {
			err = j.Wait(Position(j.end.Load() + uint64(n) - JournalWindow))
		}
		if err != nil {
			return err
		}
	}
}

// BeginNow is Begin that does not wait for room in the window, for changes of the server itself:
// the ledger's, and those that are made under the lock of its accounts, on which renewals wait.
// They have the reserve. ErrTooMany: that is full as well, and the order was not taken.
func (j *Journal) BeginNow(n int) error {
	j.order.Lock()
	err := j.failure()
	if err == nil && j.end.Load()+uint64(n) > j.applied.Load()+ringBytes {
		err = fmt.Errorf("the copy lacks %d bytes of changes, %d more find no room; ask again when it has caught up: %w", j.end.Load()-j.applied.Load(), n, ErrTooMany)
	}
	if err != nil {
		j.order.Unlock()
	}
	return err
}

// Done gives the order to others.
func (j *Journal) Done() { j.order.Unlock() }

// Abandon is Done of a caller that may have recorded a change and not made it, because of a panic.
// Copy and memory differ then, so the journal is broken.
func (j *Journal) Abandon() {
	j.breaks(errors.New("a change was recorded and not made"))
	j.order.Unlock()
}

// Break ends the journal: no list changes recorded memory any more, and no answer goes out that
// needs what the copy is not known to have, nor what Ledger says.
func (j *Journal) Break(err error) {
	j.breaks(err)
	j.ledger.Store(math.MaxUint64)
}

// Last is the position of the last change.
func (j *Journal) Last() Position { return Position(j.end.Load()) }

// Record makes an item of a change of the data region, which follows. It keeps nothing of data,
// which is not empty.
func (j *Journal) Record(at uint64, data []byte) Position {
	return j.item(Item{At: at, Bytes: len(data), Data: data})
}

// Zero is Record of n bytes that become zero. n is not 0. However many they are, the item is short.
func (j *Journal) Zero(at uint64, n int) Position { return j.item(Item{At: at, Bytes: n}) }

// Splice makes an item of a change of the ledger: between its first head bytes and its last tail
// bytes, which stay, there is data now. It keeps nothing of data, at most MaxItem bytes.
func (j *Journal) Splice(head, tail int, data []byte) Position {
	p := j.item(Item{Ledger: true, Head: uint32(head), Tail: uint32(tail), Data: data})
	j.ledger.Store(uint64(p))
	return p
}

// Ledger is the position of the ledger's last change.
func (j *Journal) Ledger() Position { return Position(j.ledger.Load()) }

func (j *Journal) item(i Item) Position {
	from := j.end.Load()
	head := i.head()
	j.put(from, head[:])
	j.put(from+ItemHead, i.Data)
	end := from + uint64(ItemBytes(len(i.Data)))
	if i.Ledger {
		j.end.Store(end)
		return Position(end)
	}
	for b := i.At >> stampShift; b <= (i.At+uint64(i.Bytes)-1)>>stampShift; b++ {
		j.stamps[b%stampCount].Store(end)
	}
	j.end.Store(end)
	return Position(end)
}

// put copies b to an offset of the stream.
func (j *Journal) put(at uint64, b []byte) {
	n := copy(j.ring[at%ringBytes:], b)
	copy(j.ring, b[n:])
}

// Seen returns the position of the last change of n bytes of the data region, or of a later change.
// The caller has READ the bytes, and no load of them comes behind this call.
func (j *Journal) Seen(at uint64, n int) (last Position) {
	if n == 0 {
		return 0
	}
	for b := at >> stampShift; b <= (at+uint64(n)-1)>>stampShift; b++ {
		last = max(last, Position(j.stamps[b%stampCount].Load()))
	}
	return last
}

// Ready reports whether the copy has all up to a position.
func (j *Journal) Ready(p Position) bool { return uint64(p) <= j.applied.Load() }

// Wait waits until the copy has all up to a position, which is not beyond the end of the stream.
// After an error no answer that needs it may go out, ever.
func (j *Journal) Wait(p Position) error {
	if j.Ready(p) {
		return nil
	}
	j.push()
	j.taking.Lock()
	defer j.taking.Unlock()
	for !j.Ready(p) {
		if err := j.failure(); err != nil {
			return err
		}
		applied, err := j.link.Receive()
		if err == nil && uint64(applied) > j.sent.Load() {
			err = fmt.Errorf("the copy has %d bytes of %d: %w", applied, j.sent.Load(), ErrDisconnected)
		}
		if err != nil {
			return j.breaks(err)
		}
		j.applied.Store(max(j.applied.Load(), uint64(applied)))
	}
	return nil
}

// push sends what is not sent, unless somebody else does.
func (j *Journal) push() {
	for j.sent.Load() != j.end.Load() && j.sending.CompareAndSwap(false, true) {
		sent, end := j.sent.Load(), j.end.Load()
		from := sent % ringBytes
		part := j.ring[from:min(from+end-sent, ringBytes)]
		// before the bytes, so that no answer to them comes as a surprise
		j.sent.Store(sent + uint64(len(part)))
		if err := j.link.Send(part); err != nil {
			j.breaks(err)
			return // for good: nothing is sent behind a gap
		}
		j.sending.Store(false)
	}
}

// breaks ends the journal, and returns why it ended first.
func (j *Journal) breaks(err error) error {
	err = fmt.Errorf("the copy of this memory server is lost, and with it all that was not answered: %w", err)
	j.broken.CompareAndSwap(nil, &err)
	return j.failure()
}

// failure is why the journal is broken; nil = it is not.
func (j *Journal) failure() error {
	if err := j.broken.Load(); err != nil {
		return *err
	}
	return nil
}
