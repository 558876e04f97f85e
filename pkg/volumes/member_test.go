package volumes

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// toyHost is a host that notes what is asked of it.
type toyHost struct {
	asked  []string
	stored State
	fails  bool

	durable bool
	damaged bool // its files
	lacks   bool // they, perhaps
}

func (h *toyHost) Save(s State) error {
	if h.fails {
		return errors.New("the toy's disk is full")
	}
	h.asked, h.stored = append(h.asked, "save"), s
	return nil
}
func (h *toyHost) Restore() error {
	if h.damaged {
		return errors.New("the toy's files are damaged")
	}
	h.asked = append(h.asked, "restore")
	return nil
}
func (h *toyHost) Close()              { h.asked = append(h.asked, "close") }
func (h *toyHost) Prepare() error      { h.asked = append(h.asked, "prepare"); return nil }
func (h *toyHost) Durable() bool       { return h.durable }
func (h *toyHost) MayLack() bool       { return h.lacks }
func (h *toyHost) Drain(Proc) error    { h.asked = append(h.asked, "drain"); return nil }
func (h *toyHost) Return(Proc, uint64) { h.asked = append(h.asked, "return") }

// inWorld runs a test in a world whose clocks go on only when something waits.
func inWorld(t *testing.T, test func(p *simenv.Process)) {
	t.Helper()
	if err := simenv.New(simenv.Options{Seed: 1}).Run(test); err != nil {
		t.Fatal(err)
	}
}

func member(t *testing.T, p *simenv.Process, pod string, stored State) (*Member, *toyHost) {
	t.Helper()
	h := &toyHost{stored: stored}
	m, err := New(p, pod, stored, h)
	if err == nil {
		err = m.Start()
	}
	if err != nil {
		t.Error(err)
	}
	h.asked = nil
	return m, h
}

// TestMemberJoinsAndOpens is the whole way of a copy, and of the primary that it joins.
func TestMemberJoinsAndOpens(t *testing.T) {
	inWorld(t, func(p *simenv.Process) {
		a, _ := member(t, p, "a", State{})
		b, host := member(t, p, "b", State{})
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		if must(a.Obey(View{Number: 1, Primary: Proc{Pod: "a"}})); !a.MayAnswer(0) {
			t.Error("the first primary of a volume does not answer")
		}
		must(a.Join(1, b.Self()))
		target := a.Targets()[0]
		must(b.Attach(a.Self(), target.Join, 1))
		if !a.MayAnswer(99) {
			t.Error("answers wait for a copy that gets the memory")
		}
		if err := a.WaitFor(b.Self(), 5, nil); !errors.Is(err, ErrBehind) {
			t.Errorf("answers wait for a copy that has nothing: %v", err)
		}
		ask, _ := a.Ask()
		if !b.Grant(a.Self(), ask.Turn) || b.Grant(proc("c", 1), ask.Turn+1) {
			t.Error("permission is for the source, and for nobody else")
		}
		granted := p.Now()
		a.Permitted(b.Self(), ask)
		a.Acked(b.Self(), 5)
		must(a.WaitFor(b.Self(), 5, func() uint64 {
			if a.MayAnswer(6) {
				t.Error("the mark is recorded before answers wait for the copy")
			}
			return 7
		}))
		b.Marked(a.Self())
		a.Acked(b.Self(), 6)
		if a.Report().InSync {
			t.Error("in sync before the mark")
		}
		a.Acked(b.Self(), 7)
		if !a.Report().InSync || b.Role() != Backup {
			t.Errorf("not in sync: %+v, %+v", a.Report(), b.Report())
		}
		if !a.MayAnswer(7) || a.MayAnswer(8) {
			t.Error("an answer goes out if the copy has what it depends on")
		}
		both := View{Number: 2, Primary: a.Self(), Backup: b.Self()}
		must(a.Obey(both))
		must(b.Obey(both))
		if err := b.Obey(both); !errors.Is(err, ErrOldView) {
			t.Errorf("the same view again: %v", err)
		}
		must(b.Obey(View{Number: 3, Primary: b.Self()}))
		if p.Now()-granted < time.Second || a.MayAnswer(0) || !b.MayAnswer(0) {
			t.Errorf("opened after %v", p.Now()-granted)
		}
		if want := []string{"close", "save", "prepare", "save"}; !slices.Equal(host.asked, want) {
			t.Errorf("opening did %v, not %v", host.asked, want)
		}
		if b.Takes(a.Self()) || b.Attach(a.Self(), target.Join, 2) == nil || b.Grant(a.Self(), ask.Turn+9) {
			t.Error("the new primary still belongs to the old one")
		}
		if must(a.Obey(View{Number: 3, Primary: b.Self()})); a.Role() != Replaced {
			t.Error("the old primary goes on")
		}
	})
}

