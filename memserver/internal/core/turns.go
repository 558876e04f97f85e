package core

import "github.com/dmindex/dmindex/pkg/env"

// turns let one change of each index at a time wait for the ledger. Storing a change takes up to a
// millisecond, and an index may have 2,048 calls under way. If all of them waited for the ledger's
// lock, the renewals of every other index would wait behind them. So they first wait for their
// index's turn: a call that waits for the ledger finds at most one change of each index before it,
// and perhaps an AcquireRange, of which one is under way at a time.
type turns struct {
	env env.Env
	mu  env.Mutex // guards what follows; held briefly
	of  map[string]*turn
}

// turn is held by the next change of its index. It is forgotten when it has no users.
type turn struct {
	env.Mutex
	users int // changes that hold it or wait for it; guarded by turns.mu
}

func newTurns(e env.Env) turns { return turns{env: e, mu: e.NewMutex(), of: map[string]*turn{}} }

// begin waits for the turn of an index. Until end its holder must wait for nothing but the ledger.
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
