package memserver

import "github.com/dmindex/dmindex/pkg/env"

// turns let one change of an index at a time wait for the ledger. Storing a change takes up to a
// millisecond, and an index may have 2,048 calls under way. If all of them stood in the queue of
// the ledger's lock, the renewals of every other index would stand behind them. So they queue for
// their index's turn first: whoever wants the ledger finds one change of each index before it, and
// perhaps an AcquireRange, of which one is under way anyway.
type turns struct {
	env env.Env
	mu  env.Mutex // of what follows, held for a moment only
	of  map[string]*turn
}

// turn is held by the change of its index that is next. It is forgotten when nobody uses it.
type turn struct {
	env.Mutex
	users int // that hold it, or wait for it; guarded by turns.mu
}

func newTurns(e env.Env) turns { return turns{env: e, mu: e.NewMutex(), of: map[string]*turn{}} }

// begin waits for the turn of an index. Whoever has it must not wait for anything but the ledger
// before end.
func (t *turns) begin(index string) (end func()) {
	t.mu.Lock()
	of := t.of[index]
	if of == nil {
		of = &turn{Mutex: t.env.NewMutex()}
		t.of[index] = of
	}
	of.users++
	t.mu.Unlock()
	of.Lock()
	return func() {
		of.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(t.of, index)
		}
	}
}
