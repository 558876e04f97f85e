package verbs

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/env"
)

// A Journal has the changes of a memory server's memory, in one order, for copies of it in other
// processes. A provider that executes lists itself records each change, and lets no answer out
// before the copies have what the answer depends on. So a copy's memory is what the server's was
// behind a prefix of its changes, and nobody knows of the rest.
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
//	Wait    6. until the copies have the last item of the list, and all that 5 found, and the
//	           server may answer at all; then the answer
//
// A list of READs alone does 5 and 6. A stamp is the position of the last change of a block, and is
// stored before that change is. So a reader of any byte of a change finds the stamp of that change,
// or of a later one, and waits for it: what an answer says is in the copy. On processors that keep
// neither two stores nor two loads in order, the provider has a barrier between 2 and 3, and before
// 5. Between 2 and 3 nobody else changes what is recorded, so the new value of an atomic is known
// before it is stored.
//
// All items have one order, of which each copy has a prefix. Both what a list changed and what it
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
// (Zero), and its ledger (Splice), which a copy has as it has the memory. An answer of the server
// that says what the ledger says waits for the ledger's last change (Ledger).
//
// # Copies
//
// The items are a stream of bytes, and a position is an offset in it. Each copy gets it by a [Feed]
// of its own, from where the feed begins. While there is no feed nothing is recorded: lists take no
// order and make no item. A feed begins while lists run ([Journal.Feed]). Answers wait for a copy
// only from [Feed.Await] on, so that one that joins holds nothing up. The window is the part of the
// stream that a copy may lack for which answers wait.
//
// # Who sends
//
// Whoever waits sends what is not sent, unless somebody does, and takes the copy's answers: so
// there is no goroutine between a list and the copy. A wait ends after WaitLimit, or when its
// [Waiter] is cut; then the answer never goes out. The stream goes on when the copy is reached
// again.
type Journal struct {
	env        env.Env
	may        func(Position) bool
	unrecorded []Span    // of the data region
	behind     uint64    // from here on all of the data region is recorded
	order      env.Mutex // held from before an item is made until its change is

	mode   atomic.Uint32   // changes under order
	ring   []byte          // the window: byte i of the stream is at i modulo its length
	stamps []atomic.Uint64 // both are made for the first feed
	end    atomic.Uint64   // of the stream; it grows under order
	ledger atomic.Uint64   // where its last change ends
	all    atomic.Uint64   // what all have that are waited for; endless = there are none
	waits  atomic.Uint64   // answers that had to wait
	waited atomic.Uint64   // nanoseconds that they did, all of them
	keeps  atomic.Uint64   // the end may come this far before an unsent part is lost to a feed

	mu    env.Mutex // of feeds and what they hold; comes behind order
	feeds []*Feed   // at most mostFeeds
}

// Position is an offset in the stream of a journal: behind a change. 0 is before all of them.
type Position uint64

// Modes of a journal. Lists ask for the mode before and behind the begin of their check.
const (
	recording = 1 << iota // there is a feed
	halted                // no list is executed
)

const (
	// JournalWindow is how much of the stream a copy may lack. A list fits, whatever it has.
	JournalWindow = 8 << 20

	// JournalReserve is how much a copy may lack besides because of changes that do not wait for
	// room: of the server itself.
	JournalReserve = 4 << 20

	ringBytes = JournalWindow + JournalReserve
	markBytes = 4 << 10 // of the reserve are for marks

	stampShift = 8 // a stamp is of a block of 256 bytes
	stampCount = 1 << 17

	endless = 1 << 62
)

// NewJournal makes the journal of a server. Its copies have memory that is equal to the server's
// but for the lock region, and those spans of the data region. may is asked before each answer
// whether the server may answer what depends on the changes up to a position; nil = it may.
func NewJournal(e env.Env, may func(Position) bool, unrecorded ...Span) *Journal {
	j := &Journal{env: e, may: may, unrecorded: unrecorded, order: e.NewMutex(), mu: e.NewMutex()}
	for _, s := range unrecorded {
		j.behind = max(j.behind, s.End)
	}
	j.all.Store(endless)
	j.keeps.Store(endless)
	return j
}

