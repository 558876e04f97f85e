package memorypool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	recording "k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// tells gives the operator of m an event recorder as it has on Kubernetes, and returns what waits
// for some events and says them, sorted.
func (m *movingPool) tells() (said func(n int) string) {
	m.t.Helper()
	b := recording.NewBroadcaster(nil)
	m.t.Cleanup(b.Shutdown)
	all := make(chan *eventsv1.Event, 100)
	stop, err := b.StartEventWatcher(func(o runtime.Object) {
		if e, is := o.(*eventsv1.Event); is {
			all <- e
		}
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(stop)
	m.r.Events = report.ShortNotes{Events: b.NewRecorder(m.r.Scheme(), "test")}
	return func(n int) string {
		var texts []string
		for range n {
			select {
			case e := <-all:
				texts = append(texts, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Note))
			case <-time.After(10 * time.Second):
				m.t.Fatalf("only %q is said", texts)
			}
		}
		slices.Sort(texts)
		return strings.Join(texts, "; ")
	}
}

// TestVolumeEvents: people are told of a move, a fail-over and a copy that is dropped, also where
// the object of its pod is gone; and each is counted for the metrics.
func TestVolumeEvents(t *testing.T) {
	m := newMovingPool(t, interceptor.Funcs{})
	said := m.tells()
	m.copies(2)
	m.until(twice)
	m.settle()
	f := func(n int, want string) {
		t.Helper()
		if got := said(n); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	remove := func(name string) {
		t.Helper()
		p := &corev1.Pod{}
		p.Name, p.Namespace = name, "ns"
		if err := m.r.Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	remove("pool-1024")
	m.until("0:pool-0, 1:pool-1, pool-0 primary, pool-1 primary, pool-1025 backup, pool-1026 backup")
	f(1, "Warning CopyDropped: volume 0 goes on without its copy in pod pool-1024: the backup is gone")
	remove("pool-0")
	m.until("0:pool-1026, 1:pool-1, pool-1 primary, pool-1025 backup, pool-1026 primary, pool-1027 backup")
	f(1, "Warning FailedOver: volume 0 is served by pod pool-1026 in place of pod pool-0: the primary is gone")
	m.settle()
	m.ask("pool-1,pool-1027")
	m.until("0:pool-1026, 1:pool-1025, pool-1025 primary, pool-1026 primary, pool-1028 backup, pool-1029 backup")
	f(2, "Normal VolumeMoved: the copy of volume 0 moved from pod pool-1027 to pod pool-1028; Normal VolumeMoved: volume 1 moved from pod pool-1 to pod pool-1025")
	for volume, want := range []map[string]int{
		{dmv1.ReasonCopyDropped: 1, dmv1.ReasonFailedOver: 1, dmv1.ReasonVolumeMoved: 1},
		{dmv1.ReasonCopyDropped: 0, dmv1.ReasonFailedOver: 0, dmv1.ReasonVolumeMoved: 1},
	} {
		if got := m.r.volumeEvents.of(m.scope().pool.UID, volume); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("volume %d: %v, want %v", volume, got, want)
		}
	}
}
