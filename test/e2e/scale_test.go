//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestScale scales the compute pool up, as a HorizontalPodAutoscaler, and down, as an
// administrator, and deletes one of its pods under load: no request fails, nothing is lost, and the
// plugin and events tell of it.
func TestScale(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(300)
	e.phase("two")
	s.viewer()
	e.begin("to 3")
	s.autoscaled(3)
	e.phase("3")
	s.watched(3)
	s.scaleAndDelete(e, 2)
	e.finish()
	s.toldOfHandovers()
}

// scaleAndDelete scales to some sizes, then deletes a pod.
func (s *space) scaleAndDelete(e *exercise, sizes ...int) {
	s.Helper()
	for _, n := range sizes {
		e.begin(fmt.Sprintf("to %d", n))
		s.scale(n)
		e.phase(fmt.Sprint(n))
	}
	e.begin("delete pod")
	last := sizes[len(sizes)-1]
	s.replaced(s.computePods()[0], fmt.Sprintf("%d/%d", last, last), func(pod string) { s.kubectl("delete", "pod", pod, "--wait=false") })
	e.phase("replaced")
}

// viewer makes a user that may do what the plugin needs, and nothing else.
func (s *space) viewer() {
	s.Helper()
	s.apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: viewer}
rules:
- {apiGroups: [dmindex.io], resources: [dmindexes], verbs: [get, list]}
- {apiGroups: [dmindex.io], resources: [dmmemorypools], verbs: [get]}
- {apiGroups: [dmindex.io], resources: [dmbackups, dmbackupschedules], verbs: [list]}
- {apiGroups: [""], resources: [events], verbs: [list]}
- {apiGroups: [""], resources: [pods/proxy], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: viewer}
subjects:
- {kind: User, name: viewer}
`)
	role := s.namespace // of the operator's lease
	s.Cleanup(func() { s.kubectl("--namespace", target.system, "delete", "role,rolebinding", role) })
	s.kubectl("--namespace", target.system, "create", "role", role, "--verb=get", "--resource=leases.coordination.k8s.io", "--resource-name=operator.dmindex.io")
	s.kubectl("--namespace", target.system, "create", "rolebinding", role, "--role="+role, "--user=viewer")
}

// plugin runs kubectl dmindex as the viewer.
func (s *space) plugin(args ...string) string {
	s.Helper()
	out, err := execute(s.Context(), "", target.plugin, append([]string{"--namespace", s.namespace, "--as", "viewer"}, args...)...)
	if err != nil {
		s.Fatalf("kubectl dmindex %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// watched looks at an index under load with the plugin.
func (s *space) watched(servers int) {
	s.Helper()
	var status string
	s.eventually(short, "the plugin shows every server with load and a range", func() (bool, string) {
		status = s.plugin("status", "x")
		return strings.Count(status, "  Serving\n") >= servers && strings.Count(status, " %  ") >= 2*servers && strings.Contains(status, "going on:\n  nothing") &&
			strings.Contains(status, "Handover  partition map"), status
	})
	s.Log(status)
	s.contains(status, "x  DEX, keys of up to 64 bytes")
	var top string
	s.eventually(short, "every server answers the plugin", func() (bool, string) {
		top = s.plugin("top")
		return !strings.Contains(top, "no answer"), top
	})
	s.Log(top)
	page := s.page("x")
	for _, pod := range s.computePods() {
		s.contains(status, pod)
		s.contains(top, pod)
		s.contains(page, pod)
	}
}

// page is what a browser gets of an index by kubectl dmindex ui.
func (s *space) page(index string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), short)
	defer cancel()
	ui := exec.CommandContext(ctx, target.plugin, "--namespace", s.namespace, "--as", "viewer", "ui", index)
	out, err := ui.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := ui.Start(); err != nil {
		s.Fatal(err)
	}
	defer func() { cancel(); _ = ui.Wait() }() // it is killed
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Fatalf("kubectl dmindex ui: %v", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSpace(url), nil)
	if err != nil {
		s.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		s.Fatalf("kubectl dmindex ui: %s, %v: %s", reply.Status, err, text)
	}
	return string(text)
}

// eventsOf are the messages of an index's events of a reason, and how often each came.
func (s *space) eventsOf(reason string) (events []string) {
	lines := s.jsonpath("events", `{range .items[?(@.reason=="`+reason+`")]}{.series.count} {.message}{"\n"}{end}`)
	return strings.Split(strings.TrimSpace(lines), "\n")
}

// toldOfHandovers: there is one event for each step of the map.
func (s *space) toldOfHandovers() {
	s.Helper()
	var all []string
	s.eventually(short, "an event for each step of the map", func() (bool, string) {
		generation := s.jsonpath("dmi/x", "{.status.map.generation}")
		all = append(s.eventsOf("Handover"), s.eventsOf("MapChanged")...)
		return fmt.Sprint(len(all)) == generation, "generation " + generation + "\n" + strings.Join(all, "\n")
	})
	text := strings.Join(all, "\n")
	s.Logf("events:\n%s", text)
	for _, want := range []string{"go from x-compute-0 to x-compute-2", "joined", "leaves", "is gone"} {
		s.contains(text, want)
	}
}

// autoscaled lets a HorizontalPodAutoscaler scale the compute pool. It asks for a least number of
// servers, so it scales without measuring anything: what is tested is that it finds the pool's
// scale and its pods, and that nobody changes back what it set.
func (s *space) autoscaled(n int) {
	s.Helper()
	s.apply(fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: x}
spec:
  scaleTargetRef: {apiVersion: dmindex.io/v1alpha1, kind: DMComputePool, name: x-compute}
  minReplicas: %d
  maxReplicas: %d
`, n, n))
	s.eventually(long, "the HorizontalPodAutoscaler has scaled", func() (bool, string) {
		status := s.jsonpath("hpa/x", "{.status}")
		return s.jsonpath("hpa/x", "{.status.desiredReplicas}") == fmt.Sprint(n) && s.jsonpath("dmcp/x-compute", "{.spec.replicas}") == fmt.Sprint(n), status
	})
	s.shared(n)
	s.kubectl("delete", "hpa", "x")
}

// scale scales the compute pool as an administrator does.
func (s *space) scale(n int) {
	s.Helper()
	s.kubectl("scale", "dmcp", "x-compute", fmt.Sprintf("--replicas=%d", n))
	s.shared(n)
}

// shared waits until every one of n servers has a share of the keys, and no other has one.
func (s *space) shared(n int) {
	s.Helper()
	ready := fmt.Sprintf("%d/%d", n, n)
	s.settled("2/2", ready)
	s.eventually(long, "every server has its share", func() (bool, string) {
		owners := s.owners()
		return len(owners) == n, fmt.Sprint(owners)
	})
	s.settled("2/2", ready)
}

// replaced removes a compute pod in some way and waits until another one has its share.
func (s *space) replaced(pod, compute string, remove func(pod string)) {
	s.Helper()
	remove(pod)
	s.eventually(long, pod+" is replaced", func() (bool, string) {
		owners := s.owners()
		there := false
		for _, p := range s.computePods() {
			there = there || p == pod
		}
		return !owners[pod] && !there, fmt.Sprint("owners ", owners, ", servers ", s.computePods())
	})
	s.settled("2/2", compute)
}
