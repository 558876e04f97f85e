package volumes

import "time"

// Pod is a pod of a volume as observed.
type Pod struct {
	// Name is its UID.
	Name string

	// Version is that of the pod's object, read before the record.
	Version string

	// Gone says that the pod and its memory do not exist any more.
	Gone bool

	// Moving says that the copy shall be elsewhere: its node is drained, or its template changed.
	Moving bool

	// Report is nil if the pod did not answer. Refuses says that its address refused the
	// connection: its process has ended, as far as networks tell the truth.
	Report  *Report
	Refuses bool
}

// Observed is everything that Step decides by. Reports may be old, and so may the record.
type Observed struct {
	Now    time.Duration // by a monotonic clock
	Record View
	Copies int // wanted: 1 or 2
	Pods   []Pod

	// SuspectAfter is how long a process must be missed before it is replaced.
	SuspectAfter time.Duration

	// JoinBackoff is how long a copy may not join again after a join that failed. It doubles with
	// each time in a row, up to 32 times as long. Each join costs a copy of the whole memory, and
	// each loss of a backup holds answers up for SuspectAfter.
	JoinBackoff time.Duration

	// Memory is what the last step returned; zero for the first.
	Memory Memory
}

// Status of a volume.
type Status string

// Values of Status.
const (
	InSync    Status = "InSync"    // as many copies as wanted have all that was answered
	Copying   Status = "Copying"   // a copy joins
	Alone     Status = "Alone"     // no other copy is there to join
	Switching Status = "Switching" // another primary is about to serve
	Undecided Status = "Undecided" // a process is missed, and it is not known which one can go on
	Conflict  Status = "Conflict"  // a server obeyed a view that the record does not have
	Lost      Status = "Lost"      // nobody has the content any more
)

// Join says that a copy is to join the primary.
type Join struct{ Primary, Copy Proc }

// Actions are what to do next, in the order of the fields. Each is safe to repeat, and safe if the
// operator dies before or after it.
type Actions struct {
	// Record is the view that replaces the observed one, unless nil. Before, the pods that it names
	// are marked, which changes the versions of their objects. If any of that fails none of the
	// other actions may be done.
	Record *View
	Reason string // why, for messages

	// Tell are the pods that have to hear of the observed record.
	Tell []string

	// Join and Stop are asked of the primary's pod, with the number of the observed record.
	Join *Join
	Stop string

	// MakePods is how many pods to make. DeletePods can be deleted, on condition that their objects
	// have the observed versions. A pod that was named since was marked, so it is not deleted,
	// however old the observation is.
	MakePods   int
	DeletePods []Pod

	Status  Status
	Waiting string // what is waited for, for messages; empty if nothing is

	Memory Memory
}

// step is one decision.
type step struct {
	Observed
	a Actions
}

// Step decides the next actions.
func Step(o Observed) Actions {
	s := &step{Observed: o}
	s.a.Memory = o.Memory.next(o)
	s.joined()
	for _, p := range o.Pods {
		if p.Report != nil && p.Report.View.Number > o.Record.Number {
			s.a.Status, s.a.Waiting = Conflict, "pod "+p.Name+" obeyed a view above the record"
			return s.a
		}
	}
	s.decide()
	if s.a.Record == nil {
		s.tell()
		s.pods()
	}
	return s.a
}

// pod returns the pod that exists by a name; nil if there is none.
func (s *step) pod(name string) *Pod {
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Name == name && !p.Gone {
			return p
		}
	}
	return nil
}

// ended reports whether a named process is known to have ended, and its content to be gone: its pod
// does not exist, a later process of it has nothing, or one has begun the volume anew. A process
// that has heard of the record and has nothing is a later one, whatever its number is: that comes
// from a clock where the memory was lost. One that has begun anew lost its memory and was told the
// first view late, or none yet if its pod never had a name. It serves in that one, and found
// nothing of the named process. Of an earlier program, which does not say so, it is known beside a
// backup: it serves in a lower view and waits for nobody, and a process that promised to wait for
// the record's backup is stopped when it begins again.
func (s *step) ended(named Proc) bool {
	p := s.pod(named.Pod)
	if p == nil {
		return true
	}
	r := p.Report
	if r == nil {
		return false
	}
	anew := r.Proc != named && r.Role.holds() && r.View.Number <= 1 && s.Record.Number > 1 && !stands(r.First, named.Process, r.Proc.Process) ||
		s.Record.Backup != Proc{} && r.Proc != named && r.Role == Primary && r.View.Number < s.Record.Number && !r.Waits
	empty := r.Role == Joining && r.Proc != named && s.Record.Number > 1 && r.View.Number == s.Record.Number
	return r.Role == Replaced && r.Proc == named || r.Proc.Process > named.Process && !r.Role.holds() || empty || anew
}