// Recorded reports whether a change of n bytes is one that is recorded: if one of them is.
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

// Mode is what lists go by. A provider asks before a list whether it is to be recorded, and again
// behind the begin of its check: if the mode is another one then, it gives up the check and begins
// anew. So a list that went by an old mode is over when [Checked].Settle has returned.
type Mode uint32

// Mode returns the mode now.
func (j *Journal) Mode() Mode { return Mode(j.mode.Load()) }

// Records reports whether changes are recorded.
func (m Mode) Records() bool { return m&recording != 0 }

// Halted reports whether no list is executed.
func (m Mode) Halted() bool { return m&halted != 0 }

// ErrHalted is returned to lists of a server that executes nothing more.
var ErrHalted = fmt.Errorf("this memory server executes no requests: another one does, or is about to: %w", ErrDisconnected)

// Halt lets the provider execute no list any more, or execute lists again. Lists that are being
// executed are over when Settle has returned.
func (j *Journal) Halt(on bool) {
	j.order.Lock()
	defer j.order.Unlock()
	j.change(halted, on)
}

// change changes the mode. The caller has the order.
func (j *Journal) change(bit uint32, on bool) {
	now := j.mode.Load() &^ bit
	if on {
		now |= bit
	}
	j.mode.Store(now)
}

// Begin takes the order, when there is room for n more bytes of items ([ItemBytes]); w is nil or
// waits for that. The caller makes its changes at once and waits for nothing until Done. After an
// error the order was not taken. While nothing is recorded there is always room, and the items are
// none.
func (j *Journal) Begin(w *Waiter, n int) error {
	for {
		j.order.Lock()
		end := j.end.Load() + uint64(n)
		if !j.Mode().Records() || n <= JournalWindow && end <= j.all.Load()+JournalWindow {
			j.keep(end)
			return nil
		}
		j.order.Unlock()
		if n > JournalWindow {
			return fmt.Errorf("changes of %d bytes, and the window has %d: %w", n, JournalWindow, ErrTooMany)
		}
		if err := j.reach(w, end-JournalWindow); err != nil {
			return err
		}
	}
}

// BeginNow is Begin that does not wait for room in the window, for changes of the server itself:
// the ledger's, and those that are made under the lock of its accounts, on which renewals wait.
// They have the reserve. ErrTooMany: that is full as well, and the order was not taken.
func (j *Journal) BeginNow(n int) error { return j.beginNow(n, ringBytes-markBytes) }

func (j *Journal) beginNow(n int, room uint64) error {
	j.order.Lock()
	end := j.end.Load() + uint64(n)
	if all := j.all.Load(); j.Mode().Records() && end > all+room {
		j.order.Unlock()
		return fmt.Errorf("the copy lacks %d bytes of changes, %d more find no room; ask again when it has caught up: %w", end-uint64(n)-all, n, ErrTooMany)
	}
	j.keep(end)
	return nil
}

// keep gives up feeds that would lose an unsent part of the stream if it came to an end. Nobody
// waits for them. The caller has the order.
func (j *Journal) keep(end uint64) {
	if end > j.keeps.Load() {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, f := range j.feeds {
			if !f.awaited && end > f.sent+ringBytes {
				f.giveUp(fmt.Errorf("the copy that joins is slower than changes come, and lacks %d bytes: %w", end-f.applied.Load(), ErrGone))
			}
		}
		j.count()
	}
}

// Done gives the order to others.
func (j *Journal) Done() { j.order.Unlock() }

// Abandon is Done of a caller that may have recorded a change and not made it, because of a panic.
// Copies and memory differ then, so the copies of now are given up.
func (j *Journal) Abandon() {
	j.breaks(errors.New("a change was recorded and not made"))
	j.order.Unlock()
}

// Break gives up all copies of now, because of a change of the ledger that was made and cannot be
// recorded. No answer goes out that may tell of it, until answers wait for none of those copies.
func (j *Journal) Break(err error) {
	j.order.Lock()
	defer j.order.Unlock()
	j.breaks(err)
	if j.Mode().Records() {
		j.ledger.Store(j.end.Add(8)) // what none of them gets
	}
}

