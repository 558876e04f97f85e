package volumes

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// TestMemberLeavesFiles: what a process does that finds the files of a backup, which an earlier
// process of its pod was.
func TestMemberLeavesFiles(t *testing.T) {
	a, b := proc("a", 1), proc("b", 1)
	both, without := View{Number: 2, Primary: a, Backup: b}, View{Number: 3, Primary: a}
	named := View{Number: 3, Primary: proc("b", 2), Earlier: a}
	inWorld(t, func(p *simenv.Process) {
		begin := func(stored State, durable bool) (*Member, *toyHost) {
			h := &toyHost{stored: stored, durable: durable}
			m, err := New(p, "b", stored, h)
			if err != nil {
				t.Error(err)
			}
			h.asked = nil
			return m, h
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		backup := func(durable bool) (*Member, *toyHost) {
			m, h := begin(State{}, durable)
			must(m.Attach(a, 1, 1))
			m.Marked(a)
			h.fails = durable
			if m.Obey(both) == nil == durable {
				t.Error("it obeys without storing that it is the backup, or does not")
			}
			h.fails = false
			_ = m.Obey(both)
			return m, h
		}

		if _, h := backup(false); h.stored.Backup || h.stored.View.Number != 0 {
			t.Errorf("without files it stores %+v", h.stored)
		}
		m, h := backup(true)
		if !h.stored.Backup || h.stored.Content != Nothing || m.Report().Was != (Proc{}) {
			t.Errorf("it stores %+v, and reports %+v", h.stored, m.Report())
		}
		stored := h.stored
		if must(m.Obey(without)); h.stored.Backup || m.Role() != Replaced {
			t.Errorf("left out it stores %+v, and is %v", h.stored, m.Role())
		}

		m, _ = begin(stored, true)
		if r := m.Report(); r.Was != b || r.Role != Joining || m.Empty() {
			t.Errorf("the next process reports %+v", r)
		}
		if err := m.Attach(a, 2, 3); !errors.Is(err, ErrTaken) {
			t.Errorf("it takes changes: %v", err)
		}
		if must(m.Obey(View{Number: 3, Primary: a, Backup: b})); m.Report().Was != b {
			t.Error("its files count no more, and a view says so of none")
		}
		without.Number = 4
		must(m.Obey(without))
		if must(m.Attach(a, 2, 4)); m.Report().Was != (Proc{}) || m.Role() != Joining {
			t.Errorf("it is %+v", m.Report())
		}

		for _, lacks := range []bool{false, true} {
			h := &toyHost{durable: true, lacks: lacks}
			if m, err := New(p, "b", stored, h); err != nil || m.Report().MayLack != lacks {
				t.Errorf("files that may lack something: %v; it reports %+v, %v", lacks, m.Report(), err)
			}
			primary, err := New(p, "a", State{Process: 1, First: 1, View: both, Content: Served}, h)
			if err != nil || primary.Report().MayLack != lacks {
				t.Errorf("content that may lack something: %v; it reports %+v, %v", lacks, primary.Report(), err)
			}
			if must(primary.Obey(without)); primary.Report().MayLack || primary.Role() != Primary {
				t.Errorf("it serves and reports %+v", primary.Report())
			}
		}

		m, h = begin(stored, true)
		begun := p.Now()
		h.damaged = true
		if m.Obey(named) == nil || m.Report().Was != b || m.Role() != Joining {
			t.Errorf("with damaged files it is %+v", m.Report())
		}
		h.damaged = false
		must(m.Obey(named))
		if want := []string{"restore", "close", "save", "prepare", "save"}; !slices.Equal(h.asked, want) || p.Now()-begun < time.Second {
			t.Errorf("it did %v in %v, not %v", h.asked, p.Now()-begun, want)
		}
		if m.Role() != Primary || !m.MayAnswer(9) || h.stored.Backup || h.stored.Content != Served {
			t.Errorf("it is %v, and stores %+v", m.Role(), h.stored)
		}

		m, h = begin(stored, true)
		h.damaged = true
		if m.Obey(named) == nil {
			t.Error("it serves damaged files")
		}
		if must(m.Obey(without)); m.Role() != Replaced {
			t.Error("it goes on with a memory that may have a part of its files")
		}
		m, h = backup(true)
		h.fails = true
		if m.Obey(View{Number: 3, Primary: b, Earlier: a}) == nil || m.Role() != Opening {
			t.Errorf("it opens without storing that: %v", m.Role())
		}
		h.fails = false
		if must(m.Obey(without)); m.Role() != Replaced || h.stored.Backup {
			t.Errorf("left out while it opened it stores %+v", h.stored)
		}
		m, _ = begin(h.stored, true)
		if must(m.Obey(View{Number: 5, Primary: a})); m.Attach(a, 3, 5) != nil {
			t.Errorf("it never joins again: %+v", m.Report())
		}
		m, h = backup(true)
		must(m.Distrust())
		if err := m.Obey(View{Number: 3, Primary: a, Backup: b}); !errors.Is(err, ErrReplaced) || h.stored.Backup {
			t.Errorf("a backup that differs obeys: %v, and stores %+v", err, h.stored)
		}
		if m, _ = begin(stored, false); m.Report().Was != (Proc{}) || !m.Empty() {
			t.Error("without files it has been a backup")
		}
	})
}
