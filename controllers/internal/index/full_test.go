package index

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/partition"
)

// withRanges is an index of which compute servers said that they have these ranges; nil: that one
// did not answer.
func withRanges(ranges ...[]*rpcv1.OwnedRange) *scope {
	s := &scope{index: &dmv1.DMIndex{}}
	s.index.Name, s.index.UID, s.view.Map = "x", "uid", &partition.Map{}
	s.index.Spec.Security.ShowKeys = true
	for i, r := range ranges {
		c := computeServer{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("x-compute-", i)}}}
		if r != nil {
			c.described = &rpcv1.DescribeComputeReply{Ranges: r}
		}
		s.compute = append(s.compute, c)
	}
	return s
}

func waitsForMemory(start, end string, epoch uint64) *rpcv1.OwnedRange {
	return &rpcv1.OwnedRange{Start: []byte(start), End: []byte(end), Epoch: epoch, State: "Taking", Reason: "3 of 9 changes find no memory", PoolFull: true}
}

// TestFullPoolIsShown: keys that wait for memory are a condition that says which they are, where,
// why, and what to do.
func TestFullPoolIsShown(t *testing.T) {
	serving := &rpcv1.OwnedRange{End: []byte("a"), Epoch: 1, State: "Serving"}
	f := func(s *scope, change func(), progressing, degraded string, parts ...string) {
		t.Helper()
		s.poolFull = s.fullPool()
		change()
		s.conditions(nil, len(s.compute))
		for kind, reason := range map[string]string{dmv1.ConditionProgressing: progressing, dmv1.ConditionDegraded: degraded} {
			c := apimeta.FindStatusCondition(s.index.Status.Conditions, kind)
			if c == nil || c.Reason != reason || (c.Status == metav1.ConditionTrue) != (reason != dmv1.ReasonAsDesired) {
				t.Errorf("%s is %+v; want %s", kind, c, reason)
			}
		}
		for _, part := range parts {
			if c := apimeta.FindStatusCondition(s.index.Status.Conditions, dmv1.ConditionDegraded); !strings.Contains(c.Message, part) {
				t.Errorf("%q lacks %q", c.Message, part)
			}
		}
	}
	nothing := func() {}
	f(withRanges([]*rpcv1.OwnedRange{serving}, nil), nothing, dmv1.ReasonAsDesired, dmv1.ReasonAsDesired)
	f(withRanges([]*rpcv1.OwnedRange{serving, waitsForMemory("a", "m", 7)}, []*rpcv1.OwnedRange{waitsForMemory("m", "", 7)}), nothing, dmv1.ReasonPoolFull, dmv1.ReasonPoolFull,
		`keys ["a", "m"); ["m", end) are not served`, "raise quota in spec.memoryPools, or delete other keys", "x-compute-0, Taking: 3 of 9 changes find no memory")
	stays := waitsForMemory("a", "m", 7)
	stays.State = "Serving"
	f(withRanges([]*rpcv1.OwnedRange{serving, stays}), nothing, dmv1.ReasonPoolFull, dmv1.ReasonPoolFull, `keys ["a", "m") stay on their present server and cannot move`, "raise quota")
	f(withRanges([]*rpcv1.OwnedRange{stays}, []*rpcv1.OwnedRange{waitsForMemory("m", "", 7)}), nothing, dmv1.ReasonPoolFull, dmv1.ReasonPoolFull,
		`keys ["m", end) are not served, and ["a", "m") cannot move, since`)
	s := withRanges([]*rpcv1.OwnedRange{waitsForMemory("a", "", 7)})
	f(s, func() { s.waiting = "ranges move" }, dmv1.ReasonPoolFull, dmv1.ReasonPoolFull)
	// the quota was raised, and that is what is waited for
	f(s, func() { s.short = &shortage{reason: dmv1.ReasonMemoryPending} }, dmv1.ReasonMemoryPending, dmv1.ReasonPoolFull)
	f(s, func() { s.short, s.fencePending = nil, "keys wait for memory server 2" }, dmv1.ReasonFencePending, dmv1.ReasonFencePending, "memory server 2; keys [\"a\", end) are not served")
	f(s, func() { s.poolFull = "" }, dmv1.ReasonFencePending, dmv1.ReasonFencePending, "memory server 2")
	if c := apimeta.FindStatusCondition(s.index.Status.Conditions, dmv1.ConditionDegraded); c.Message != "keys wait for memory server 2" {
		t.Errorf("%q", c.Message)
	}
	var many []*rpcv1.OwnedRange
	for n := range 1000 {
		r := waitsForMemory(fmt.Sprint(n), "", 7)
		r.Reason = strings.Repeat("why ", 1<<14)
		many = append(many, r)
	}
	if text := withRanges(many).fullPool(); len(text) > 2*report.MostInNote+256 || !strings.Contains(text, "; and 9") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

// TestFullPoolEvents: each range that begins to wait for memory is told of once, all of a server at
// a time.
func TestFullPoolEvents(t *testing.T) {
	var events operatortest.Recorder
	r := &Reconciler{Base: reconciler.Base{Events: &events}}
	look := func(want int, ranges ...[]*rpcv1.OwnedRange) {
		t.Helper()
		if r.tellFullPool(withRanges(ranges...)); len(events.Notes) != want {
			t.Fatalf("%d events, want %d: %q", len(events.Notes), want, events.Notes)
		}
	}
	first, second, third := waitsForMemory("a", "m", 7), waitsForMemory("m", "", 7), waitsForMemory("m", "", 9)
	look(0, []*rpcv1.OwnedRange{{State: "Taking", Epoch: 7}})
	look(1, []*rpcv1.OwnedRange{first, second})
	look(1, []*rpcv1.OwnedRange{first, second})
	if want := `PoolFull: x-compute-0 finds no memory to take over, or to give back, keys ["a", "m"); ["m", end): raise quota in spec.memoryPools, or delete other keys`; events.Notes[0] != want {
		t.Errorf("got  %q\nwant %q", events.Notes[0], want)
	}
	look(2, []*rpcv1.OwnedRange{first}, []*rpcv1.OwnedRange{third})
	look(2, nil, []*rpcv1.OwnedRange{third})                        // it did not answer
	look(2, []*rpcv1.OwnedRange{first}, []*rpcv1.OwnedRange{third}) // the recorder folds it

	events = operatortest.Recorder{}
	// another operator, or one that starts anew
	r = &Reconciler{Base: reconciler.Base{Events: &events}}
	s := withRanges([]*rpcv1.OwnedRange{first})
	report.SetCondition(&s.index.Status.Conditions, 1, dmv1.ConditionDegraded, true, dmv1.ReasonPoolFull, "shown")
	if r.tellFullPool(s); len(events.Notes) != 0 {
		t.Errorf("told of by somebody else: %q", events.Notes)
	}
	s.compute[0].described.Ranges[0] = third
	if r.tellFullPool(s); len(events.Notes) != 1 {
		t.Errorf("another range that waits: %q", events.Notes)
	}
}