// Last is the position of the last change.
func (j *Journal) Last() Position { return Position(j.end.Load()) }

// Record makes an item of a change of the data region, which follows. It keeps nothing of data,
// which is not empty.
func (j *Journal) Record(at uint64, data []byte) Position {
	return j.item(Item{At: at, Bytes: len(data), Data: data})
}

// Zero is Record of n bytes that become zero. n is not 0. However many they are, the item is short.
func (j *Journal) Zero(at uint64, n int) Position {
	return j.item(Item{Kind: ItemZeros, At: at, Bytes: n})
}

// Splice makes an item of a change of the ledger: between its first head bytes and its last tail
// bytes, which stay, there is data now. It keeps nothing of data, at most MaxItem bytes.
func (j *Journal) Splice(head, tail int, data []byte) Position {
	return j.ledgers(Item{Kind: ItemLedger, Head: uint32(head), Tail: uint32(tail), Data: data})
}

// Edit is Splice whose new bytes are edits of those that were there (AppendEdits).
func (j *Journal) Edit(head, tail int, edits []byte) Position {
	return j.ledgers(Item{Kind: ItemLedger, Head: uint32(head), Tail: uint32(tail), Data: edits, Edits: true})
}

// LedgerPart makes an item of a part of the whole ledger, for a copy that has none, which keeps it
// until LedgerWhole. Part 0 comes first; at most MaxItem bytes each.
func (j *Journal) LedgerPart(at int, data []byte) Position {
	return j.item(Item{Kind: ItemLedgerPart, At: uint64(at), Data: data})
}

// LedgerWhole makes an item that says that the ledger is what the parts before are, changed as by
// Edit. A copy that has a ledger goes on with that.
func (j *Journal) LedgerWhole(head, tail int, edits []byte) Position {
	return j.ledgers(Item{Kind: ItemLedgerWhole, Head: uint32(head), Tail: uint32(tail), Data: edits, Edits: true})
}

func (j *Journal) ledgers(i Item) Position {
	p := j.item(i)
	if p != 0 {
		j.ledger.Store(uint64(p))
	}
	return p
}

// Sum makes an item that says what the CRC-32C of n bytes of the data region is.
func (j *Journal) Sum(at uint64, n int, crc uint32) Position {
	return j.item(Item{Kind: ItemSum, At: at, Bytes: n, CRC: crc})
}

// Mark makes an item that says that the copy of a join has all that was answered before answers
// wait for it; of join 0, that the server lives. It takes the order, and may take the room that is
// kept for marks. ErrTooMany: that is full as well.
func (j *Journal) Mark(join uint64) (Position, error) {
	if err := j.beginNow(ItemBytes(0), ringBytes); err != nil {
		return 0, err
	}
	defer j.Done()
	return j.item(Item{Kind: ItemMark, At: join}), nil
}

// Ledger is the position of the ledger's last change.
func (j *Journal) Ledger() Position { return Position(j.ledger.Load()) }

// item makes an item, if anything is recorded. The caller has the order.
func (j *Journal) item(i Item) Position {
	if !j.Mode().Records() {
		return 0
	}
	from := j.end.Load()
	head := i.head()
	j.put(from, head[:])
	j.put(from+ItemHead, i.Data)
	end := from + uint64(ItemBytes(len(i.Data)))
	if i.Kind.changes() {
		for b := i.At >> stampShift; b <= (i.At+uint64(i.Bytes)-1)>>stampShift; b++ {
			j.stamps[b%stampCount].Store(end)
		}
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
// The caller has READ the bytes, and no load of them comes behind this call. While nothing is
// recorded it is 0: what was changed then is in the memory that a later copy gets.
func (j *Journal) Seen(at uint64, n int) (last Position) {
	if n == 0 || !j.Mode().Records() {
		return 0
	}
	for b := at >> stampShift; b <= (at+uint64(n)-1)>>stampShift; b++ {
		last = max(last, Position(j.stamps[b%stampCount].Load()))
	}
	return last
}
