package envtest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	opconfig "github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

const schedule = `
apiVersion: dmindex.io/v1alpha1
kind: DMBackupSchedule
metadata: {name: NAME, namespace: default}
spec:
  schedule: "0 * * * *"
  retention: {keepLast: 1, keepFailed: 1}
  template:
    indexName: demo
    storage: {volume: {claimName: dumps}}
`

// made are the backups of a schedule, the oldest first.
func (c *cluster) made(schedule string) (names []string) {
	c.t.Helper()
	list := &dmv1.DMBackupList{}
	if err := api.List(c.t.Context(), list, client.InNamespace(c.namespace), client.MatchingLabels{dmv1.LabelSchedule: schedule}); err != nil {
		c.t.Fatal(err)
	}
	for _, b := range list.Items {
		names = append(names, b.Name)
	}
	slices.Sort(names) // they have one length
	return names
}

// nth waits for n backups of a schedule and returns the newest.
func (c *cluster) nth(schedule string, n int) (newest string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("%d backups of %s", n, schedule), func() string {
		names := c.made(schedule)
		if len(names) != n {
			return fmt.Sprintf("there are %v", names)
		}
		newest = names[n-1]
		return ""
	})
	return newest
}

// hours is a clock that tests set forward.
type hours struct{ n atomic.Int64 }

func (h *hours) now() time.Time { return time.Now().Add(time.Duration(h.n.Load()) * time.Hour) }

// later sets the clock and has the schedule looked at.
func (c *cluster) later(h *hours, schedule string) {
	c.t.Helper()
	n := h.n.Add(1)
	s := &dmv1.DMBackupSchedule{}
	c.patch(schedule, s, func() { s.Labels = map[string]string{"looked-at": fmt.Sprint(n)} })
}

// TestBackupSchedule: a backup for each time, one after the other; old ones go with their
// artifacts, but never the last good one; and none is made twice when the status is lost.
func TestBackupSchedule(t *testing.T) {
	c := newCluster(t)
	clock := &hours{}
	c.now = clock.now
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	// Not near the hour: each time that the clock is set, one backup is due.
	minute := fmt.Sprintf("%d * * * *", (time.Now().Minute()+30)%60)
	c.create(strings.Replace(schedule, "0 * * * *", minute, 1), "hourly")
	c.later(clock, "hourly")
	first := c.nth("hourly", 1)
	c.later(clock, "hourly") // waits: the first one is at work
	c.eventually("the second one waits", func() string {
		s := &dmv1.DMBackupSchedule{}
		if err := c.get("hourly", s); err != nil {
			return err.Error()
		}
		if found := apimeta.FindStatusCondition(s.Status.Conditions, dmv1.ConditionScheduled); found == nil || found.Reason != dmv1.ReasonStillRunning || !strings.Contains(found.Message, first) {
			return fmt.Sprintf("%+v", s.Status)
		}
		return ""
	})
	c.attempt(c.job(first+"-dump"), 1, &good)
	c.end(first+"-dump", false)
	second := c.nth("hourly", 2)

	// Failed ones do not push the good one out.
	c.attempt(c.job(second+"-dump"), 1, &opconfig.BackupReport{Error: "no space left on device"})
	c.end(second+"-dump", true)
	c.phase(second, dmv1.BackupFailed, dmv1.ReasonDumpFailed, "no space left")
	c.later(clock, "hourly")
	third := c.nth("hourly", 3)
	if third == second {
		t.Fatalf("the newest is %s", third)
	}

	// The status is lost: nothing is made twice.
	s := &dmv1.DMBackupSchedule{}
	c.eventually("the status is lost", func() string {
		if err := c.get("hourly", s); err != nil {
			return err.Error()
		}
		s.Status = dmv1.DMBackupScheduleStatus{}
		if err := api.Status().Update(t.Context(), s); err != nil {
			return err.Error()
		}
		return ""
	})
	c.eventually("the status comes back", func() string {
		if err := c.get("hourly", s); err != nil || s.Status.LastComplete != first || !slices.Equal(s.Status.Active, []string{third}) || s.Status.Complete != 1 {
			return fmt.Sprintf("%v %+v", err, s.Status)
		}
		return ""
	})
	if got := c.made("hourly"); !slices.Equal(got, []string{first, second, third}) {
		t.Errorf("there are %v", got)
	}

	// The third one is good: the first one goes, with its artifact.
	c.attempt(c.job(third+"-dump"), 1, &good)
	c.end(third+"-dump", false)
	c.end(c.job(first+"-delete").Name, false)
	c.gone(first, &dmv1.DMBackup{})
	if got := c.made("hourly"); !slices.Equal(got, []string{second, third}) {
		t.Errorf("there are %v", got)
	}

	// Backups stay when their schedule goes.
	if err := api.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	c.gone("hourly", s)
	if err := c.get(third, &dmv1.DMBackup{}); apierrors.IsNotFound(err) {
		t.Error("a backup went with its schedule")
	}
}

// TestBackupScheduleThatCannotBeRead: the condition says what to write.
func TestBackupScheduleThatCannotBeRead(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	for name, bad := range map[string][2]string{
		"bad":   {"61 * * * *", "write five fields"},
		"never": {"0 0 30 2 *", "no such time"},
	} {
		c.create(strings.Replace(schedule, "0 * * * *", bad[0], 1), name)
		c.eventually("the condition", func() string {
			s := &dmv1.DMBackupSchedule{}
			if err := c.get(name, s); err != nil {
				return err.Error()
			}
			if found := apimeta.FindStatusCondition(s.Status.Conditions, dmv1.ConditionScheduled); found == nil || found.Reason != dmv1.ReasonBadSchedule || !strings.Contains(found.Message, bad[1]) {
				return fmt.Sprintf("%+v", s.Status)
			}
			return ""
		})
	}
	n := 0
	f := func(old, new, want string) {
		t.Helper()
		n++
		err := api.Create(t.Context(), parse(t, strings.Replace(schedule, old, new, 1), fmt.Sprintf("wrong-%d", n)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s -> %s: %v; want %q", old, new, err, want)
		}
	}
	for _, wrong := range []string{"@every 5m", " @every 1s", "\\t@every 1s", "nightly", "TZ=UTC 0 2 * * *", "0 2 * * * *"} {
		f("0 * * * *", wrong, "write five fields")
	}
	f("keepLast: 1", "keepLast: 0", "greater than or equal to 1")
	f("name: NAME", "name: "+strings.Repeat("a", 41), "at most 40 characters")
}
