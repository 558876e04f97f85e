package envtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// lines are those of an operator's log.
type lines struct {
	mu  sync.Mutex
	all []map[string]any
}

// Write implements io.Writer: each call is a line of JSON.
func (l *lines) Write(line []byte) (int, error) {
	fields := map[string]any{}
	if err := json.NewDecoder(bytes.NewReader(line)).Decode(&fields); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fields)
	return len(line), nil
}

// decisions are the lines with a reason, as "message subject", and how often they came.
func (l *lines) decisions() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for _, fields := range l.all {
		if fields["reason"] == nil || fields["reason"] == "" {
			continue
		}
		subject := ""
		for _, field := range []string{"pod", "generation", "clients"} {
			if fields[field] != nil {
				subject = fmt.Sprint(fields[field])
			}
		}
		n[fmt.Sprintf("%v %s", fields["msg"], subject)]++
	}
	return n
}

// TestDecisionsAreLogged: of an index that comes up, grows, shrinks and loses a server, each
// decision is one line of the operator's log, with its reason, and a settled index adds none.
func TestDecisionsAreLogged(t *testing.T) {
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	home := string(c.pod("demo-memory-0").UID)
	identity := slices.Sorted(maps.Keys(c.fleet.Admitted(home)))[0]
	c.fleet.Register(home, identity, "demo-compute-0")

	pool := &dmv1.DMComputePool{}
	c.patch("demo-compute", pool, func() { pool.Spec.Replicas = 3 })
	c.equal("owners", 3, func() any { return c.differentOwners("demo") })
	c.podStatus("demo-compute-0", func(s *corev1.PodStatus) { s.Phase, s.Reason = corev1.PodFailed, "Evicted" })
	c.eventually("the lost server is replaced", func() string {
		if pods := c.pods("demo-compute"); fmt.Sprint(pods) != "[demo-compute-1 demo-compute-2 demo-compute-3]" {
			return fmt.Sprint(pods)
		}
		return ""
	})
	c.equal("owners", 3, func() any { return c.differentOwners("demo") })
	c.patch("demo-compute", pool, func() { pool.Spec.Replicas = 2 })
	c.equal("compute pods", 2, func() any { return len(c.pods("demo-compute")) })
	c.available("demo")
	c.settled("demo")

	want := map[string]int{}
	for _, pod := range []string{"memory-0", "memory-1", "compute-0", "compute-1", "compute-2", "compute-3"} {
		want["create pod demo-"+pod] = 1
	}
	want["delete pod demo-compute-0"], want["delete pod demo-compute-3"] = 1, 1
	want["let pod leave demo-compute-3"], want["drain compute server demo-compute-3"] = 1, 1
	want["fence clients clients 1 of pods that are gone (demo-compute-0)"] = 1
	for _, call := range c.fleet.Changes() {
		if generation, is := strings.CutPrefix(call, "swap "); is {
			want["change partition map "+generation] = 1
		}
	}
	got := c.operator.lines.decisions()
	if !maps.Equal(got, want) {
		t.Errorf("lines:\n%v\nwant:\n%v", got, want)
	}
	c.lookAgain("demo")
	if again := c.operator.lines.decisions(); !maps.Equal(again, got) {
		t.Errorf("of a settled index:\n%v\nbefore:\n%v", again, got)
	}
}

// differentOwners is how many servers own keys of an index.
func (c *cluster) differentOwners(name string) int {
	owners := map[string]bool{}
	if m := c.index(name).Status.Map; m != nil {
		for _, r := range m.Ranges {
			owners[fmt.Sprint(r.Owner)] = true
		}
	}
	return len(owners)
}
