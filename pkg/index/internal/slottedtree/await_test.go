package slottedtree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// sleeper is an Env that does something when somebody sleeps for the first time, and whose random
// choices are always the first one.
type sleeper struct {
	env.Env
	first func()
}

func (e *sleeper) Sleep(d time.Duration) {
	if f := e.first; f != nil {
		e.first = nil
		f()
	}
	e.Env.Sleep(d)
}

func (e *sleeper) Uint64() uint64 { return 0 }

// TestAwaitMemoryForgets: a write meets a leaf that its parent does not know, and waits for memory.
// Meanwhile the leaf is merged, its memory comes back, and is used by a bulk load under way. The
// write must not link what it met before the wait.
func TestAwaitMemoryForgets(t *testing.T) {
	c := pooltest.New(t, pooltest.Options{Servers: 1, Chunks: 40, ChunkBytes: 64 << 10, RenewEvery: time.Millisecond})
	o := index.Options{Uint64: true, MaxValueBytes: 2000, NodeBytes: 1024}
	open := func() (*Tree, *Session, *pool.Pool) {
		t.Helper()
		p := c.Open(t)
		tr, err := Open(p, Config{Design: index.Design{Name: "test"}, Options: o})
		fatal(t, err)
		s, err := tr.NewSession()
		fatal(t, err)
		t.Cleanup(func() { fatal(t, errors.Join(s.Close(), tr.Close())) })
		return tr, s, p
	}
	splits, a, owner := open()
	_, x, _ := open()
	value := make([]byte, 8)
	const keys = 24
	for i := range uint64(keys) {
		fatal(t, a.Upsert(number(100+10*i), value))
	}
	// X has garbage on its way, so that it waits for memory. Beside it lies a block that stays, so
	// that no other size gets its slab.
	_, err := x.Pool.AllocateBlock(blocks.Size(&x.Lay.Codec, 300), pool.Nil)
	fatal(t, err)
	fatal(t, x.Upsert(number(100), bytes.Repeat([]byte{1}, 300)))
	fatal(t, x.Upsert(number(100), value))

	// A splits the only leaf, and stands still before it links the sibling.
	a.Begin()
	var l slotted.Leaf
	fatal(t, a.lockLeaf(&l, number(100)))
	if !l.Collect(&a.pairs) {
		t.Fatal("torn")
	}
	a.pairs.Sort()
	at := slotted.SplitAt(&l.Header, &a.pairs, false)
	sep := bytes.Clone(a.pairs.Key(at))
	to := a.divideOnly(t, &l, at, sep)
	from := binary.BigEndian.Uint64(sep)

	// X writes a long value there, for which there is no memory at first.
	e := &sleeper{Env: x.Env}
	x.Env = e
	c.Refuse(1, pool.ErrPoolFull)
	for err = nil; err == nil; { // nor is there room in its chunk
		_, err = x.Pool.AllocateBlock(64, pool.Nil)
	}
	loaded, goOn, full := make(chan error, 1), make(chan bool), make(chan bool)
	e.first = func() {
		c.Refuse(1, nil)
		fatal(t, a.Connect(sep, to)) // A goes on
		a.End()
		before := owner.Reclaimed()
		for i := range uint64(keys) {
			fatal(t, a.Delete(number(100+10*i)))
		}
		until(t, "the leaf that was merged comes back", func() bool { return owner.Reclaimed() >= before+2 })
		go func() {
			loaded <- splits.BulkLoad(func(yield func(k, v []byte) bool) error {
				for i := range uint64(24) {
					yield(number(i), value)
				}
				for i := range uint64(2000) {
					yield(number(from+i), value)
				}
				full <- true
				<-goOn
				return nil
			}, 1)
		}()
		<-full
		ps, err := owner.NewSession(1024)
		fatal(t, err)
		b, err := ps.Buffer(1024)
		fatal(t, err)
		until(t, "the bulk load uses the leaf's memory", func() bool {
			ps.Read(to, b)
			fatal(t, ps.Post())
			return new(slotted.Leaf).Open(&splits.Lay, to, b)
		})
		fatal(t, ps.Close())
	}
	mine, long := number(from+5000), bytes.Repeat([]byte{7}, 1500)
	fatal(t, x.Upsert(mine, long))
	if e.first != nil {
		t.Fatal("the write did not wait")
	}
	goOn <- true
	if err := <-loaded; !errors.Is(err, index.ErrNotEmpty) {
		t.Errorf("bulk load: %v", err)
	}
	reads, y, _ := open()
	if v, err := y.Lookup(mine, nil); err != nil || !bytes.Equal(v, long) {
		t.Errorf("lookup of what was written: %d bytes, %v", len(v), err)
	}
	if v, err := y.Lookup(number(from+1), nil); err != index.ErrNotFound {
		t.Errorf("lookup of what was never loaded: %x, %v", v, err)
	}
	if _, err := reads.Check(); err != nil {
		t.Errorf("check: %v", err)
	}
}

// divideOnly is divide, but leaves the sibling, which it returns, unlinked.
func (s *Session) divideOnly(t *testing.T, l *slotted.Leaf, at int, sep []byte) pool.Addr {
	p := &s.pairs
	fatal(t, s.PS.ReserveRewrite(l.Addr, s.Lay.NodeBytes))
	to, err := s.Pool.Allocate(s.Lay.NodeBytes, pool.Nil)
	fatal(t, err)
	right := l.Header
	right.Version, right.Low = unit.NewVersion(s.Env), sep
	n := slotted.Build(s.Spare, s.Lay, to, &right, p, at, len(p.List))
	s.PS.Write(pool.Sole, to, s.Spare[:n])
	left := l.Header
	left.Version++
	left.High, left.Rightmost, left.Sibling = sep, false, to
	n = slotted.Build(s.Image, s.Lay, l.Addr, &left, p, 0, at)
	s.PS.Rewrite(l.Addr, s.Image[:n])
	fatal(t, s.Publish())
	return to
}

// until waits for a condition, for two minutes at most.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
