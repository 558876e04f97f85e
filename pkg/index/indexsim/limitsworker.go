package indexsim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// limitsClient is a client of such a run, or one after the other where they are given up.
type limitsClient struct {
	x     *limits
	p     *simenv.Process
	d     *unsteady
	mu    env.Mutex // of who opens the next one
	at    opened
	epoch uint64 // of what it took, where ranges have owners
}

// open opens the index. Where ranges have owners it takes all of it, when the client before is
// fenced. Nothing fails meanwhile.
func (c *limitsClient) open() error {
	over := c.d.over
	c.d.over = true
	defer func() { c.d.over = over }()
	var inherits []pool.Inherited
	if before := c.at; before.pool != nil && !c.x.Design.SharesAll {
		id := before.pool.Client()
		inherits = []pool.Inherited{{Client: id, Epoch: c.epoch, Log: before.index.(index.Partitioned).Log()}}
		for server := range c.x.c.Options.Servers {
			for c.x.c.Control(c.p).Fence(uint16(server+1), []uint32{id}, time.Second) != nil {
				c.p.Yield()
			}
		}
	}
	pl, err := pool.Open(pool.Config{
		Env: c.p, Control: c.x.c.Control(c.p), Devices: []verbs.Device{c.d}, Identity: poolsim.Identity, RenewEvery: c.x.c.Options.RenewEvery,
	})
	if err != nil {
		return err
	}
	o := c.x.options
	if c.x.switches {
		o.Switches = map[string]bool{}
		for _, name := range c.x.Design.Switches {
			o.Switches[name] = c.x.rand.IntN(2) == 0
		}
	}
	i, err := c.x.Design.Open(pl, o)
	if err == nil {
		err = UseMemory(pl, usedSizes(o.NodeBytes), usedNodes)
	}
	if err == nil && !c.x.Design.SharesAll {
		err = i.(index.Partitioned).Take(pool.Holding{Epoch: c.epoch + 1, Inherits: inherits})
	}
	if err != nil {
		return errors.Join(err, pl.Close())
	}
	c.at, c.epoch = opened{i, pl}, c.epoch+1
	return nil
}

// renew opens the next client, unless another session has done that since before.
func (c *limitsClient) renew(before opened) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at != before {
		return nil
	}
	c.x.rep.GivenUp++
	_ = before.pool.Close()
	for range 20 {
		if err = c.open(); err == nil {
			return nil
		}
		c.p.Sleep(c.x.lease / 4)
	}
	return fmt.Errorf("open the index: %w", err)
}

// work lets the sessions of the client work. first is the number of the first one.
func (c *limitsClient) work(first int) error {
	if err := c.open(); err != nil {
		return err
	}
	g := env.NewWaitGroup(c.p)
	errs := make([]error, c.x.sessions)
	for i := range errs {
		id := first + i
		w := &limitsWorker{x: c.x, c: c, id: id, fates: c.x.fates[id], rand: rand.New(rand.NewPCG(c.x.Seed, uint64(100+id)))}
		g.Go(fmt.Sprint("session ", i), func() { errs[i] = w.work() })
	}
	g.Wait(env.Forever)
	return errors.Join(errs...)
}

// limitsWorker is one session, or one after the other where they die.
type limitsWorker struct {
	x     *limits
	c     *limitsClient
	s     index.Session
	id    int
	fates []fate
	rand  *rand.Rand
}

// faultError is what the judge found.
type faultError struct{ error }

// work does the operations of the session.
func (w *limitsWorker) work() error {
	if err := w.session(); err != nil {
		return err
	}
	for n := range w.x.ops {
		w.x.rep.Ops++
		err := w.step(n)
		var fault faultError
		switch {
		case err == nil:
		case errors.As(err, &fault):
			return fmt.Errorf("session %d, operation %d: %w", w.id, n, err)
		case isDead(err) && !w.x.gentle:
			if errors.Is(err, index.ErrUnknown) {
				w.x.rep.Unknown++
			}
			w.x.rep.Dead++
			_ = w.s.Close()
			if err := w.session(); err != nil {
				return err
			}
		case errors.Is(err, index.ErrTimeout):
			w.x.rep.Late++
		case errors.Is(err, index.ErrPoolFull):
			w.x.rep.Refused++
		default:
			return fmt.Errorf("session %d, operation %d: %w", w.id, n, err)
		}
	}
	return w.s.Close()
}

// session makes a session: of the client that there is, or if that is given up, of the next one.
func (w *limitsWorker) session() error {
	for {
		at := w.c.at
		s, err := at.index.Session()
		if err == nil {
			w.s = s
			return nil
		}
		if !isDead(err) || w.x.gentle {
			return err
		}
		if at.pool.Alive() == nil {
			continue // a READ failed
		}
		if err := w.c.renew(at); err != nil {
			return err
		}
	}
}

// key is key n of the session. Those of the others lie between.
func (w *limitsWorker) key(n int) []byte {
	n = n*len(w.x.fates) + w.id
	if w.x.options.Uint64 {
		return binary.BigEndian.AppendUint64(nil, uint64(n)<<20)
	}
	return append(fmt.Appendf(nil, "%04d", n), "abcdefgh"[:n%9]...)
}

