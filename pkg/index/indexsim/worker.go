package indexsim

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// worker is one session, or one after the other where they die.
type worker struct {
	run  Run
	c    *poolsim.Cluster
	p    *simenv.Process
	sh   *shape
	h    *history
	x    opened
	id   int
	rand *rand.Rand
	s    index.Session
}

func (w *worker) work() (err error) {
	if err = w.session(); err != nil {
		return err
	}
	for n := 0; n < w.sh.ops; n++ {
		if err = w.step(n); w.h.loading {
			n--
		}
		if err == nil || w.sh.inVain(w.h, err) || w.sh.refused(w.h, err) {
			continue
		}
		if w.sh.lease == 0 || !isDead(err) {
			return err
		}
		_ = w.s.Close() // it is dead
		if err = w.session(); err != nil {
			return err
		}
	}
	return w.s.Close()
}

// step is one operation.
func (w *worker) step(n int) error {
	sh, h, r := w.sh, w.h, w.rand
	if r.IntN(sh.scans) == 0 {
		start := sh.pick(r, h)
		if r.IntN(3) == 0 {
			start = ""
		}
		return h.scan(w.s, start, 1+r.IntN(sh.keys+10), r.IntN(2) == 0)
	}
	if r.IntN(12) == 0 {
		return h.batch(w.s, w.id, sh.drawKeys(r, h))
	}
	if r.IntN(12) == 0 {
		var keys, values [][]byte
		for _, key := range sh.drawKeys(r, h) {
			keys, values = append(keys, []byte(key)), append(values, nil)
		}
		if err := w.s.Prepare(keys, values); err != nil {
			return err
		}
	}
	in := register.Input{Verb: sh.draw(r, h), Key: sh.pick(r, h)}
	if h.loading { // whoever inserts ends a bulk load
		in.Verb = register.Lookup
	}
	if in.Verb.Changes() {
		in.Value = fmt.Sprintf("%d.%d", w.id, n)
		more := sh.options.MaxValueBytes - len(in.Value)
		if !sh.even || r.IntN(8) == 0 {
			more = r.IntN(more + 1)
		} else {
			more-- // a modification of such a value by such a one puts it: see register.Decide
		}
		in.Value += fmt.Sprintf("%*s", more, "")
	}
	return h.do(w.s, w.id, in)
}

// session makes a session: of the client that there is, or if that is given up or cut off, of a new
// one.
func (w *worker) session() (err error) {
	for range 2 * halfFences {
		var s index.Session
		if s, err = w.x.index.Session(); err == nil {
			w.s = s
			w.s.SetLimit(w.sh.limit)
			return nil
		}
		if w.sh.lease == 0 || !isDead(err) {
			return err
		}
		if w.rand.IntN(2) == 0 {
			_ = w.x.pool.Close() // else its lease has to run out
		}
		x, again := w.run.openAgain(w.c, w.p, w.sh)
		if again != nil {
			return again
		}
		w.x = x
	}
	return fmt.Errorf("client after client dies before it has a session: %w", err)
}

// isDead reports whether err is of a session that lives no more, or of a client.
func isDead(err error) bool {
	return errors.Is(err, index.ErrUnknown) || errors.Is(err, index.ErrFenced) || errors.Is(err, index.ErrUnreachable) || errors.Is(err, index.ErrClosed)
}