func permit(m *Member, by Proc) {
	r, _ := m.Ask()
	m.Permitted(by, r)
}

// TestMemberStops: a primary that stops answers what it executed, then nothing, and returns its
// permission last.
func TestMemberStops(t *testing.T) {
	inWorld(t, func(p *simenv.Process) {
		a, host := member(t, p, "a", State{})
		b := proc("b", 1)
		_ = a.Obey(View{Number: 1, Primary: Proc{Pod: "a"}})
		_ = a.Join(1, b)
		permit(a, b)
		_ = a.WaitFor(b, 0, func() uint64 { return 1 })
		_ = a.Obey(View{Number: 2, Primary: a.Self(), Backup: b})
		if err := a.Stop(1); !errors.Is(err, ErrNotPrimary) {
			t.Errorf("stopped in an earlier view: %v", err)
		}
		host.asked = nil
		if err := a.Stop(2); err != nil || a.Role() != Stopped || a.MayAnswer(0) || a.Executes() {
			t.Errorf("%v: %v", err, a.Role())
		}
		if want := []string{"drain", "return"}; !slices.Equal(host.asked, want) {
			t.Errorf("stopping did %v, not %v", host.asked, want)
		}
		if err := a.Obey(View{Number: 3, Primary: a.Self()}); err != nil || !a.MayAnswer(9) {
			t.Errorf("it does not go on when it is named alone: %v", err)
		}
	})
}

// TestMemberRestarts: what a process does that finds a state.
func TestMemberRestarts(t *testing.T) {
	a, b := proc("a", 1), proc("b", 1)
	for _, x := range []struct {
		name  string
		state State
		role  Role
		empty bool
	}{
		{"nothing", State{}, Joining, true},
		{"replaced", State{View: View{Number: 3, Primary: b}}, Joining, true},
		{"alone", State{View: View{Number: 3, Primary: a}, Content: Served}, Primary, false},
		{"taken", State{View: View{Number: 3, Primary: a}, Content: Taken}, Primary, false},
		{"beside a backup", State{View: View{Number: 3, Primary: a, Backup: b}, Content: Served}, Stopped, false},
		{"with a promise", State{View: View{Number: 3, Primary: a}, Content: Served, WaitsFor: b}, Stopped, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			inWorld(t, func(p *simenv.Process) {
				x.state.Process = 4
				m, h := member(t, p, "a", x.state)
				if m.Role() != x.role || m.Empty() != x.empty || m.Self() != proc("a", 5) || h.stored.Process != 5 {
					t.Errorf("%v is %v, empty: %v", m.Self(), m.Role(), m.Empty())
				}
				if h.stored.Content == Taken {
					t.Error("it serves what was not prepared")
				}
			})
		})
	}
}

// TestMemberJoinsAgain: a copy that was left out of a join ends when its source begins another one.
func TestMemberJoinsAgain(t *testing.T) {
	inWorld(t, func(p *simenv.Process) {
		a, _ := member(t, p, "a", State{Process: 1, View: View{Number: 3, Primary: proc("a", 1)}, Content: Served})
		b, _ := member(t, p, "b", State{})
		for _, copy := range []Proc{b.Self(), proc("c", 1), b.Self()} {
			if err := a.Join(3, copy); err != nil {
				t.Error(err)
			}
			if to := a.Targets()[0]; to.Proc == b.Self() {
				_ = b.Attach(a.Self(), to.Join, 3)
			}
		}
		if b.Role() != Replaced {
			t.Errorf("it is %v", b.Role())
		}
	})
}

// TestMemberStoresFirst: a view or promise that cannot be stored is not gone by.
func TestMemberStoresFirst(t *testing.T) {
	inWorld(t, func(p *simenv.Process) {
		a, host := member(t, p, "a", State{Process: 1, View: View{Number: 3, Primary: proc("a", 1)}, Content: Served})
		b := proc("b", 1)
		_ = a.Join(3, b)
		permit(a, b)
		host.fails = true
		if a.WaitFor(b, 0, func() uint64 { return 1 }) == nil {
			t.Error("a promise that is not stored")
		}
		a.Acked(b, 1)
		if r := a.Report(); r.InSync || !r.Waits {
			t.Errorf("%+v", r)
		}
		if a.Obey(View{Number: 4, Primary: a.Self()}) == nil || a.Report().View.Number != 3 || a.MayAnswer(2) {
			t.Error("it goes on alone in a view that is not stored")
		}
		host.fails = false
		if err := a.Obey(View{Number: 4, Primary: a.Self()}); err != nil || !a.MayAnswer(9) {
			t.Errorf("%v", err)
		}
	})
}

