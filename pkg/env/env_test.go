package env

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/invariants"
)

func TestEventRemembersOneSet(t *testing.T) {
	e := Real().NewEvent()
	if e.Wait(0) {
		t.Fatal("a new event is set")
	}
	e.Set()
	e.Set()
	if !e.Wait(0) {
		t.Fatal("Set before Wait was lost")
	}
	if e.Wait(time.Millisecond) {
		t.Fatal("two Sets woke two Waits")
	}
}

func TestEventWakesWaiter(t *testing.T) {
	w := Real()
	for range 1000 {
		e := w.NewEvent()
		shared := 0
		w.Go("setter", func() { shared = 7; e.Set() })
		if !e.Wait(Forever) || shared != 7 {
			t.Fatal("the write before Set is not seen after Wait")
		}
	}
}

func TestWaitGroup(t *testing.T) {
	w := Real()
	g := NewWaitGroup(w)
	if !g.Wait(0) {
		t.Fatal("an empty group is not done")
	}
	hold := w.NewEvent()
	var ended atomic.Int32
	g.Go("held", func() { hold.Wait(Forever); ended.Add(1) })
	for range 10 {
		g.Go("member", func() { ended.Add(1) })
	}
	if g.Wait(time.Millisecond) {
		t.Fatal("the group is done while a member runs")
	}
	hold.Set()
	if !g.Wait(Forever) || ended.Load() != 11 {
		t.Fatalf("the group ended with %d members of 11", ended.Load())
	}
}

func TestDeadline(t *testing.T) {
	w := Real()
	if Deadline(w, Forever) != Forever || Remaining(w, Forever) != Forever {
		t.Error("Forever does not stay Forever")
	}
	d := Deadline(w, time.Hour)
	if r := Remaining(w, d); r > time.Hour || r < 59*time.Minute {
		t.Errorf("an hour from now is %v away", r)
	}
	if Remaining(w, w.Now()-1) != 0 {
		t.Error("a past deadline has time left")
	}
}

// TestWaitAllocatesNothing: waits with a limit share a timer, and one that ended does not end the
// next one.
func TestWaitAllocatesNothing(t *testing.T) {
	const runs = 1000
	e, back := Real().NewEvent(), Real().NewEvent()
	e.Wait(time.Nanosecond)
	Real().Go("setter", func() {
		for range runs + 1 { // AllocsPerRun warms up with one
			back.Wait(Forever)
			e.Set()
		}
	})
	n := testing.AllocsPerRun(runs, func() {
		if e.Wait(time.Nanosecond) {
			t.Error("an event that nobody set is set")
		}
		back.Set()
		if !e.Wait(time.Hour) {
			t.Error("a wait of an hour ended with that of a nanosecond")
		}
	})
	if n >= 1 {
		t.Errorf("%v allocations", n)
	}
}

// TestOneWaiter: two goroutines that wait for one event would share its timer.
func TestOneWaiter(t *testing.T) {
	if !invariants.Enabled {
		t.Log("without invariants nobody checks it")
		return
	}
	e, ended := Real().NewEvent(), Real().NewEvent()
	Real().Go("waiter", func() { e.Wait(Forever); ended.Set() })
	for !e.(*realEvent).waits.Load() {
		Real().Yield()
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a second goroutine waits for an event")
			}
		}()
		e.Wait(time.Millisecond)
	}()
	e.Set()
	ended.Wait(Forever)
	if e.Wait(time.Millisecond) { // a third one may, when the others have ended
		t.Error("an event that nobody set is set")
	}
}
