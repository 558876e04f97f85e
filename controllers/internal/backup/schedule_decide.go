package backup

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// newestTime is the newest of some times that is not after now; zero = there is none. A time in the
// future is of a clock that was wrong, and the schedule does not wait until then.
func newestTime(now time.Time, times ...time.Time) (newest time.Time) {
	for _, t := range times {
		if t.After(newest) && !t.After(now) {
			newest = t
		}
	}
	return newest
}

// latest is the newest time of a schedule after one time and not after another; zero = there is
// none. It looks at ever longer times before now, so that it never counts through more than the
// times of one such span: a schedule of every minute that was away for a year costs an hour's
// times.
func latest(s cron.Schedule, after, now time.Time) (found time.Time) {
	const day = 24 * time.Hour
	for _, span := range []time.Duration{time.Hour, day, 32 * day, 367 * day, 5 * 366 * day} {
		from := now.Add(-span)
		if from.Before(after) {
			from = after
		}
		for t := s.Next(from); !t.IsZero() && !t.After(now); t = s.Next(t) {
			found = t
		}
		if !found.IsZero() || from.Equal(after) {
			break
		}
	}
	return found
}

// scheduleView is what was gathered about a schedule.
type scheduleView struct {
	spec  *dmv1.DMBackupScheduleSpec
	times cron.Schedule
	since time.Time // the time of the newest backup that was made or missed, or its creation
	now   time.Time
	// spread is how much later than at its times this schedule's backups are made
	spread time.Duration

	backups []scheduledBackup
}

// scheduledBackup is a backup of a schedule.
type scheduledBackup struct {
	name     string
	index    string    // by name
	identity string    // of the incarnation of the index that was dumped; empty = not known
	keys     int64     // of a complete one
	at       time.Time // for which it was made, by the operator's clock
	begun    time.Time // by the API server's clock
	complete bool
	failed   bool
	going    bool // it is being deleted
	broken   bool // its result cannot be read: it is left alone
	copied   bool // its artifact is that of another one
}

func (b *scheduledBackup) active() bool { return !b.complete && !b.failed && !b.going && !b.broken }

// scheduleActions is what is to be done.
type scheduleActions struct {
	run    time.Time // make the backup of this time; zero = none
	missed time.Time // this one was not made in time, and will not be
	remove []string  // delete these backups
	next   time.Time // look again then

	reason, message string // of the condition Scheduled
}

// spreadOf is how much later than at its times the backups of a schedule are made: schedules of the
// same times, of which a cluster may have hundreds, do not all begin at once. It follows from the
// UID, so it is the same each time, and two backups of a schedule are as far apart as their times.
func spreadOf(s *dmv1.DMBackupSchedule) time.Duration {
	if s.Spec.SpreadSeconds == 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(s.UID))
	return time.Duration(h.Sum64()%uint64(s.Spec.SpreadSeconds)) * time.Second
}

// next is when the next backup is made.
func (v *scheduleView) next() time.Time { return v.times.Next(v.now.Add(-v.spread)).Add(v.spread) }

// decideSchedule says which backup is to be made now, and which are to be deleted.
//
// Of several times that passed, the newest counts. A backup that is later than
// startingDeadlineSeconds is missed. One that is due while an earlier one is not over waits with
// Forbid, and is missed when its deadline is over or the next one is due.
func decideSchedule(v scheduleView) (a scheduleActions) {
	a.reason, a.remove = dmv1.ReasonScheduled, expired(v)
	now := v.now.Add(-v.spread) // by which the schedule's times are judged
	due := latest(v.times, v.since, now)
	if v.spec.Suspend {
		a.reason, a.message = dmv1.ReasonSuspended, "spec.suspend is set"
		a.missed = due
		return a
	}
	a.next = v.next()
	if due.IsZero() {
		return a
	}
	deadline := time.Duration(v.spec.StartingDeadlineSeconds) * time.Second
	if late := now.Sub(due); deadline > 0 && late > deadline {
		a.missed, a.reason = due, dmv1.ReasonMissed
		a.message = fmt.Sprintf("the backup of %s was not made within %v", due.UTC().Format(time.RFC3339), deadline)
		return a
	}
	var active []string
	for _, b := range v.backups {
		if b.active() {
			active = append(active, b.name)
		}
	}
	switch {
	case len(active) == 0, v.spec.ConcurrencyPolicy == dmv1.ConcurrencyAllow:
		a.run = due
	case v.spec.ConcurrencyPolicy == dmv1.ConcurrencyReplace:
		a.run, a.remove = due, append(a.remove, active...)
	default:
		a.reason = dmv1.ReasonStillRunning
		a.message = fmt.Sprintf("the backup of %s waits for %s", due.UTC().Format(time.RFC3339), strings.Join(active, ", "))
		if end := due.Add(v.spread + deadline); deadline > 0 && end.Before(a.next) {
			a.next = end.Add(time.Second)
		}
	}
	return a
}