func (s *step) record(primary, backup Proc, reason string) {
	s.a.Record = &View{Number: s.Record.Number + 1, Primary: primary, Backup: backup}
	if primary.Pod == s.Record.Backup.Pod {
		s.a.Record.Earlier = s.Record.Primary
	}
	s.a.Reason = reason
	s.a.Status = Switching
}

func (s *step) wait(status Status, what string) { s.a.Status, s.a.Waiting = status, what }

func (s *step) decide() {
	switch {
	case s.Record.Number == 0:
		s.first()
	case s.Record.Backup == Proc{}:
		s.alone(s.pod(s.Record.Primary.Pod))
	default:
		s.mirrored(s.pod(s.Record.Primary.Pod), s.pod(s.Record.Backup.Pod))
	}
}

// first names the pod that has served the volume without a view, since it never had another copy.
// Else it names a pod that begins with an empty memory. Whichever process of it hears of the view
// first does.
func (s *step) first() {
	for _, p := range s.Pods {
		if r := p.Report; r != nil && !p.Gone && r.Role == Primary && r.View.Number == 0 {
			s.record(Proc{Pod: p.Name}, Proc{}, "the volume had one pod so far")
			return
		}
	}
	for _, p := range s.Pods {
		if r := p.Report; r != nil && !p.Gone && !p.Moving && r.Role == Joining {
			s.record(Proc{Pod: p.Name}, Proc{}, "the volume is new")
			return
		}
	}
	s.wait(Alone, "no pod is ready")
}

// mirrored decides while a primary has a backup. p and b are their pods; nil if they are gone.
func (s *step) mirrored(p, b *Pod) {
	primary, backup := s.Record.Primary, s.Record.Backup
	primaryEnded, backupEnded := s.ended(primary), s.ended(backup)
	if p != nil && p.Report != nil && p.Report.Role.holds() {
		primary = p.Report.Proc
	}
	files := backupEnded && b != nil && b.Report != nil && b.Report.Was == backup
	lacks := p != nil && p.Report != nil && p.Report.MayLack
	missed := b != nil && b.Report != nil && b.Report.Role == Backup && b.Report.Misses >= s.SuspectAfter
	switch {
	case primaryEnded && files:
		s.record(b.Report.Proc, Proc{}, "both processes have ended, and the primary has nothing any more")
	case primaryEnded && backupEnded:
		s.wait(Lost, "both copies are gone")
	case files && p.Report == nil:
		s.wait(Undecided, "pod "+p.Name+" does not answer; if what it had is gone for good, pod "+b.Name+" goes on with its files")
	case files && lacks && !b.Report.MayLack:
		s.record(b.Report.Proc, Proc{}, "both processes have ended, and the primary's files may lack what was answered last")
	case lacks && b != nil && b.Report == nil:
		s.wait(Undecided, "pod "+p.Name+" may lack what was answered last, and pod "+b.Name+" does not answer, which may have everything; bring that back, or delete it if what it had is gone for good")
	case backupEnded:
		s.record(primary, Proc{}, "the backup is gone")
	case primaryEnded:
		s.record(backup, Proc{}, "the primary is gone")
	case p.Report != nil && p.Report.Role == Stopped:
		switch {
		case b.Report != nil && b.Report.Role == Backup:
			s.record(backup, Proc{}, "the primary has stopped")
		case b.Report != nil:
			// it has lost its memory, and perhaps the number of its process with it
			s.record(primary, Proc{}, "the primary has stopped, and its backup has nothing")
		case s.isMissed(b):
			s.record(primary, Proc{}, "the primary has stopped, and its backup does not answer")
		default:
			s.wait(Switching, "pod "+b.Name+" does not answer")
		}
	case p.Report == nil && s.hasEnded(p, b, Backup):
		s.record(backup, Proc{}, "the primary's process has ended")
	case p.Report == nil:
		if missed && (s.isMissed(p) || s.isLongMissed(p, b)) {
			s.record(backup, Proc{}, "neither the operator nor the backup reaches the primary")
			return
		}
		s.wait(Undecided, "pod "+p.Name+" does not answer")
	case p.Report.Role == Joining && missed:
		s.record(backup, Proc{}, "the primary has lost its memory")
	case p.Report.View.Number < s.Record.Number || p.Report.Role != Primary:
		s.wait(Switching, "pod "+p.Name+" has not heard of the view")
	default:
		s.served(p, b)
	}
}

