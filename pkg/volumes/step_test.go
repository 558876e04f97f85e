package volumes

import (
	"slices"
	"testing"
	"time"
)

func proc(pod string, n uint64) Proc { return Proc{pod, n} }

// reports makes a pod that answered.
func reports(r Report) Pod { return Pod{Name: r.Proc.Pod, Version: "1", Report: &r} }

// TestStep: what is decided, case by case.
func TestStep(t *testing.T) {
	a, b, c := proc("a", 1), proc("b", 1), proc("c", 1)
	alone, both, after := View{Number: 4, Primary: a}, View{Number: 5, Primary: a, Backup: b}, View{Number: 6, Primary: b, Earlier: a}
	primary := func(v View, r Report) Pod {
		r.Proc, r.Role, r.View = v.Primary, Primary, v
		return reports(r)
	}
	backup := func(missed Span) Pod {
		return reports(Report{Proc: b, Role: Backup, View: both, Source: a, Misses: missed})
	}
	free := func(p Proc) Pod { return reports(Report{Proc: p, View: View{Number: 4}}) }
	fresh := func(p Proc) Pod { return reports(Report{Proc: p}) }
	moving := func(p Pod) Pod { p.Moving = true; return p }
	lacking := func(p Pod) Pod { p.Report.MayLack = true; return p }
	silent := func(name string) Pod { return Pod{Name: name, Version: "1"} }
	refuses := func(name string) Pod { return Pod{Name: name, Version: "1", Refuses: true} }
	stopped := func(p Proc, v View) Pod { return reports(Report{Proc: p, Role: Stopped, View: v}) }
	left := func(n uint64, v View, was Proc) Pod { return reports(Report{Proc: proc("b", n), View: v, Was: was}) }
	gone := Pod{Name: "a", Gone: true}
	read := View{Number: 6, Primary: proc("b", 2), Earlier: a}
	for _, x := range []struct {
		name   string
		record View
		copies int
		pods   []Pod
		want   Actions // as far as it is set
	}{
		{"a new volume", View{}, 2, []Pod{silent("a"), fresh(b)}, Actions{Record: &View{Number: 1, Primary: Proc{Pod: "b"}}}},
		{"a volume that had one pod", View{}, 1, []Pod{fresh(b), moving(reports(Report{Proc: a, Role: Primary}))}, Actions{Record: &View{Number: 1, Primary: Proc{Pod: "a"}}}},
		{"the first view was not heard", View{Number: 1, Primary: Proc{Pod: "a"}}, 1, []Pod{fresh(proc("a", 7))}, Actions{Tell: []string{"a"}, Status: Switching}},
		{"a copy joins", alone, 2, []Pod{primary(alone, Report{}), free(b)}, Actions{Join: &Join{a, b}, Status: Copying}},
		{"a pod is missing", alone, 2, []Pod{primary(alone, Report{})}, Actions{MakePods: 1, Status: Alone}},
		{"a copy has not all yet", alone, 2, []Pod{primary(alone, Report{Joins: b, Waits: true}), free(b)}, Actions{Status: Copying}},
		{"a copy is in sync", alone, 2, []Pod{primary(alone, Report{Joins: b, Waits: true, InSync: true}), free(b)}, Actions{Record: &View{Number: 5, Primary: a, Backup: b}}},
		{"in sync in an earlier view", View{Number: 5, Primary: a}, 2, []Pod{primary(alone, Report{Joins: b, Waits: true, InSync: true}), free(b)}, Actions{Tell: []string{"a"}, Status: Switching}},
		{"the copy that is waited for restarted", alone, 2, []Pod{primary(alone, Report{Joins: b, Waits: true, InSync: true}), free(proc("b", 2))}, Actions{Record: &View{Number: 5, Primary: a}}},
		{"a primary restarted that waits for a copy", alone, 2, []Pod{stopped(proc("a", 2), alone), free(b)}, Actions{Record: &View{Number: 5, Primary: proc("a", 2)}}},
		{"in sync", both, 2, []Pod{primary(both, Report{}), backup(0)}, Actions{Status: InSync}},
		{"the primary is silent, its backup is not", both, 2, []Pod{silent("a"), backup(0)}, Actions{Status: Undecided}},
		{"nobody hears the primary", both, 2, []Pod{silent("a"), backup(3 * time.Second)}, Actions{Record: &after}},
		{"the primary refuses", both, 2, []Pod{refuses("a"), backup(time.Second)}, Actions{Record: &after}},
		{"the primary refuses the operator alone", both, 2, []Pod{refuses("a"), backup(AskInterval)}, Actions{Status: Undecided}},
		{"the primary refuses, nobody hears the backup", both, 2, []Pod{refuses("a"), silent("b")}, Actions{Status: Undecided}},
		{"the primary refuses, the backup has nothing yet", both, 2, []Pod{refuses("a"), reports(Report{Proc: b, Source: a, Misses: 3 * time.Second})}, Actions{Status: Undecided}},
		{"the backup refuses", both, 2, []Pod{primary(both, Report{Misses: time.Second}), refuses("b")}, Actions{Record: &View{Number: 6, Primary: a}}},
		{"the backup refuses the operator alone", both, 2, []Pod{primary(both, Report{Misses: AskInterval}), refuses("b")}, Actions{Status: InSync}},
		{"nobody is heard", both, 2, []Pod{silent("a"), silent("b")}, Actions{Status: Undecided}},
		{"the primary's pod is gone", both, 2, []Pod{{Name: "a", Gone: true}, backup(0)}, Actions{Record: &after}},
		{"the backup's process restarted", both, 2, []Pod{primary(both, Report{}), free(proc("b", 2))}, Actions{Record: &View{Number: 6, Primary: a}}},
		{"the stream broke", both, 2, []Pod{primary(both, Report{Misses: 3 * time.Second}), backup(3 * time.Second)}, Actions{Record: &View{Number: 6, Primary: a}}},
		{"the primary restarted", both, 2, []Pod{stopped(proc("a", 2), both), backup(0)}, Actions{Record: &after}},
		{"the primary restarted, the backup is silent", both, 2, []Pod{stopped(proc("a", 2), both), silent("b")}, Actions{Record: &View{Number: 6, Primary: proc("a", 2)}}},
		{"both restarted", both, 2, []Pod{stopped(proc("a", 2), both), free(proc("b", 2))}, Actions{Record: &View{Number: 6, Primary: proc("a", 2)}}},
		{"the primary restarted, the backup's machine too", both, 2, []Pod{stopped(proc("a", 2), both), fresh(b)}, Actions{Record: &View{Number: 6, Primary: proc("a", 2)}}},
		{"the primary is gone for a while, the backup's machine restarted", both, 2, []Pod{silent("a"), reports(Report{Proc: b, Source: a, Misses: 3 * time.Second})}, Actions{Status: Undecided}},
		{"the primary's machine restarted", both, 2, []Pod{fresh(a), backup(3 * time.Second)}, Actions{Record: &after}},
		{"the primary moves", both, 2, []Pod{moving(primary(both, Report{})), backup(0)}, Actions{Stop: "a", MakePods: 1}},
		{"the backup moves", both, 2, []Pod{primary(both, Report{}), moving(backup(0)), free(c)}, Actions{Join: &Join{a, c}, Tell: []string{"c"}, Status: Copying}},
		{"the backup has moved", both, 2, []Pod{primary(both, Report{Joins: c, Waits: true, InSync: true}), moving(backup(0)), free(c)}, Actions{Record: &View{Number: 6, Primary: a, Backup: c}}},
		{"one copy is wanted", both, 1, []Pod{primary(both, Report{}), backup(0)}, Actions{Record: &View{Number: 6, Primary: a}}},
		{"only the new primary is told", after, 2, []Pod{stopped(a, both), backup(0)}, Actions{Tell: []string{"b"}, Status: Switching}},
		{"the old primary is told once it serves", after, 2, []Pod{stopped(a, both), primary(after, Report{})}, Actions{Tell: []string{"a"}}},
		{"the new primary ended before it served", after, 2, []Pod{stopped(a, both), free(proc("b", 2))}, Actions{Record: &View{Number: 7, Primary: a}}},
		{"the same, and its process says that it found what was stored", after, 2, []Pod{stopped(a, both), reports(Report{Proc: proc("b", 3), First: 1, View: View{Number: 4}})}, Actions{Record: &View{Number: 7, Primary: a}}},
		{"the new primary's machine restarted", after, 2, []Pod{stopped(a, both), reports(Report{Proc: proc("b", 9), First: 9})}, Actions{Tell: []string{"b"}, Status: Lost}},
		{"the only primary's machine restarted, and it began anew", View{Number: 4, Primary: proc("a", 5)}, 2, []Pod{reports(Report{Proc: proc("a", 9), First: 9, Role: Primary, View: View{Number: 1}}), free(b)}, Actions{Tell: []string{"a"}, Status: Lost}},
		{"the same, in a pod without a name", View{Number: 4, Primary: proc("a", 5)}, 2, []Pod{reports(Report{Proc: proc("a", 9), First: 9, Role: Primary}), free(b)}, Actions{Tell: []string{"a"}, Status: Lost}},
		{"the same, with a clock of before, and its process restarted", View{Number: 4, Primary: proc("a", 5)}, 2, []Pod{reports(Report{Proc: proc("a", 3), First: 2, Role: Stopped, View: View{Number: 1}}), free(b)}, Actions{Tell: []string{"a"}, Status: Lost}},
		{"the new primary ended before it served, and the earlier one began anew", View{Number: 6, Primary: b, Earlier: proc("a", 5)}, 2, []Pod{reports(Report{Proc: proc("a", 9), First: 9, Role: Stopped, View: View{Number: 1}}), reports(Report{Proc: proc("b", 3), First: 1, View: View{Number: 6}})}, Actions{Tell: []string{"b"}, Status: Lost}},
		{"the first primary restarted, and was told no view since", View{Number: 2, Primary: a}, 1, []Pod{reports(Report{Proc: proc("a", 3), First: 1, Role: Primary, View: View{Number: 1}})}, Actions{Tell: []string{"a"}, Status: Switching}},
		{"the same, with a clock of before", View{Number: 6, Primary: proc("b", 9), Earlier: a}, 2, []Pod{stopped(a, both), reports(Report{Proc: proc("b", 3), First: 2, View: View{Number: 6}})}, Actions{Tell: []string{"b"}, Status: Lost}},
		{"an earlier program lost the memory, and counts from a lower number: the new primary's", View{Number: 6, Primary: proc("b", 9), Earlier: a}, 2, []Pod{stopped(a, both), reports(Report{Proc: proc("b", 3), View: View{Number: 6}})}, Actions{Tell: []string{"b"}, Status: Lost}},
		{"the same, the only primary's, and it began anew", View{Number: 4, Primary: proc("a", 5)}, 2, []Pod{reports(Report{Proc: proc("a", 3), Role: Primary, View: View{Number: 1}}), free(b)}, Actions{Tell: []string{"a"}, Status: Lost}},
		{"the same, the primary's, beside a backup", View{Number: 5, Primary: proc("a", 9), Backup: b}, 2, []Pod{reports(Report{Proc: proc("a", 3), View: both}), backup(0)}, Actions{Record: &View{Number: 6, Primary: b, Earlier: proc("a", 9)}}},
		{"the same, the backup's", View{Number: 5, Primary: a, Backup: proc("b", 9)}, 2, []Pod{primary(both, Report{}), reports(Report{Proc: proc("b", 3), View: both})}, Actions{Record: &View{Number: 6, Primary: a}}},
		{"the new primary restarted and serves", after, 1, []Pod{free(proc("a", 2)), reports(Report{Proc: proc("b", 2), Role: Primary, View: after})}, Actions{Status: InSync, DeletePods: []Pod{free(proc("a", 2))}, Tell: []string{"a"}}},
		{"the new primary's memory is gone, the old one too", after, 2, []Pod{{Name: "a", Gone: true}, free(proc("b", 2))}, Actions{Tell: []string{"b"}, Status: Lost}},
		{"both ended, the primary's files are gone", both, 2, []Pod{gone, left(2, both, b)}, Actions{Record: &read}},
		{"both ended, the primary has nothing", both, 2, []Pod{fresh(proc("a", 2)), left(2, both, b)}, Actions{Record: &read}},
		{"both ended, the primary is not back", both, 2, []Pod{silent("a"), left(2, both, b)}, Actions{Status: Undecided}},
		{"both ended, both have files", both, 2, []Pod{stopped(proc("a", 2), both), left(2, both, b)}, Actions{Record: &View{Number: 6, Primary: proc("a", 2)}}},
		{"both ended, the primary's files may lack something", both, 2, []Pod{lacking(stopped(proc("a", 2), both)), left(2, both, b)}, Actions{Record: &read}},
		{"both ended, both files may lack something", both, 2, []Pod{lacking(stopped(proc("a", 2), both)), lacking(left(2, both, b))}, Actions{Record: &View{Number: 6, Primary: proc("a", 2)}}},
		{"the primary's files may lack something, the backup is not back", both, 2, []Pod{lacking(stopped(proc("a", 2), both)), silent("b")}, Actions{Status: Undecided}},
		{"the primary's files may lack something, the backup's are gone", both, 2, []Pod{lacking(stopped(proc("a", 2), both)), {Name: "b", Gone: true}}, Actions{Record: &View{Number: 6, Primary: proc("a", 2)}}},
		{"the primary's files may lack something, the backup goes on", both, 2, []Pod{lacking(stopped(proc("a", 2), both)), backup(0)}, Actions{Record: &after}},
		{"it ended before it had read the files, and the primary's may lack something", read, 2, []Pod{lacking(stopped(proc("a", 2), both)), left(3, both, b)}, Actions{Record: &View{Number: 7, Primary: proc("b", 3), Earlier: a}}},
		{"the same, and both may", read, 2, []Pod{lacking(stopped(proc("a", 2), both)), lacking(left(3, both, b))}, Actions{Record: &View{Number: 7, Primary: proc("a", 2)}}},
		{"the backup ended and has files", both, 2, []Pod{primary(both, Report{}), left(2, both, b)}, Actions{Record: &View{Number: 6, Primary: a}}},
		{"files of another process", both, 2, []Pod{gone, left(3, both, proc("b", 2))}, Actions{Status: Lost}},
		{"files that the view has left out", View{Number: 6, Primary: a}, 2, []Pod{gone, left(2, both, b)}, Actions{Status: Lost}},
		{"it ended before it had read the files", read, 2, []Pod{gone, left(3, both, b)}, Actions{Record: &View{Number: 7, Primary: proc("b", 3), Earlier: a}}},
		{"the same, the earlier primary is back", read, 2, []Pod{stopped(proc("a", 2), both), left(3, both, b)}, Actions{Record: &View{Number: 7, Primary: proc("a", 2)}}},
		{"a copy with files hears of the view before it joins", alone, 2, []Pod{primary(alone, Report{}), left(2, View{Number: 3}, b)}, Actions{Tell: []string{"b"}, Status: Alone}},
		{"the only copy is gone", alone, 2, []Pod{{Name: "a", Gone: true}, free(b)}, Actions{Status: Lost}},
		{"the only copy's machine restarted with a clock of before", View{Number: 4, Primary: proc("a", 5)}, 1, []Pod{reports(Report{Proc: proc("a", 3), View: View{Number: 4, Primary: proc("a", 5)}})}, Actions{Tell: []string{"a"}, Status: Lost}},
		{"the primary began anew by a late first view", both, 2, []Pod{reports(Report{Proc: proc("a", 9), Role: Primary, View: View{Number: 1, Primary: Proc{Pod: "a"}}}), backup(0)}, Actions{Record: &after}},
		{"the earlier primary began anew", after, 2, []Pod{reports(Report{Proc: proc("a", 9), Role: Primary, View: View{Number: 1, Primary: Proc{Pod: "a"}}}), free(proc("b", 2))}, Actions{Tell: []string{"b"}, Status: Lost}},
		{"a server knows more than the record", alone, 2, []Pod{primary(alone, Report{}), reports(Report{Proc: b, Role: Primary, View: after})}, Actions{Status: Conflict}},
		{"a pod that moved is deleted", alone, 1, []Pod{primary(alone, Report{}), moving(free(c))}, Actions{DeletePods: []Pod{moving(free(c))}}},
		{"the backup moves, and the other copy was dropped", both, 2, []Pod{primary(both, Report{}), moving(backup(0)), reports(Report{Proc: c, View: both, Source: a})}, Actions{Record: &View{Number: 6, Primary: a, Backup: b}}},
		{"the same, and it has not heard of the view yet", both, 2, []Pod{primary(both, Report{}), moving(backup(0)), reports(Report{Proc: c, View: alone, Source: a})}, Actions{Tell: []string{"c"}, Status: Alone}},
		{"the same, and another one joins", both, 2, []Pod{primary(both, Report{Joins: proc("d", 1)}), moving(backup(0)), reports(Report{Proc: c, View: both, Source: a}), reports(Report{Proc: proc("d", 1), View: both, Source: a})}, Actions{Status: Copying, DeletePods: []Pod{reports(Report{Proc: c})}}},
		{"a copy of a stream that has ended", alone, 2, []Pod{reports(Report{Proc: proc("a", 2), Role: Primary, View: alone}), reports(Report{Proc: b, Role: Backup, View: alone, Source: a})}, Actions{Record: &View{Number: 5, Primary: proc("a", 2)}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			o := Observed{Now: time.Hour, Record: x.record, Copies: x.copies, Pods: x.pods, SuspectAfter: 2 * time.Second}
			for _, p := range x.pods {
				o.Memory.silent = append(o.Memory.silent, silence{p.Name, time.Minute})
			}
			a, w := Step(o), x.want
			switch {
			case !same(a.Record, w.Record), !same(a.Join, w.Join):
				t.Errorf("records %v, joins %v; not %v, %v", a.Record, a.Join, w.Record, w.Join)
			case !slices.Equal(a.Tell, w.Tell), a.Stop != w.Stop, w.MakePods > 0 && a.MakePods != w.MakePods:
				t.Errorf("tells %v, stops %q, makes %d pods", a.Tell, a.Stop, a.MakePods)
			case !slices.EqualFunc(a.DeletePods, w.DeletePods, func(p, q Pod) bool { return p.Name == q.Name }):
				t.Errorf("deletes %v, not %v", a.DeletePods, w.DeletePods)
			case w.Status != "" && a.Status != w.Status:
				t.Errorf("is %s (%s), not %s", a.Status, a.Waiting, w.Status)
			}
		})
	}
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// TestStepServed: an earlier primary is not named again once the copy that took over was seen to
// serve, and does not say what its next process found: it lacks what was answered since.
func TestStepServed(t *testing.T) {
	a, b := proc("a", 1), proc("b", 1)
	o := Observed{Now: time.Hour, Record: View{Number: 6, Primary: b, Earlier: a}, Copies: 2, SuspectAfter: 2 * time.Second}
	o.Pods = []Pod{{Name: "a"}, reports(Report{Proc: b, Role: Primary, View: o.Record})}
	served := Step(o).Memory
	o.Pods = []Pod{reports(Report{Proc: a, Role: Stopped, View: View{Number: 5, Primary: a, Backup: b}}), reports(Report{Proc: proc("b", 2)})}
	if s := Step(o); s.Record == nil || s.Record.Primary != a {
		t.Errorf("nobody saw it serve: %+v", s)
	}
	o.Memory = served
	if s := Step(o); s.Record != nil || s.Status != Lost {
		t.Errorf("it served: records %v, is %s (%s)", s.Record, s.Status, s.Waiting)
	}
}

// TestStepBacksOff: a copy that is lost again and again joins less and less often, and one that was
// there for long does so at once.
func TestStepBacksOff(t *testing.T) {
	a, b := proc("a", 1), proc("b", 1)
	var memory Memory
	now := time.Hour
	lose := func() (waited time.Duration) {
		begun := now
		o := Observed{Copies: 2, SuspectAfter: 2 * time.Second, JoinBackoff: 10 * time.Second, Memory: memory, Now: now, Record: View{Number: 5, Primary: a, Backup: b}}
		o.Pods = []Pod{reports(Report{Proc: a, Role: Primary, View: o.Record, Misses: time.Minute}), reports(Report{Proc: b, Role: Backup, View: o.Record, Source: a})}
		s := Step(o)
		if s.Record == nil {
			t.Fatal("a backup that is not reached stays")
		}
		for o.Record = *s.Record; ; now += time.Second {
			o.Pods = []Pod{reports(Report{Proc: a, Role: Primary, View: o.Record}), reports(Report{Proc: proc("b", 2), View: o.Record})}
			o.Now, o.Memory = now, s.Memory
			if s = Step(o); s.Join != nil {
				memory = s.Memory
				return now - begun
			}
		}
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 320, 320} {
		if waited := lose(); waited != want*time.Second {
			t.Errorf("it joins after %v, not after %v s", waited, want)
		}
	}
	now += time.Hour
	if lose() != 10*time.Second {
		t.Error("what was long ago counts")
	}
}

// TestStepBacksOffJoins: a copy whose join ends without success joins again less and less often,
// whether the primary did not reach it, was refused, or dropped it. One that another copy took the
// place of, or whose primary is another process, is free at once.
func TestStepBacksOffJoins(t *testing.T) {
	a, b, c := proc("a", 1), proc("b", 1), proc("c", 1)
	view := View{Number: 4, Primary: a}
	var memory Memory
	now := time.Hour
	step := func(primary Proc, joins Proc, copies ...Pod) Actions {
		o := Observed{Now: now, Record: view, Copies: 2, SuspectAfter: 2 * time.Second, JoinBackoff: 10 * time.Second, Memory: memory}
		o.Pods = append(copies, reports(Report{Proc: primary, Role: Primary, View: view, Joins: joins}))
		s := Step(o)
		memory = s.Memory
		return s
	}
	free := func(p Proc) Pod { return reports(Report{Proc: p, View: view}) }
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 320, 320} {
		if s := step(a, Proc{}, free(b)); s.Join == nil {
			t.Fatalf("a free copy does not join: %s", s.Waiting)
		}
		step(a, b, free(b))
		begun := now
		for ; step(a, Proc{}, free(b)).Join == nil; now += time.Second {
		}
		if waited := now - begun; waited != want*time.Second {
			t.Errorf("a copy that was refused joins again after %v, not after %v s", waited, want)
		}
	}

	memory = Memory{}
	step(a, b, free(b))
	step(a, c, free(b), free(c))
	if s := step(proc("a", 2), Proc{}, free(b)); s.Join == nil {
		t.Errorf("another copy took its place, and it does not join: %s", s.Waiting)
	}
	step(a, b, free(b))
	if s := step(proc("a", 2), Proc{}, free(b)); s.Join == nil {
		t.Errorf("its primary is another process, and it does not join: %s", s.Waiting)
	}

	memory = Memory{}
	s := step(a, Proc{}, reports(Report{Proc: b, View: view, Source: a}))
	if s.Record == nil {
		t.Fatalf("a copy that was dropped goes on: %+v", s)
	}
	view = *s.Record
	if s := step(a, Proc{}, free(proc("b", 2))); s.Join != nil {
		t.Error("a copy that was dropped joins again at once")
	}
	now += 10 * time.Second
	if s := step(a, Proc{}, free(proc("b", 2))); s.Join == nil {
		t.Errorf("a copy that was dropped does not join again: %s", s.Waiting)
	}
}

// TestStepWaits: a pod is missed only once it has been silent for long, or for a moment if its
// backup says that it has been for twice as long.
func TestStepWaits(t *testing.T) {
	a, b := proc("a", 1), proc("b", 1)
	for misses, want := range map[time.Duration]time.Duration{3 * time.Second: 2 * time.Second, 4 * time.Second: unheard} {
		o := Observed{Record: View{Number: 5, Primary: a, Backup: b}, Copies: 2, SuspectAfter: 2 * time.Second, Pods: []Pod{
			{Name: "a"}, reports(Report{Proc: b, Role: Backup, View: View{Number: 5}, Source: a, Misses: misses}),
		}}
		for o.Now = time.Hour; o.Now < time.Hour+5*time.Second; o.Now += unheard / 2 {
			s := Step(o)
			if passed := o.Now - time.Hour; (s.Record != nil) != (passed >= want) {
				t.Fatalf("missed by its backup for %v, after %v: %+v", misses, passed, s)
			}
			o.Memory = s.Memory
		}
	}
}
