package backup

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

var (
	descBackups = prometheus.NewDesc("dmindex_backups",
		"DMBackup objects of an index by schedule and phase; those that no schedule made have an empty one.", []string{"namespace", "index", "schedule", "phase"}, nil)
	descBackupFailed = prometheus.NewDesc("dmindex_backup_newest_failed",
		"1 if the newest backup of the index that is over has failed, 0 if it is complete; of each schedule, and of those that none made.", []string{"namespace", "index", "schedule"}, nil)
	descScheduleComplete = prometheus.NewDesc("dmindex_backup_schedule_last_complete_timestamp_seconds",
		"When the newest complete backup of the schedule was begun: the index can be loaded as it was then. Not shown before there is one.", []string{"namespace", "index", "schedule"}, nil)
	descScheduleCollapsed = prometheus.NewDesc("dmindex_backup_schedule_keys_collapsed",
		"1 if the newest complete backup of the schedule has a tenth of the keys of an earlier one, or fewer, else 0. Not shown before there is one.", []string{"namespace", "index", "schedule"}, nil)
	descScheduleDue = prometheus.NewDesc("dmindex_backup_schedule_due_timestamp_seconds",
		"By when the next backup of the schedule should be complete: the time that follows the newest complete one, or the making of the schedule, and its spec.template.timeoutSeconds, but at most until the time after that. Not shown while the schedule is suspended.",
		[]string{"namespace", "index", "schedule"}, nil)
)

// Descs are the descriptions of what Show shows.
func Descs() []*prometheus.Desc {
	return []*prometheus.Desc{descBackups, descBackupFailed, descScheduleComplete, descScheduleCollapsed, descScheduleDue}
}

// group is the backups of an index that one schedule made, or that none did.
type group struct{ namespace, index, schedule string }

// figures are what metrics say of a group.
type figures struct {
	phases map[dmv1.BackupPhase]int
	over   time.Time // when the newest one was begun that is complete or failed
	failed bool      // that one
}

// Show shows backups and schedules. What is being deleted is no backup any more.
func Show(backups []dmv1.DMBackup, schedules []dmv1.DMBackupSchedule, gauge func(*prometheus.Desc, float64, ...string)) {
	groups := map[group]*figures{}
	bySchedule := map[group][]scheduledBackup{}
	for i := range backups {
		b := &backups[i]
		g := group{b.Namespace, b.Spec.IndexName, b.Labels[dmv1.LabelSchedule]}
		f := groups[g]
		if f == nil {
			f = &figures{phases: map[dmv1.BackupPhase]int{}}
			groups[g] = f
		}
		s := scheduled(b)
		bySchedule[g] = append(bySchedule[g], s)
		f.phases[dmv1.BackupPhase(cmp.Or(string(b.Status.Phase), string(dmv1.BackupPending)))]++
		if s.going || !s.complete && !s.failed {
			continue
		}
		if f.over.IsZero() || s.begun.After(f.over) {
			f.over, f.failed = s.begun, s.failed && !s.complete
		}
	}
	for g, f := range groups {
		for phase, n := range f.phases {
			gauge(descBackups, float64(n), g.namespace, g.index, g.schedule, string(phase))
		}
		if !f.over.IsZero() {
			failed := 0.0
			if f.failed {
				failed = 1
			}
			gauge(descBackupFailed, failed, g.namespace, g.index, g.schedule)
		}
	}
	for i := range schedules {
		s := &schedules[i]
		index := s.Spec.Template.IndexName
		newest := byAge(bySchedule[group{s.Namespace, index, s.Name}])
		var complete time.Time
		if last := newestOf(newest, index); last != nil {
			complete = last.begun
			gauge(descScheduleComplete, float64(complete.Unix()), s.Namespace, index, s.Name)
			collapsed := 0.0
			if collapsedFrom(newest, index) != nil {
				collapsed = 1
			}
			gauge(descScheduleCollapsed, collapsed, s.Namespace, index, s.Name)
		}
		if !s.Spec.Suspend {
			gauge(descScheduleDue, float64(dueBackup(s, complete).Unix()), s.Namespace, index, s.Name)
		}
	}
}

// dueBackup is by when the next backup of a schedule should be complete. One whose times cannot be
// read makes none: it is late from the beginning.
func dueBackup(s *dmv1.DMBackupSchedule, complete time.Time) time.Time {
	since := s.CreationTimestamp.Time
	if complete.After(since) {
		since = complete
	}
	times, err := parseSchedule(&s.Spec)
	if err != nil {
		return since
	}
	spread := spreadOf(s)
	next := times.Next(since.Add(-spread))
	if next.IsZero() {
		return since
	}
	due := next.Add(time.Duration(s.Spec.Template.TimeoutSeconds) * time.Second)
	if after := times.Next(next); !after.IsZero() && after.Before(due) {
		due = after
	}
	return due.Add(spread)
}
