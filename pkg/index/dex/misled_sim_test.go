package dex_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestMisledOperationsBeginAnew gives a client copies of inner nodes that lead to leaves above the
// key, as copies would whose nodes' memory was used again too early. Every answer is right all the
// same, and nothing is changed in a wrong leaf. Where every READ lies, operations end with
// ErrFormat after a few tries.
func TestMisledOperationsBeginAnew(t *testing.T) {
	for _, off := range []string{"", "offloading", "frequencies"} {
		t.Run("without "+off, func(t *testing.T) {
			opts := index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 6 << 10}
			if off != "" {
				opts.Switches = map[string]bool{off: false}
			}
			o := poolsim.Options{Servers: 1, Executor: executor, Chunks: 40, ChunkBytes: 64 << 10, Locks: 64, Fabric: sim.Options{}}
			inSimulation(t, o, func(c *poolsim.Cluster, p *simenv.Process) error { return misled(t, c, p, opts) })
		})
	}
}

const misledKeys = 400

func misled(t *testing.T, c *poolsim.Cluster, p *simenv.Process, opts index.Options) error {
	d := newLyingDevice(c.Fabric.Device(p), opts.NodeBytes)
	x, s, err := openAll(c, p, d, opts)
	if err != nil {
		return err
	}
	d.lay = dex.LayoutOf(x)
	s.SetLimit(time.Minute)
	r, model := rand.New(rand.NewPCG(1, 2)), map[string]string{}
	for n := uint64(0); n < misledKeys; n += 2 {
		if err := s.Insert(simKey(n), []byte("0")); err != nil {
			return err
		}
		model[string(simKey(n))] = "0"
	}
	for n := range 2000 {
		d.lies = max(d.lies, 1-n%4)
		if err := misledOperation(s, model, r, n); err != nil {
			return fmt.Errorf("operation %d: %w", n, err)
		}
	}
	begun, once, refused := x.Stats().Misled, d.told, 0
	for n := range 400 {
		d.lies = 1 << 30
		switch err := misledOperation(s, model, r, n); {
		case errors.Is(err, index.ErrFormat):
			refused++
		case err != nil:
			return fmt.Errorf("operation %d while every READ lies: %w", n, err)
		}
	}
	d.lies = 0
	t.Logf("%d copies were wrong, %d operations began anew; %d of 400 were refused while all are wrong", once, begun, refused)
	if begun < 50 || refused < 50 {
		t.Errorf("%d copies were wrong, %d operations began anew; %d of 400 were refused while all are wrong: this tests nothing", once, begun, refused)
	}
	for n := range uint64(misledKeys) {
		v, err := s.Lookup(simKey(n), nil)
		if err != nil && !errors.Is(err, index.ErrNotFound) {
			return err
		}
		if string(v) != model[string(simKey(n))] {
			return fmt.Errorf("in the end key %d is %q, not %q", n, v, model[string(simKey(n))])
		}
	}
	structure, err := x.(index.Checker).Check()
	if err == nil && structure.Pairs != uint64(len(model)) {
		err = fmt.Errorf("%d pairs, not %d", structure.Pairs, len(model))
	}
	return errors.Join(err, s.Close())
}

// misledOperation does one operation and compares its answer. After ErrFormat nothing was changed.
func misledOperation(s index.Session, model map[string]string, r *rand.Rand, n int) error {
	number := r.Uint64N(misledKeys)
	key, v := simKey(number), fmt.Sprint(n)
	old, there := model[string(key)]
	change, absent, err := v, index.ErrNotFound, error(nil)
	switch r.IntN(6) {
	case 0:
		got, err := s.Lookup(key, nil)
		if there && err == nil && string(got) != old {
			return fmt.Errorf("key %d is %q, not %q", number, got, old)
		}
		return expect(err, there, nil, index.ErrNotFound)
	case 1:
		err = s.Insert(key, []byte(v))
		if err := expect(err, there, index.ErrExists, nil); err != nil || there {
			return err
		}
	case 2:
		err = s.Update(key, []byte(v))
		if err := expect(err, there, nil, absent); err != nil || !there {
			return err
		}
	case 3:
		err = s.Delete(key)
		if err := expect(err, there, nil, absent); err != nil {
			return err
		}
		change = ""
	case 4:
		return misledScan(s, model, number, r.IntN(2) == 0)
	default:
		if err = s.Upsert(key, []byte(v)); err != nil {
			return err
		}
	}
	if model[string(key)] = change; change == "" {
		delete(model, string(key))
	}
	return nil
}

// expect compares an answer with that of a key which is there, or is not.
func expect(err error, there bool, present, absent error) error {
	want := absent
	if there {
		want = present
	}
	if !errors.Is(err, want) || want == nil && err != nil {
		return fmt.Errorf("the key is there: %v; answer: %w", there, err)
	}
	return nil
}

func misledScan(s index.Session, model map[string]string, number uint64, reverse bool) error {
	var want, got []string
	for n := number; len(want) < 20 && n < misledKeys; {
		if v, ok := model[string(simKey(n))]; ok && (!reverse || n < number) {
			want = append(want, v)
		}
		if n++; reverse {
			n -= 2 // it ends when it is below 0
		}
	}
	if err := s.Scan(simKey(number), 20, reverse, func(_, value []byte) bool {
		got = append(got, string(value))
		return true
	}); err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("a scan from key %d, reverse: %v, finds %q, not %q", number, reverse, got, want)
	}
	return nil
}

// lyingDevice shifts the children of some inner nodes of level 1 that are READ without a lock: each
// key leads to the leaf after its own.
type lyingDevice struct {
	hookedDevice
	lies, told int // how many more, and how many so far
	lay        *fence.Layout
}

// newLyingDevice makes one for nodes of so many bytes, on the only memory server.
func newLyingDevice(d verbs.Device, node int) *lyingDevice {
	lying := &lyingDevice{hookedDevice: hookedDevice{Device: d}}
	lying.over = func(list []verbs.Request) error {
		for i := range list {
			if list[i].Op != verbs.Read {
				return nil
			}
		}
		for i := range list {
			b := list[i].Local
			if len(b) == node && lying.lies > 0 && shift(lying.lay, pool.NewAddr(1, list[i].Remote), b) {
				lying.lies--
				lying.told++
			}
		}
		return nil
	}
	return lying
}

// shift makes the inner node of level 1 at a, of an index of numbers, lead each key to the leaf
// after its own; false if b is no such node.
func shift(l *fence.Layout, a pool.Addr, b []byte) bool {
	const children = fence.HeaderBytes + 16
	count := int(binary.LittleEndian.Uint16(b[10:]))
	end := children + 8*count + 8*(count-1)
	if b[8] != 1 || count < 2 || end > len(b) {
		return false
	}
	version := binary.LittleEndian.Uint32(b)
	if !l.Verify(b, end, a, version) {
		return false
	}
	copy(b[children:children+8*(count-1)], b[children+8:])
	l.Seal(b, end, a, version)
	return true
}
