package pool

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// epochWorld is clients that take nodes out of a tree and use them again by the rule of EpochTable,
// and follow old addresses as long as they may. Nobody may hold the address of a node that is used
// again.
type epochWorld struct {
	table   *EpochTable
	now     int
	clients map[uint16]*epochClient
	next    uint16
	inTree  map[int]bool // nodes

	// The table should say this.
	epoch   uint64
	passed  map[uint16]uint64
	wanted  map[uint16]uint64
	reuses  int
	eager   bool // a fault put in on purpose: nodes are used again one epoch early
	ignored bool // and another: who joins is not told of the epoch
	caught  bool
}

type epochClient struct {
	// it does nothing by itself, but may follow an address until its fence is complete
	dying     bool
	learned   uint64
	learnedAt map[uint64]int // when it learned of which epoch
	passed    uint64
	safe      uint64
	holds     map[int]int    // node: when it got the address
	garbage   map[int]uint64 // node: the epoch noted at its removal
}

func (w *epochWorld) learn(c *epochClient, epoch uint64) {
	// it believes what an earlier process told it, too: the worst that it can do
	if epoch > c.learned {
		c.learned, c.learnedAt[epoch] = epoch, w.now
	}
}

// living are the clients that are not dying, in order.
func (w *epochWorld) living() (ids []uint16) {
	for _, id := range slices.Sorted(maps.Keys(w.clients)) {
		if !w.clients[id].dying {
			ids = append(ids, id)
		}
	}
	return ids
}

// aClient draws one that lives; nil if there is none.
func (w *epochWorld) aClient(t *rapid.T) (uint16, *epochClient) {
	living := w.living()
	if len(living) == 0 {
		return 0, nil
	}
	id := rapid.SampledFrom(living).Draw(t, "client")
	return id, w.clients[id]
}

func (w *epochWorld) Join(t *rapid.T) {
	if len(w.living()) > 3 {
		return
	}
	w.next++
	c := &epochClient{learnedAt: map[uint64]int{}, holds: map[int]int{}, garbage: map[int]uint64{}}
	epoch := w.table.Join(w.next)
	if epoch != w.epoch {
		t.Fatalf("client %d joins at epoch %d, want %d", w.next, epoch, w.epoch)
	}
	if !w.ignored {
		w.learn(c, epoch)
	}
	w.clients[w.next], w.passed[w.next] = c, w.epoch
	w.table.Join(w.next) // it connects twice
}

// Die is the end of a client, whose fence is complete some time later.
func (w *epochWorld) Die(t *rapid.T) {
	if _, c := w.aClient(t); c != nil && seldom(t) {
		c.dying = true
	}
}

// FenceComplete is the end of all that die, who leave what they took out to who is left, as chunks
// are adopted.
func (w *epochWorld) FenceComplete(*rapid.T) {
	living := w.living()
	for _, id := range slices.Sorted(maps.Keys(w.clients)) {
		if c := w.clients[id]; c.dying {
			for node := range c.garbage {
				if len(living) == 0 {
					w.inTree[node] = true // nobody holds anything: begin anew
				} else {
					heir := w.clients[living[0]]
					heir.garbage[node] = heir.learned
				}
			}
			w.table.Leave(id)
			delete(w.clients, id)
			delete(w.passed, id)
			delete(w.wanted, id)
		}
	}
}

func (w *epochWorld) Get(t *rapid.T) {
	_, c := w.aClient(t)
	if c != nil && len(w.inTree) > 0 {
		c.holds[rapid.SampledFrom(slices.Sorted(maps.Keys(w.inTree))).Draw(t, "node")] = w.now
	}
}

func (w *epochWorld) Remove(t *rapid.T) {
	_, c := w.aClient(t)
	if c != nil && len(w.inTree) > 0 {
		node := rapid.SampledFrom(slices.Sorted(maps.Keys(w.inTree))).Draw(t, "node")
		delete(w.inTree, node)
		c.garbage[node] = c.learned
	}
}

// pass drops what a client got before it learned of an epoch.
func (c *epochClient) pass() {
	if c.learned > c.passed {
		c.passed = c.learned
		maps.DeleteFunc(c.holds, func(_ int, got int) bool { return got < c.learnedAt[c.passed] })
	}
}

func (w *epochWorld) Renew(t *rapid.T) {
	id, c := w.aClient(t)
	if c == nil {
		return
	}
	if rapid.IntRange(0, 3).Draw(t, "busy") < 3 {
		c.pass()
	}
	e := Epochs{Passed: c.passed, Wanted: rapid.SampledFrom([]uint64{c.learned + 2, c.safe + 1, 0}).Draw(t, "wanted")}
	switch rapid.IntRange(0, 9).Draw(t, "how") {
	case 8: // a call that was overtaken
		e.Passed = rapid.Uint64Range(0, c.passed).Draw(t, "passed")
	case 9:
		e.Passed = w.epoch + 1
	}
	epoch, safe, err := w.table.Renew(id, e.Passed, e.Wanted)
	if e.Passed > w.epoch {
		if !errors.Is(err, ErrEpoch) {
			t.Fatalf("client %d passed %d of %d: %v", id, e.Passed, w.epoch, err)
		}
		if e.Passed == c.passed { // it is of an earlier process
			c.dying = true
		}
		return
	}
	w.passed[id], w.wanted[id] = max(w.passed[id], e.Passed), e.Wanted
	least, most := w.epoch, uint64(0)
	for id, passed := range w.passed {
		least, most = min(least, passed), max(most, w.wanted[id])
	}
	if least == w.epoch && most > least {
		w.epoch++
	}
	if err != nil || epoch != w.epoch || safe != least {
		t.Fatalf("client %d hears epoch %d, safe %d, %v; want %d and %d", id, epoch, safe, err, w.epoch, least)
	}
	w.learn(c, epoch)
	c.safe = max(c.safe, safe)
}

