package art

import (
	"bytes"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/loader"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// A design with the least that leaves can be: a place, of any length up to toyLongest, and nothing
// else. The first places of a design's leaves may be bounds, which are prefixes of each other, and
// a leaf may be there before it gets its slot. The tree's tests run with it, so the tree needs no
// more of leaves than is here.

const (
	toyBytes   = 128
	toyLongest = toyBytes - HeadBytes - 1
	mostTurns  = 1000 // descents of one operation: each comes after a change by somebody else
)

// Layouts of toys: slots say how much of a leaf to READ, or have bits of its place.
var (
	toyLayout   = Layout{Ends: true, Sums: testSums, MostLeaf: uint8(LeafCode(toyBytes))}
	loneLayout  = Layout{Ends: true, Sums: testSums, LeafBytes: toyBytes, LoneLeaves: true}
	alikeLayout = Layout{Ends: true, Sums: testSums, LeafBytes: toyBytes}
)

// toy is a session of an open tree.
type toy struct {
	*Session
	fatal  func(format string, args ...any)
	open   func() *pool.Pool // another client
	active *op.Sessions
	image  []byte // of a leaf
	coming toyLeaf
	seen   map[string]Slot // what a check found
	walker *Walker
}

// toyLeaf implements Newcomer.
type toyLeaf struct {
	s     *toy
	place []byte
	at    pool.Addr // Nil = it is to be allocated
}

func (l *toyLeaf) Place() []byte { return l.place }

func (l *toyLeaf) Allot(near pool.Addr) (Slot, error) {
	if l.at != pool.Nil {
		return toySlot(l.at), nil
	}
	a, _, err := l.s.Allocate(toyBytes, near)
	l.at = a
	return toySlot(a), err
}

// toySlot is the word of the leaf at a.
func toySlot(a pool.Addr) Slot {
	at, _ := Pack(a)
	return LeafSlot(0, toyBytes, at)
}

func (l *toyLeaf) Queue(pool.Addr) error {
	l.s.PS.Write(pool.Sole, l.at, l.s.image[:buildToy(l.s.image, l.at, l.place)])
	return nil
}

// buildToy makes the image of the leaf of a place.
func buildToy(b []byte, a pool.Addr, place []byte) int {
	clear(b[:toyBytes])
	b[unit.AtKind], b[unit.AtFlags] = KindLeaf, unit.Node
	b[HeadBytes] = byte(copy(b[HeadBytes+1:], place))
	unit.Seal(b, toyBytes, a, 0)
	return toyBytes
}

// newToy opens a tree of which the sessions make nodes as with says.
func newToy(t *testing.T, lay Layout, with Techniques) *toy {
	t.Helper()
	c := pooltest.New(t, pooltest.Options{Servers: 3, Chunks: 8})
	fatal := func(format string, args ...any) { t.Helper(); t.Fatalf(format, args...) }
	s := openToy(func() *pool.Pool { return c.Open(t) }, fatal, lay, with, pool.Nil)
	t.Cleanup(s.close)
	return s
}

// another is a session of another client.
func (s *toy) another(t *testing.T) *toy {
	o := openToy(s.open, s.fatal, s.Session.t.lay, s.Session.t.with, s.Session.t.First)
	t.Cleanup(o.close)
	return o
}

// openToy opens a tree with a root; Nil = it is made.
func openToy(open func() *pool.Pool, fatal func(string, ...any), lay Layout, with Techniques, root pool.Addr) *toy {
	tree, active := new(Tree), new(op.Sessions)
	tree.Init(open(), with)
	active.Init(tree.Env)
	tree.InitSweeps("toy", nil)
	tree.Pool.SetMarks(Marks)
	s := &toy{fatal: fatal, open: open, Session: new(Session), active: active}
	ps := s.pooled(tree)
	if root == pool.Nil {
		var err error
		ps.Begin()
		root, err = tree.FirstNode(ps, testSums)
		s.must(err)
		ps.End()
	}
	tree.SetRoot(root, lay, toyLongest)
	tree.OpenCache(1 << 20)
	s.must(s.OpenIn(tree, ps))
	return s
}

// beside is another session of the client.
func (s *toy) beside() *toy {
	o := &toy{fatal: s.fatal, open: s.open, Session: new(Session), active: s.active}
	s.must(o.OpenIn(s.Session.t, o.pooled(s.Session.t)))
	return o
}

// pooled makes the session that s is to be in.
func (s *toy) pooled(tree *Tree) *pool.Session {
	ps, err := tree.Pool.NewSession(SessionBytes + toyBytes + 64<<10)
	s.must(err)
	s.must(s.active.Add(&s.Op))
	s.image, err = ps.Buffer(toyBytes)
	s.must(err)
	return ps
}

func (s *toy) close() {
	s.must(s.Close())
	s.Session.t.EndSweeps()
}

func (s *toy) must(err error) {
	if err != nil {
		s.fatal("%v", err)
	}
}

// read is the place of the leaf of slot w.
func (s *toy) read(w Slot) []byte {
	place, ok := s.peek(w)
	if !ok {
		s.fatal("the leaf at %v does not verify", w.Addr())
	}
	return place
}

// peek is read of a leaf that may be out.
func (s *toy) peek(w Slot) ([]byte, bool) {
	b := s.Node[:s.Session.t.lay.LeafBytesOf(w)]
	s.must(s.Read(w.Addr(), b))
	return bytes.Clone(b[HeadBytes+1:][:min(int(b[HeadBytes]), toyLongest)]), unit.Verify(b, toyBytes, w.Addr(), 0)
}

// add gives the leaf of a place a slot. at: it lies there already. It reports false if there is
// one.
func (s *toy) add(place []byte, at pool.Addr) bool {
	s.Begin()
	defer s.End()
	for range mostTurns {
		out, err := s.Seek(place)
		s.must(err)
		s.coming = toyLeaf{s: s, place: place, at: at}
		var done bool
		switch st := &s.Path[s.Level]; {
		case out != Leafed:
			done, err = s.Link(&s.coming, out)
		case st.Word.Frozen():
			err = s.Replace(s.Level)
		default:
			other, ok := s.peek(st.Word)
			switch {
			case !ok: // it is out
				done, err = s.LinkAt(&s.coming, st)
			case bytes.Equal(other, place):
				return false
			default:
				done, err = s.Fork(&s.coming, other)
			}
		}
		s.must(err)
		if done {
			return true
		}
	}
	s.fatal("place %x gets no leaf", place)
	return false
}

// find is the slot of the leaf of a place; 0 = it is proved that there is none.
func (s *toy) find(place []byte) Slot {
	s.Begin()
	defer s.End()
	for range mostTurns {
		out, err := s.Seek(place)
		s.must(err)
		if w := s.Last().Word; out == Leafed {
			is, ok := s.peek(w)
			if ok && bytes.Equal(is, place) {
				return w.Clean()
			}
			s.Last().Fresh = s.Last().Fresh && ok // it may be out since
		}
		absent, _, err := s.Confirm(place, out)
		s.must(err)
		if absent {
			return 0
		}
	}
	s.fatal("place %x is looked for, for ever", place)
	return 0
}

// swing puts another leaf in place of that of a place.
func (s *toy) swing(place []byte) {
	s.Begin()
	defer s.End()
	for won := false; !won; {
		out, err := s.Seek(place)
		s.must(err)
		if out != Leafed {
			s.fatal("place %x has no leaf", place)
		}
		l := toyLeaf{s: s, place: place}
		w, err := l.Allot(s.Last().Word.Addr())
		s.must(err)
		s.must(l.Queue(l.at))
		won, err = s.ReplaceLeaf(s.Last(), w)
		s.must(err)
	}
}

// remove takes the leaf of a place out.
func (s *toy) remove(place []byte) {
	w := s.find(place)
	s.Begin()
	defer s.End()
	s.must(s.Unlink(place, w))
}

// CheckLeaves implements LeafChecker.
func (s *toy) CheckLeaves(f *Frame, _ int) error {
	for b := f.From(BeforeAll, false); b != BehindAll; b = f.From(b+1, false) {
		w := f.Word(b)
		if !w.Leaf() {
			continue
		}
		place := s.read(w)
		if n := len(s.walker.Path); !bytes.HasPrefix(place, s.walker.Path) || Branch(place, n) != b {
			s.walker.Report.Fault("the leaf of %x lies at branch %d where places begin with %x", place, b, s.walker.Path)
		} else if s.Session.t.lay.WordWithPlace(w, suffix(place, n+1)) != w {
			s.walker.Report.Fault("the leaf of %x lies where places begin with %x with code %d", place, s.walker.Path, w.Code())
		}
		s.walker.Report.Node(w.Addr(), toyBytes, index.KindLeaf)
		s.seen[string(place)] = w.Clean()
	}
	return nil
}

// check checks the tree, and that it has the leaves of places and no others. It returns how many
// inner nodes there are.
func (s *toy) check(places map[string]bool) int {
	s.Begin()
	defer s.End()
	s.seen, s.walker = map[string]Slot{}, s.NewWalker(s)
	s.must(s.walker.Check())
	s.must(s.walker.Report.Err())
	for place := range places {
		if s.seen[place] == 0 {
			s.fatal("place %x has no leaf", place)
		}
	}
	if len(s.seen) != len(places) {
		s.fatal("%d leaves, want %d", len(s.seen), len(places))
	}
	inner := 0
	for _, n := range s.walker.Report.Found.Memory {
		if n.Kind == index.KindInner {
			inner++
		}
	}
	return inner
}

// load puts a leaf at each of places.
func (s *toy) load(places []string) error {
	ld := s.NewBuilder(s.loaderOf(), func(Slot) (bool, error) { return false, nil })
	err := ld.Run(func() error {
		for _, p := range places {
			s.must(ld.Next([]byte(p)))
			a, _, err := ld.Room(toyBytes)
			s.must(err)
			ld.Batch.AddImage(a, toyBytes, func(b []byte) int { return buildToy(b, a, []byte(p)) })
			s.must(ld.Leaf(toySlot(a)))
		}
		return nil
	})
	s.must(ld.Close())
	return err
}

// loaderOf makes a load of which one session WRITEs.
func (s *toy) loaderOf() *loader.Load {
	w := s.beside()
	room, err := w.PS.Buffer(32 << 10)
	s.must(err)
	return loader.New(s.Pool, []loader.Session{{Op: &w.Op, Blocks: &w.Blocks, Room: room, Largest: RootBytes, Close: w.Close}}, func() loader.Leaves { return noLeaves{} })
}

// noLeaves implements loader.Leaves: those of a toy are images.
type noLeaves struct{}

func (noLeaves) Build(int, []byte, pool.Addr, uint32) int { return 0 }
func (noLeaves) Reset()                                   {}
