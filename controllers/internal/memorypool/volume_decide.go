package memorypool

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/volume"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Times of volumes.
const (
	// suspectAfter is how long a process must be missed before another one takes its place, unless
	// the pool says otherwise.
	suspectAfter = 2 * time.Second

	// longestSuspicion is the most that a pool may say of that, and what counts of one from before
	// that says more: all other limits between two copies are as long (mirror.DefaultLimit).
	longestSuspicion = 10 * time.Second

	// joinBackoff is how long a copy that was not reached may not join again, at first.
	joinBackoff = 10 * time.Second

	// volumeLook is when to look again at volumes of which something is waited for.
	volumeLook = 500 * time.Millisecond

	// volumeSoon is the same while a copy that a view names does not answer, up to this much longer
	// than it must be missed. Nothing else of its pool is looked at then: that takes seconds where
	// the API server is slow, and no change is answered before the next view.
	volumeSoon    = 250 * time.Millisecond
	volumeHurries = time.Second

	// acceptAfter is how long the primary must be silent before a backup that left its files may be
	// accepted in its place: an annotation that was left behind shall not do that when all pods
	// start again.
	acceptAfter = time.Minute

	// mostJoins is how many volumes of a pool send their memory to a copy at once.
	mostJoins = 4
)

// volumeScope is a volume that is not left as it is: it has a view, or is to be moved.
type volumeScope struct {
	number  int
	view    volume.View                     // recorded; number 0 = none yet
	copies  []*volumeCopy                   // that were made for it
	moves   map[string]bool                 // the copies that it is to leave, by UID
	reports map[string]servers.VolumeReport // of those that answered, by UID
	refuses map[string]bool                 // whose address refuses connections, by UID
	memory  volumes.Memory
	actions volumes.Actions

	podsStay bool // this look makes and deletes no pods any more
	renewed  bool // it leaves a pod for nothing but its old template

	fixed   string // why it cannot be moved; empty if it can
	refused string // why no pod could be made for a copy; empty if it could
}

// volumesToKeep are the volumes of the pool that are not left as they are. A pod is left that is
// being deleted, that somebody asked to move, that leaves its node, or that is old (leaveOld).
func (s *scope) volumesToKeep() (all []*volumeScope) {
	asked, paused := podNamesIn(s.pool.Annotations[dmv1.AnnotationMove]), s.pool.Spec.Paused
	byNumber := map[int]*volumeScope{}
	copies, numbers := s.copiesThere()
	for i, c := range copies {
		if number := numbers[i]; number >= 0 {
			v := byNumber[number]
			if v == nil {
				v = &volumeScope{number: number, view: s.record.Views[number], moves: map[string]bool{}, reports: map[string]servers.VolumeReport{}}
				byNumber[number] = v
			}
			v.copies = append(v.copies, c)
			if c.going() || !paused && (asked[c.name] || s.leavesNode(c, number)) {
				v.moves[c.uid] = true
			}
		}
	}
	for number, v := range byNumber {
		if v.view.Number == 0 {
			// Further pods of a volume without a view are of a decision that got lost.
			v.copies = slices.DeleteFunc(v.copies, func(c *volumeCopy) bool { return c.id() != number })
		}
		if len(v.copies) > 0 {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *volumeScope) int { return a.number - b.number })
	s.leaveOld(all)
	return slices.DeleteFunc(all, func(v *volumeScope) bool {
		leaves := func(c *volumeCopy) bool { return v.moves[c.uid] && !c.going() && !c.gone() }
		return v.view.Number == 0 && (s.copies() < 2 || paused) && !slices.ContainsFunc(v.copies, leaves)
	})
}

// copies is how many copies of each volume are wanted.
func (s *scope) copies() int { return copiesOf(s.pool, len(s.use.Replicated) > 0) }

// copiesOf is how many copies of each volume of a pool are wanted. An index with durability
// Replicated holds them at two.
func copiesOf(pool *dmv1.DMMemoryPool, replicated bool) int {
	if pool.Spec.Transport != dmv1.TransportRDMA && (pool.Spec.Copies > 1 || replicated) {
		return 2
	}
	return 1
}

// podNamesIn are the names in an annotation of a pool that names pods.
func podNamesIn(text string) map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		names[name] = true
	}
	return names
}

// suspicionOf is how long a process of a pool must be missed.
func suspicionOf(pool *dmv1.DMMemoryPool) time.Duration {
	if s := pool.Spec.SuspectAfterSeconds; s > 0 {
		return min(time.Duration(s)*time.Second, longestSuspicion)
	}
	return suspectAfter
}