// Reuse puts back into the tree what a client may use again.
func (w *epochWorld) Reuse(t *rapid.T) {
	_, c := w.aClient(t)
	if c == nil {
		return
	}
	after := uint64(2)
	if w.eager {
		after = 1
	}
	for node, noted := range c.garbage {
		if c.safe < noted+after {
			continue
		}
		for id, other := range w.clients {
			if at, held := other.holds[node]; held {
				w.caught = true
				if !w.eager && !w.ignored {
					t.Fatalf("node %d, removed in epoch %d, is used again at safe %d; client %d holds it since %d", node, noted, c.safe, id, at)
				}
			}
		}
		delete(c.garbage, node)
		w.inTree[node] = true
		w.reuses++
	}
}

// seldom is true one time in about thirty. rapid prefers small numbers.
func seldom(t *rapid.T) bool { return rapid.IntRange(0, 20).Draw(t, "seldom") == 20 }

// Restart is a new process of the server. Clients do not notice.
func (w *epochWorld) Restart(t *rapid.T) {
	if !seldom(t) {
		return
	}
	w.table, w.epoch = NewEpochTable(), 1
	clear(w.wanted)
	for _, id := range slices.Sorted(maps.Keys(w.passed)) {
		w.table.Found(id)
		w.passed[id] = 0
	}
}

// Round is a renewal of everybody.
func (w *epochWorld) Round(t *rapid.T) {
	for range w.living() {
		w.Renew(t)
	}
}

// Check is run after every step.
func (w *epochWorld) Check(t *rapid.T) {
	w.now++
	least := w.epoch
	for _, passed := range w.passed {
		least = min(least, passed)
	}
	if got := w.table.Safe(); got != least {
		t.Fatalf("safe is %d, want %d", got, least)
	}
}

// runEpochs is one history. wrong puts a fault in.
func runEpochs(t *rapid.T, wrong func(w *epochWorld)) *epochWorld {
	w := &epochWorld{
		table: NewEpochTable(), clients: map[uint16]*epochClient{}, inTree: map[int]bool{0: true, 1: true, 2: true},
		epoch: 1, passed: map[uint16]uint64{}, wanted: map[uint16]uint64{},
	}
	wrong(w)
	for range 20 { // rapid makes short ones
		t.Repeat(rapid.StateMachineActions(w))
	}
	return w
}

// TestEpochTable runs random histories. rapid prints how to replay a failure.
func TestEpochTable(t *testing.T) {
	reuses := 0
	rapid.Check(t, func(t *rapid.T) {
		reuses += runEpochs(t, func(*epochWorld) {}).reuses
	})
	t.Logf("%d nodes were used again", reuses)
	if reuses == 0 {
		t.Error("no node was ever used again")
	}
}

// TestEpochWorldSees: the world of TestEpochTable notices nodes that are used again too early.
func TestEpochWorldSees(t *testing.T) {
	f := func(what string, wrong func(w *epochWorld)) {
		t.Run(what, func(t *testing.T) {
			caught := false
			for n := 0; n < 50 && !caught; n++ {
				rapid.Check(t, func(t *rapid.T) { caught = caught || runEpochs(t, wrong).caught })
			}
			if !caught {
				t.Error("not noticed")
			}
		})
	}
	f("one epoch early", func(w *epochWorld) { w.eager = true })
	f("a client that was not told of the epoch", func(w *epochWorld) { w.ignored = true })
}

func TestEpochTableStrangers(t *testing.T) {
	table := NewEpochTable()
	if _, _, err := table.Renew(1, 0, 0); !errors.Is(err, ErrFenced) {
		t.Error(err)
	}
	table.Leave(1)
	table.Found(1)
	table.Join(1) // it is known, so it may hold anything
	if epoch, safe, err := table.Renew(1, 0, 9); epoch != 1 || safe != 0 || err != nil {
		t.Error(epoch, safe, err)
	}
}

// TestEpochsOfAnEarlierProcess: a client that goes on where another process counts is refused, or
// had passed one epoch at most, as one that never passed any. Then what it knows from the earlier
// process makes no epoch safe that anybody waits for: those are from the third on.
func TestEpochsOfAnEarlierProcess(t *testing.T) {
	for steps := range uint64(5) {
		earlier := NewEpochTable()
		passed, told := earlier.Join(1), uint64(1)
		for range steps {
			passed = told
			told, _, _ = earlier.Renew(1, passed, 9)
		}
		table := NewEpochTable()
		table.Found(1)
		_, _, err := table.Renew(1, passed, 9)
		if refused := errors.Is(err, ErrEpoch); refused != (passed > 1) || err != nil && !refused {
			t.Errorf("a client that passed epoch %d: %v", passed, err)
		}
		if err != nil {
			continue
		}
		if _, safe, err := table.Renew(1, told, 9); err != nil || safe >= 1+safeAfter {
			t.Errorf("epoch %d is safe by what an earlier process told, %v", safe, err)
		}
	}
}