// step is one operation.
func (w *limitsWorker) step(i int) error {
	r := w.rand
	if r.IntN(3) == 0 {
		w.s.SetLimit(min(3*time.Millisecond, w.x.least<<r.IntN(9)+time.Duration(r.IntN(int(w.x.least)))))
	} else if r.IntN(4) == 0 {
		w.s.SetLimit(time.Second)
	}
	n := r.IntN(len(w.fates))
	key, value := w.key(n), fmt.Appendf(nil, "%d.%d.....................", w.id, i)
	if length := r.IntN(w.x.options.MaxValueBytes); w.x.words && length > 0 {
		value = value[:8]
	} else {
		value = value[:length]
	}
	to := stateOf(value, true)
	verb := r.IntN(16)
	if w.x.waves && r.IntN(3) != 0 {
		verb = []int{5, 8}[i/(2*len(w.fates))%2]
	}
	switch verb {
	case 0, 1:
		return w.changed("insert", n, to, state.lacking, index.ErrExists, w.s.Insert(key, value))
	case 2, 3, 4:
		return w.changed("update", n, to, state.isThere, index.ErrNotFound, w.s.Update(key, value))
	case 5, 6, 7:
		return w.changed("upsert", n, to, state.any, nil, w.s.Upsert(key, value))
	case 8, 9:
		return w.changed("delete", n, absent, state.isThere, index.ErrNotFound, w.s.Delete(key))
	case 10:
		return w.modify(n, value)
	case 11:
		keys, values := w.drawKeys()
		return w.s.Prepare(keys, values)
	case 12:
		return w.batch()
	case 13:
		start := string(w.key(n))
		if r.IntN(2) == 0 {
			start = ""
		}
		return w.scan(start, 1+r.IntN(2*len(w.fates)*len(w.x.fates)), r.IntN(2) == 0)
	}
	return w.lookup(n)
}

// drawKeys draws keys, and values for them, or none where they are to be deleted.
func (w *limitsWorker) drawKeys() (keys, values [][]byte) {
	for range 1 + w.rand.IntN(20) {
		keys, values = append(keys, w.key(w.rand.IntN(len(w.fates)))), append(values, nil)
		if w.rand.IntN(4) > 0 {
			values[len(values)-1] = make([]byte, w.rand.IntN(w.x.options.MaxValueBytes))
		}
	}
	return keys, values
}

// changed judges how a change ended. What is an answer is no error.
func (w *limitsWorker) changed(what string, n int, to state, takes func(state) bool, answer, err error) error {
	if fault := w.fates[n].changed(to, takes, answer, err); fault != nil {
		return faultError{fmt.Errorf("%s of key %x: %w", what, w.key(n), fault)}
	}
	if answer != nil && errors.Is(err, answer) {
		return nil
	}
	return err
}

// judge judges what was found.
func (w *limitsWorker) judge(what string, n int, s state) error {
	if fault := w.fates[n].judge(s); fault != nil {
		return faultError{fmt.Errorf("%s of key %x: %w", what, w.key(n), fault)}
	}
	return nil
}

func (w *limitsWorker) lookup(n int) error {
	value, err := w.s.Lookup(w.key(n), nil)
	if err != nil && !errors.Is(err, index.ErrNotFound) {
		return err
	}
	return w.judge("lookup", n, stateOf(value, err == nil))
}

func (w *limitsWorker) modify(n int, value []byte) error {
	action := []index.Action{index.Keep, index.Put, index.Remove}[w.rand.IntN(3)]
	to, told := stateOf(value, action == index.Put), absent
	err := w.s.Modify(w.key(n), func(old []byte, found bool) ([]byte, index.Action) {
		told = stateOf(old, found)
		return value, action
	})
	switch {
	case err == nil && (action == index.Keep || action == index.Remove && told == absent):
		return w.judge("modify", n, told)
	case err == nil:
		return w.changed("modify", n, to, func(s state) bool { return s == told }, nil, nil)
	case action == index.Keep:
		return err
	}
	return w.changed("modify", n, to, state.any, nil, err)
}

func (w *limitsWorker) batch() (fault error) {
	var keys [][]byte
	var numbers []int
	for range 1 + w.rand.IntN(20) {
		n := w.rand.IntN(len(w.fates))
		keys, numbers = append(keys, w.key(n)), append(numbers, n)
	}
	err := w.s.LookupBatch(keys, func(i int, value []byte, err error) {
		if fault == nil {
			fault = w.judge("lookup in a batch", numbers[i], stateOf(value, err == nil))
		}
	})
	if fault != nil {
		return fault
	}
	return err
}

func (w *limitsWorker) scan(start string, limit int, reverse bool) error {
	h := &history{}
	err := h.scan(w.s, start, limit, reverse)
	if err != nil {
		return err
	}
	sc := &h.scans[0]
	values := map[string]string{}
	for _, p := range sc.pairs {
		values[p.key] = p.value
	}
	for n := range w.fates {
		key := string(w.key(n))
		if value, found := values[key]; sc.reached(key) {
			if fault := w.judge("scan", n, stateOf([]byte(value), found)); fault != nil {
				return fault
			}
		}
	}
	return nil
}