// served decides while a primary with a backup serves in the recorded view.
func (s *step) served(p, b *Pod) {
	r := p.Report
	switch {
	case r.InSync && !s.ended(r.Joins):
		s.record(r.Proc, r.Joins, "another copy has taken the backup's place")
	case r.Misses >= s.SuspectAfter || r.Waits && s.ended(r.Joins):
		s.lose(b.Name)
		s.record(r.Proc, Proc{}, "the primary does not reach its backup")
	case s.hasEnded(b, p, Primary):
		s.record(r.Proc, Proc{}, "the backup's process has ended")
	case p.Moving && !b.Moving:
		s.a.Stop = p.Name
		s.wait(Switching, "pod "+p.Name+" stops")
	case s.Copies < 2 && !p.Moving:
		s.record(r.Proc, Proc{}, "one copy is wanted")
	case b.Moving && r.Joins == Proc{} && s.stranded(r):
		s.record(r.Proc, s.Record.Backup, "a copy has changes of a stream that does not go on")
	case b.Moving:
		s.join(p)
	default:
		s.wait(InSync, "")
	}
}

// stranded reports whether a copy that no view names has heard of the recorded view and takes the
// changes of a join that the primary has ended. A higher view ends the copy's process. One that was
// dropped joins again after a while.
func (s *step) stranded(primary *Report) (is bool) {
	for _, q := range s.Pods {
		r := q.Report
		if r == nil || q.Gone || r.View.Number != s.Record.Number || r.Source == (Proc{}) || s.Record.names(r.Proc) || r.Source == primary.Proc && r.Proc == primary.Joins {
			continue
		}
		if is = true; r.Source == primary.Proc {
			s.lose(q.Name)
		}
	}
	return is
}

// join lets a copy join the primary: the one that already does, if it answers, or a free one.
func (s *step) join(p *Pod) {
	var free *Proc
	for i := range s.Pods {
		q := &s.Pods[i]
		if q.Gone || q.Moving || q.Report == nil || q.Report.Role != Joining && q.Report.Role != Backup || s.Record.names(q.Report.Proc) {
			continue
		}
		if r := q.Report; r.Proc == p.Report.Joins {
			s.wait(Copying, "pod "+q.Name+" gets its copy")
			return
		} else if r.Source == (Proc{}) && r.Was == (Proc{}) && free == nil && s.mayJoin(q.Name) {
			free = &r.Proc
		}
	}
	if free == nil || p.Report.Waits {
		s.wait(Alone, "no pod is ready for a copy")
		return
	}
	s.a.Join = &Join{p.Report.Proc, *free}
	s.wait(Copying, "pod "+free.Pod+" gets its copy")
}

// tell names the pods that have to hear of the record: the primary first, and the others once it
// serves.
func (s *step) tell() {
	if s.Record.Number == 0 {
		return
	}
	serves := false
	for _, p := range s.Pods {
		if r := p.Report; r != nil && !p.Gone && p.Name == s.Record.Primary.Pod {
			serves = r.View.Number == s.Record.Number && r.Role.holds()
			if !serves {
				s.a.Tell = append(s.a.Tell, p.Name)
			}
		}
	}
	for _, p := range s.Pods {
		if r := p.Report; serves && r != nil && !p.Gone && p.Name != s.Record.Primary.Pod && r.View.Number < s.Record.Number {
			s.a.Tell = append(s.a.Tell, p.Name)
		}
	}
}

// pods makes pods that are missing, and deletes those that are too many.
func (s *step) pods() {
	primary := s.pod(s.Record.Primary.Pod)
	serves := primary != nil && primary.Report != nil && primary.Report.View.Number == s.Record.Number && primary.Report.Role.holds()
	wanted := max(1, s.Copies)
	stay := 0
	for _, p := range s.Pods {
		if !p.Gone && !p.Moving {
			stay++
		}
	}
	if stay < wanted {
		s.a.MakePods = wanted - stay
	}
	if !serves || s.Record.Number == 0 {
		return
	}
	for _, p := range s.Pods {
		needed := p.Gone || p.Name == s.Record.Primary.Pod || p.Name == s.Record.Backup.Pod || p.Name == primary.Report.Joins.Pod
		switch {
		case needed:
		case p.Moving:
			s.a.DeletePods = append(s.a.DeletePods, p)
		case stay > wanted:
			stay--
			s.a.DeletePods = append(s.a.DeletePods, p)
		}
	}
}