// decide asks package volumes what to do next. copies are wanted. A volume that has no view gets
// one only if its server can have a copy.
func (v *volumeScope) decide(now time.Duration, pool *dmv1.DMMemoryPool, copies int, memory volumes.Memory) {
	o := volumes.Observed{Now: now, Record: v.view.Plain(), Copies: copies, SuspectAfter: suspicionOf(pool), JoinBackoff: joinBackoff, Memory: memory}
	// A paused pool has what it has. What failed over there gets another copy.
	if pool.Spec.Paused && v.view.Backup != nil {
		o.Copies = 2
	} else if pool.Spec.Paused && v.view.Number == 0 {
		o.Copies = 1
	}
	for _, c := range v.copies {
		seen := volumes.Pod{Name: c.uid, Version: c.version(), Gone: c.gone(), Moving: v.moves[c.uid], Refuses: v.refuses[c.uid] || c.away()}
		if r, answered := v.reports[seen.Name]; answered {
			seen.Report = &r.Report
			// Pods of earlier versions take no changes: they have copies, and cannot be one.
			seen.Moving = seen.Moving || r.Role == volumes.Joining && r.Mirror == ""
		}
		o.Pods = append(o.Pods, seen)
	}
	v.fixed = ""
	if v.view.Number == 0 && len(v.reports) == 0 {
		v.fixed = "its server does not answer, or its image knows no copies: use a newer one"
		v.actions = volumes.Actions{Status: volumes.Alone, Waiting: v.fixed, Memory: memory}
		return
	}
	v.actions = volumes.Step(o)
	since, silent := v.actions.Memory.SilentSince(v.view.Primary.UID)
	if v.actions.Status == volumes.Lost || v.actions.Status == volumes.Undecided && v.isBackup(v.lastCopy()) && silent && now-since >= acceptAfter {
		v.acceptCopy(podNamesIn(pool.Annotations[dmv1.AnnotationAcceptCopy]))
	}
	if join := v.actions.Join; join != nil {
		// A kubelet brings a new certificate within a minute. A copy that is not let in may join
		// again ever more seldom.
		p, c := v.reports[join.Primary.Pod].Identity, v.reports[join.Copy.Pod].Identity
		if p == "" || p != c {
			v.actions.Join, v.actions.Waiting = nil, "its pods have not read their certificates for copies yet"
		}
	}
	if v.actions.Status == volumes.Lost || !pool.DeletionTimestamp.IsZero() {
		v.actions.MakePods = 0
	}
}

// decideNext decides again by a view that was recorded just now, and the same reports: only what
// servers are told.
func (v *volumeScope) decideNext(view volume.View, now time.Duration, pool *dmv1.DMMemoryPool, copies int) {
	v.view, v.podsStay = view, true
	v.decide(now, pool, copies, v.memory)
	a := &v.actions
	a.Record, a.Join, a.Stop, a.MakePods, a.DeletePods = nil, nil, "", 0, nil
}

// misses is for how long a copy of the volume has not heard another one.
func (v *volumeScope) misses() (longest time.Duration) {
	for _, r := range v.reports {
		longest = max(longest, r.Misses)
	}
	return longest
}

// lastCopy is the copy that was cut off, or whose process ended and left its files, of a volume of
// which nothing else is left: that of the highest view. In that one an earlier primary has more
// than its copies. Nil if there is none.
func (v *volumeScope) lastCopy() *volumeCopy {
	var last *volumeCopy
	for _, c := range v.copies {
		r, answered := v.reports[c.uid]
		earlier := v.view.Earlier != nil && v.view.Earlier.UID == c.uid && (r.Role == volumes.Primary || r.Role == volumes.Stopped)
		if !answered || c.gone() || r.Role != volumes.Backup && r.Was == (volumes.Proc{}) && !earlier {
			continue
		}
		if last == nil || r.View.Number > v.reports[last.uid].View.Number || earlier && r.View.Number == v.reports[last.uid].View.Number {
			last = c
		}
	}
	return last
}

// isBackup reports whether a copy has the files of the recorded backup, whose process has ended.
func (v *volumeScope) isBackup(c *volumeCopy) bool {
	return c != nil && v.view.Backup != nil && v.reports[c.uid].Was == v.view.Backup.Plain()
}

// silent are the names of pods that may have content and do not answer.
func (v *volumeScope) silent() (names []string) {
	for _, c := range v.copies {
		if _, answered := v.reports[c.uid]; !answered && !c.gone() {
			names = append(names, c.name)
		}
	}
	return names
}

