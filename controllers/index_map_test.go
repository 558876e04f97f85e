package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/serverstest"
	"github.com/dmindex/dmindex/pkg/partition"
)

// pod is one that runs and is ready.
func pod(name string, id int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{dmv1.LabelServerID: fmt.Sprint(id)}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1",
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

// heldBy are the holdings of servers that are through with a map.
func heldBy(m *partition.Map) (held []*rpcv1.Holding) {
	for i := range m.Ranges {
		span := m.Span(i)
		owner, _ := m.Server(span.Owner)
		held = append(held, &rpcv1.Holding{Start: span.Start, End: span.End, Name: owner.Name})
	}
	return held
}

// TestStagesInOneLook: the stages of a change follow each other as soon as the home says that the
// last one is done, without another look at the servers. A look ends when nothing moves any more,
// when the servers take too long, and when the operator ends.
func TestStagesInOneLook(t *testing.T) {
	for _, c := range []struct {
		name       string
		asked      int // how often the home is asked until a stage is done; 0: it never is
		ends       bool
		generation uint64 // of the map in the end
		planned    bool   // something is left of the change
	}{
		{"at once", 1, false, 4, false},
		{"after a while", 7, false, 4, false},
		{"never", 0, false, 2, true},
		{"the operator ends", 0, true, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begin := time.Now()
			fleet := serverstest.New()
			r := &DMIndexReconciler{base: base{dialer: fleet, events: &recorder{}, now: time.Now, remembered: newRemembered(begin)}}
			home := pod("x-memory-0", 0)
			s := &indexScope{index: &dmv1.DMIndex{}, verdict: memoryVerdict{servers: []memoryServer{{id: build.MemoryServerID(0, 0), pod: home.Name}}}}
			s.index.Name, s.index.UID, s.index.Spec.Key.Type = "x", "uid", "Uint64"
			s.memoryPools = []memoryPoolOfIndex{{authority: &pki.Authority{}, pods: []*corev1.Pod{home}, described: map[int]*rpcv1.DescribeMemoryReply{0: {}}}}
			for id := range 4 {
				s.compute = append(s.compute, computeServer{pod: pod(fmt.Sprint("x-compute-", id), id), described: &rpcv1.DescribeComputeReply{Index: "uid", Owned: true}})
			}
			s.view.Desired = 4

			s.observe(begin)
			var members []partition.Server
			for _, o := range s.view.Servers[:3] {
				members = append(members, partition.Server{ID: o.ID, Name: o.Pod, RPC: o.RPC, RESP: o.RESP})
			}
			three, err := partition.New("uid", members, partition.Options{Keys: partition.Uint64})
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := three.Marshal(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.withMemory(home, &pki.Authority{}, func(m servers.Memory) error {
				return errors.Join(m.Admit(ctx, "uid", 1, 1, true), m.SwapMap(ctx, "uid", 0, three.Generation, encoded))
			}); err != nil {
				t.Fatal(err)
			}
			held, lists := three, 0
			fleet.Holdings = func(encoded []byte) []*rpcv1.Holding {
				is, err := partition.Unmarshal(encoded)
				if err != nil {
					t.Error(err)
					return nil
				}
				if is.Generation != held.Generation {
					lists++
					if c.ends && lists == 3 {
						cancel()
					}
					if lists == c.asked {
						held, lists = is, 0
					}
				}
				return heldBy(held)
			}

			err = r.divideKeys(ctx, s)
			if c.ends != errors.Is(err, context.Canceled) || !c.ends && err != nil {
				t.Error(err)
			}
			if m := s.view.Map; m.Generation != c.generation || (len(m.Planned) > 0) != c.planned || (s.waiting != "") != c.planned {
				t.Errorf("generation %d, %d moves left, waiting for %q", m.Generation, len(m.Planned), s.waiting)
			}
			if !c.planned && !slices.EqualFunc(heldBy(s.view.Map), heldBy(held), func(a, b *rpcv1.Holding) bool { return a.Name == b.Name && string(a.Start) == string(b.Start) }) {
				t.Errorf("held is %v under %v", heldBy(held), heldBy(s.view.Map))
			}
			if !s.moved {
				t.Error("the servers are not looked at soon")
			}
			if took := time.Since(begin); c.asked == 0 && !c.ends && took < followed {
				t.Errorf("a look that waits took %v", took)
			}
		})
	}
}
