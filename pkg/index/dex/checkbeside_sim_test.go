package dex

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestCheckBesideChanges: nobody may change the index during a Check, which may find faults
// otherwise that are none. But it does no harm: sessions that go on find what they put, the client
// is not given up, and a later Check finds all of it.
func TestCheckBesideChanges(t *testing.T) {
	const sessions, steps, each = 4, 1500, 500
	simulated(t, func(p *simenv.Process, x *dex, s *session) error {
		if err := s.Insert(simulatedKey(0, each), nil); err != nil { // there is a leaf
			return err
		}
		g, running, pairs := env.NewWaitGroup(p), sessions, uint64(1)
		for i := range sessions {
			g.Go("change", func() {
				n, err := changeOwn(p, x, i, steps, each)
				if pairs += n; err != nil {
					p.World().Fail(fmt.Errorf("session %d: %w", i, err))
				}
				running--
			})
		}
		checks := 0
		for ; running > 0; checks++ {
			_, _ = x.Check() // whatever it says
			p.Yield()
		}
		g.Wait(env.Forever)
		if t.Logf("%d checks", checks); checks < 3 {
			return fmt.Errorf("%d checks: this tests nothing", checks)
		}
		found, err := x.Check()
		if err == nil && found.Pairs != pairs {
			err = fmt.Errorf("%d pairs, want %d", found.Pairs, pairs)
		}
		return errors.Join(err, x.pool.Alive())
	})
}

// simulatedKey is key n of a session.
func simulatedKey(session, n int) []byte {
	key := make([]byte, 8)
	key[0], key[1], key[2] = byte(n), byte(n>>8), byte(session)
	return key
}

// changeOwn changes and looks up the keys of one session, and returns how many are there in the
// end.
func changeOwn(p *simenv.Process, x *dex, session, steps, keys int) (there uint64, err error) {
	s, err := x.newSession()
	if err != nil {
		return 0, err
	}
	r, model := rand.New(rand.NewPCG(1, uint64(session))), map[int]string{}
	for n := range keys {
		if err := s.Upsert(simulatedKey(session, n), []byte("first")); err != nil {
			return 0, errors.Join(err, s.Close())
		}
		model[n] = "first"
	}
	for step := range steps {
		n := r.IntN(keys)
		if r.IntN(2) == 0 { // popular ones
			n = r.IntN(8)
		}
		key, value := simulatedKey(session, n), fmt.Sprint(step%100)
		switch r.IntN(8) {
		case 0:
			if err = s.Delete(key); err == nil || errors.Is(err, index.ErrNotFound) {
				delete(model, n)
				err = nil
			}
		case 1, 2:
			if err = s.Upsert(key, []byte(value)); err == nil {
				model[n] = value
			}
		default:
			var got []byte
			want, has := model[n]
			if got, err = s.Lookup(key, nil); errors.Is(err, index.ErrNotFound) && !has {
				err = nil
			} else if err == nil && (!has || string(got) != want) {
				err = fmt.Errorf("key %d has %q, want %q, there: %v", n, got, want, has)
			}
		}
		if err != nil {
			return 0, errors.Join(fmt.Errorf("step %d: %w", step, err), s.Close())
		}
		p.Yield()
	}
	return uint64(len(model)), s.Close()
}