// acceptCopy lets a copy serve that may lack what was acknowledged last, if somebody asked for it.
// The volume is lost: no process that the record names has the content, and none gets it back. A
// primary whose pod was deleted by force may go on on a node that is cut off: whoever asks for this
// has seen to it that the node is down.
func (v *volumeScope) acceptCopy(asked map[string]bool) {
	c := v.lastCopy()
	if c == nil {
		return
	}
	if !asked[c.name] && v.isBackup(c) {
		v.actions.Waiting += ": delete the claim and the pod that are lost, or annotate the pool with " + dmv1.AnnotationAcceptCopy + "=" + c.name
		return
	}
	if !asked[c.name] {
		lacks := "last"
		if v.view.Earlier != nil && v.view.Earlier.UID == c.uid {
			lacks = "since view " + strconv.FormatUint(v.view.Number, 10) + " was recorded, in which pod " + v.view.Primary.Pod + " took its place"
		}
		v.actions.Waiting = "a copy in pod " + c.name + " is left, and may lack what was acknowledged " + lacks + ": annotate the pool with " + dmv1.AnnotationAcceptCopy + "=" + c.name + " to let it serve"
		if silent := v.silent(); len(silent) > 0 {
			v.actions.Waiting += "; what " + strings.Join(silent, ", ") + " may have beyond it is lost then: no answer comes from there"
		}
		return
	}
	proc := v.reports[c.uid].Proc
	v.actions.Record, v.actions.Reason = &volumes.View{Number: v.view.Number + 1, Primary: proc}, "somebody accepted a copy that may lack what was acknowledged last"
	if v.isBackup(c) {
		v.actions.Record.Earlier, v.actions.Reason = v.view.Primary.Plain(), "somebody says that the primary is lost, whose backup left its files"
	}
	v.actions.Status, v.actions.Waiting = volumes.Switching, ""
}

// useless are the copies that hold nothing that could be needed: their pods ended, or they never
// got the whole of a volume that is lost. That of the pod that answers is among them if no process
// of the volume has anything: then its indexes hear that it is lost, and another server takes its
// place. As long as a claim is there that the view names none is: another disk may be mounted in
// the place of its own.
func (v *volumeScope) useless() (copies []*volumeCopy) {
	empty := v.actions.Status == volumes.Lost
	joining := func(c *volumeCopy) bool {
		r, answered := v.reports[c.uid]
		return answered && r.Role == volumes.Joining && r.Was == (volumes.Proc{}) && v.actions.Status == volumes.Lost
	}
	for _, c := range v.copies {
		if c.claim != nil && slices.ContainsFunc(v.view.Named(), func(named volume.Proc) bool { return named.UID == c.uid }) {
			return nil
		}
		empty = empty && (c.gone() || joining(c))
	}
	for _, c := range v.copies {
		if !c.going() && (empty || c.uid != v.view.Primary.UID && (c.gone() || joining(c))) {
			copies = append(copies, c)
		}
	}
	return copies
}

// madeAt is when the newest further copy was made. A kubelet may refuse one pod after the other.
func (v *volumeScope) madeAt(now time.Time) (newest time.Time) {
	for _, c := range v.copies {
		o := c.objects()[0]
		if made := kube.Stamp(o, "", o.GetCreationTimestamp().Time, now); c.id() > build.MaxVolume && made.After(newest) {
			newest = made
		}
	}
	return newest
}

// nextRecord is the record with the views that are decided, and the volumes that get another one. A
// view that names a pod which is not seen is left for the next look.
func nextRecord(r volume.Record, all []*volumeScope) (next volume.Record, changed []*volumeScope) {
	next = volume.Record{Next: max(r.Next, build.MaxVolume+1), Views: map[int]volume.View{}}
	for number, v := range r.Views {
		next.Views[number] = v
	}
	for _, v := range all {
		if v.actions.Record == nil {
			continue
		}
		view, ok := v.named(*v.actions.Record)
		if !ok {
			continue
		}
		next.Views[v.number] = view
		changed = append(changed, v)
	}
	return next, changed
}

// named is a view with the names of its pods. It is false if a pod that may answer is not seen.
func (v *volumeScope) named(view volumes.View) (named volume.View, ok bool) {
	find := func(p volumes.Proc) *volume.Proc {
		if c := v.copyOf(p.Pod); c != nil {
			return &volume.Proc{Pod: c.name, UID: p.Pod, Process: p.Process}
		}
		return nil
	}
	primary := find(view.Primary)
	if primary == nil || view.Backup != (volumes.Proc{}) && find(view.Backup) == nil {
		return named, false
	}
	named = volume.View{Number: view.Number, Primary: *primary, Backup: find(view.Backup), Earlier: find(view.Earlier)}
	if view.Earlier != (volumes.Proc{}) && named.Earlier == nil {
		// its pod is gone
		named.Earlier = &volume.Proc{Pod: v.view.Primary.Pod, UID: view.Earlier.Pod, Process: view.Earlier.Process}
	}
	return named, true
}

// copyOf is a copy of the volume by its UID; nil if it is not seen.
func (v *volumeScope) copyOf(uid string) *volumeCopy {
	for _, c := range v.copies {
		if c.uid == uid {
			return c
		}
	}
	return nil
}

// podOf is the pod of a copy by the copy's UID; nil if it is not seen, or has none.
func (v *volumeScope) podOf(uid string) *corev1.Pod {
	if c := v.copyOf(uid); c != nil {
		return c.pod
	}
	return nil
}

// joining reports whether the primary sends its memory to a copy that is not in sync yet.
func (v *volumeScope) joining() bool {
	r := v.reports[v.view.Primary.UID]
	return r.Joins != (volumes.Proc{}) && !r.InSync
}