// TestNoMark: answers do not wait for a copy that falls behind before its mark is recorded, and it
// can be dropped.
func TestNoMark(t *testing.T) {
	inWorld(t, func(p *simenv.Process) {
		m, host := member(t, p, "a", State{View: View{Number: 3, Primary: proc("a", 1)}, Content: Served})
		b := proc("b", 1)
		if err := m.Join(3, b); err != nil {
			t.Error(err)
		}
		permit(m, b)
		during := true
		err := m.WaitFor(b, 0, func() uint64 {
			during = m.MayAnswer(1)
			return 0
		})
		if !errors.Is(err, ErrBehind) || during || !m.MayAnswer(1) || m.Report().Waits || host.stored.WaitsFor == b {
			t.Errorf("%v; it answers meanwhile: %v, and then: %v; %+v", err, during, m.MayAnswer(1), m.Report())
		}
		if m.Drop(m.Targets()[0]); len(m.Targets()) != 0 {
			t.Error("the copy is not dropped")
		}
	})
}

// TestBackupOfAnother: a process that never promised to wait for a backup does not lead beside it:
// that has the volume, and this one another, which began with a first view that came late. A copy
// that lacks changes for long is missed.
func TestBackupOfAnother(t *testing.T) {
	inWorld(t, func(p *simenv.Process) {
		b := Proc{"b", 1}
		first := State{Process: 1, View: View{Number: 1, Primary: Proc{Pod: "a"}}, Content: Served}
		second := View{Number: 2, Primary: Proc{"a", 1}, Backup: b}
		m, host := member(t, p, "a", first)
		if err := m.Obey(second); !errors.Is(err, ErrNoContent) || m.Role() != Primary || m.Report().View.Number != 1 || host.stored.View.Number != 1 {
			t.Errorf("it leads: %v, %+v", err, m.Report())
		}
		if err := m.Join(1, b); err != nil {
			t.Error(err)
		}
		if _, ok := m.Ask(); !ok {
			t.Error("it asks for nothing")
		}
		m.Permitted(b, Request{1, p.Now()})
		if err := m.WaitFor(b, 0, func() uint64 { return 1 }); err != nil {
			t.Error(err)
		}
		if err := m.Obey(second); err != nil || m.Report().View != second {
			t.Errorf("it does not lead: %v, %+v", err, m.Report())
		}
		for late, want := range map[time.Duration]time.Duration{tooLate - 1: 0, tooLate: tooLate} {
			if m.Late(b, late); m.Report().Misses != want {
				t.Errorf("%v late counts as %v, not %v", late, m.Report().Misses, want)
			}
		}
	})
}

// TestMemberKnowsItsFirst: a process says which was the first whose stored state it found, unless
// the memory was lost.
func TestMemberKnowsItsFirst(t *testing.T) {
	inWorld(t, func(p *simenv.Process) {
		stored := State{Process: 7}
		for range 3 {
			m, h := member(t, p, "a", stored)
			if r := m.Report(); r.First != 8 || h.stored.First != 8 {
				t.Errorf("process %v says that %d was the first, and stores %d", r.Proc, r.First, h.stored.First)
			}
			stored = h.stored
		}
		if m, _ := member(t, p, "a", State{Process: stored.Process}); m.Report().First != stored.Process+1 {
			t.Errorf("its memory was lost, and it says %+v", m.Report())
		}
	})
}

// TestMemberBeganAnew: a process whose pod lost its memory, and which was told the first view late,
// does not stand for the one before it, whatever its number is.
func TestMemberBeganAnew(t *testing.T) {
	inWorld(t, func(p *simenv.Process) {
		first, later := View{Number: 1, Primary: Proc{Pod: "a"}}, View{Number: 4, Primary: proc("a", 10)}
		for _, before := range []uint64{2, 20} {
			m, h := member(t, p, "a", State{Process: before})
			if err := m.Obey(first); err != nil {
				t.Fatal(err)
			}
			m, h = member(t, p, "a", h.stored)
			if err := m.Obey(later); !errors.Is(err, ErrNoContent) || m.Report().View != first || h.stored.View != first {
				t.Errorf("process %v: %v, and it is in view %v", m.Self(), err, m.Report().View)
			}
		}
		// of an earlier program, which did not store what it found
		m, _ := member(t, p, "a", State{Process: 10, View: first, Content: Served})
		if err := m.Obey(later); err != nil || m.Report().View != later {
			t.Errorf("process %v of the memory that is named: %v", m.Self(), err)
		}
	})
}
