package volumes

// alone decides while the primary has no backup. p is its pod; nil if it is gone.
func (s *step) alone(p *Pod) {
	switch {
	case p == nil:
		s.wait(Lost, "the pod of the only copy is gone")
	case p.Report == nil:
		s.wait(Undecided, "pod "+p.Name+" does not answer")
	case s.Record.Number > 1 && s.ended(s.Record.Primary):
		s.restore(p.Report)
	case p.Report.View.Number < s.Record.Number:
		s.wait(Switching, "pod "+p.Name+" has not heard of the view")
	case p.Report.Role == Stopped:
		s.record(p.Report.Proc, Proc{}, "the primary waits for a copy that was not recorded")
	case p.Report.Role != Primary:
		s.wait(Switching, "pod "+p.Name+" does not serve yet")
	default:
		s.single(p)
	}
}

// restore names the earlier primary again: the process that was to open has ended, and a later one
// of its pod, which gave the report, shows that nobody has served in the recorded view. If it does
// not show that, the memory was lost, and the earlier primary may lack what was answered since. The
// later process is named if it has the files of a backup, which have all that was answered, and the
// earlier primary does not answer, or may lack something.
func (s *step) restore(later *Report) {
	q := s.pod(s.Record.Earlier.Pod)
	has := q != nil && q.Report != nil && q.Report.Role.holds() && (q.Report.Role != Primary || q.Report.Proc == s.Record.Earlier) &&
		stands(q.Report.First, s.Record.Earlier.Process, q.Report.Proc.Process)
	switch {
	case !s.neverServed(later):
		s.wait(Lost, "the memory of the process that took over is gone, and it may have served before")
	case has && (!q.Report.MayLack || later.Was == Proc{} || later.MayLack):
		s.record(q.Report.Proc, Proc{}, "the backup ended before it served")
	case later.Was != Proc{}:
		earlier := s.Record.Earlier
		s.record(later.Proc, Proc{}, "the backup ended before it served, and has its files")
		s.a.Record.Earlier = earlier
	case q == nil:
		s.wait(Lost, "the process that was to open has ended, and the earlier primary is gone")
	case q.Report == nil:
		s.wait(Undecided, "pod "+q.Name+" does not answer")
	default:
		s.wait(Lost, "the process that was to open has ended, and the earlier primary has nothing")
	}
}

// neverServed reports whether the primary of the record is known to have stored no content, and so
// never to have served: a later process of its pod, which has none, found what that one had stored.
// Of programs that do not say what they found, the operator goes by what it saw besides, as it did
// when they were written.
func (s *step) neverServed(later *Report) bool {
	if later.First == 0 && s.a.Memory.served == s.Record.Number {
		return false
	}
	return stands(later.First, s.Record.Primary.Process, later.Proc.Process)
}

// single decides while a primary without a backup serves in the recorded view.
func (s *step) single(p *Pod) {
	r := p.Report
	switch {
	case r.InSync && !s.ended(r.Joins):
		s.record(r.Proc, r.Joins, "a copy is in sync")
	case r.Waits && (s.ended(r.Joins) || r.Misses >= s.SuspectAfter):
		s.lose(r.Joins.Pod)
		s.record(r.Proc, Proc{}, "the copy that the primary waits for is gone")
	case s.stranded(r):
		s.record(r.Proc, Proc{}, "a copy has changes of a stream that does not go on")
	case s.Copies < 2 && !p.Moving:
		s.wait(InSync, "")
	default:
		s.join(p)
	}
}
