//go:build e2e && ownnodes

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// kubectlSystem runs kubectl in the operator's namespace.
func (s *space) kubectlSystem(args ...string) string {
	s.Helper()
	return s.kubectl(append([]string{"--namespace", target.system}, args...)...)
}

func (s *space) operatorPods() []string {
	return strings.Fields(s.kubectlSystem("get", "pods", "--selector="+operatorSelector, "--output=jsonpath={.items[*].metadata.name}"))
}

// killOperators ends the operator without a warning, wherever it is.
func (s *space) killOperators() {
	s.Helper()
	s.kubectlSystem("delete", "pod", "--selector="+operatorSelector, "--force", "--grace-period=0")
}

// TestOperatorKilled kills the operator before and while ranges change hands: the new one goes on
// where the last one ended. No request fails, no acknowledged write is lost, and in the end every
// server has its share. (Each of its writes is its last in controllers/envtest.)
func TestOperatorKilled(t *testing.T) {
	s := newSpaceAlone(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(300)
	for i, n := range []int{4, 2} {
		e.begin(fmt.Sprintf("to %d", n))
		generation := s.generation()
		s.kubectl("scale", "dmcp", "x-compute", fmt.Sprintf("--replicas=%d", n))
		// Before anything was done, and in the middle of the moves.
		if i > 0 {
			s.eventually(long, "the map changes", func() (bool, string) { return s.generation() != generation, s.indexLine() })
		}
		s.killOperators()
		s.scale(n)
		e.phase(fmt.Sprint(n))
	}
	e.finish()
}

func (s *space) generation() string { return s.jsonpath("dmi/x", "{.status.map.generation}") }

// TestTwoOperators lets two operators act at the same time, as if both took themselves for the
// leader: no request fails, nothing is lost, and the map comes to rest.
func TestTwoOperators(t *testing.T) {
	s := newSpaceAlone(t)
	deployment := s.kubectlSystem("get", "deployments", "--selector="+operatorSelector, "--output=name")
	args := s.kubectlSystem("get", deployment, "--output=jsonpath={.spec.template.spec.containers[0].args}")
	replicas := s.kubectlSystem("get", deployment, "--output=jsonpath={.spec.replicas}")
	if !strings.HasPrefix(args, `["operator","--leader-elect"`) {
		t.Fatalf("the operator's arguments are %s", args)
	}
	patch := func(replicas, args string) {
		t.Helper()
		s.kubectlSystem("patch", deployment, "--type=json", fmt.Sprintf(`--patch=[{"op":"replace","path":"/spec/replicas","value":%s},`+
			`{"op":"replace","path":"/spec/template/spec/containers/0/args","value":%s}]`, replicas, args))
		s.kubectlSystem("rollout", "status", deployment, "--timeout=80s")
	}
	t.Cleanup(func() { patch(replicas, args) })
	patch("2", strings.Replace(args, `,"--leader-elect"`, "", 1))
	if pods := s.operatorPods(); len(pods) < 2 {
		t.Fatalf("operators: %v", pods)
	}
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(300)
	for _, n := range []int{3, 2} {
		e.begin(fmt.Sprintf("to %d", n))
		s.scale(n)
		e.phase(fmt.Sprint(n))
	}
	e.finish()
	// it may still be dividing what the load was
	s.rests(10*time.Second, long, "the map of two operators", s.generation)
	t.Logf("the map came to generation %s", s.generation())
}

// TestAPIServerAway stops the API server: the index goes on serving. An owner that dies meanwhile
// comes back with its own keys, without anybody's help. What was asked for meanwhile happens
// afterwards.
func TestAPIServerAway(t *testing.T) {
	s := newSpaceAlone(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(300)
	e.phase("before")
	pod := s.computePods()[0]
	signal := s.signaller(pod)
	restarts := s.restarts(pod)
	exercised := s.exercised()

	e.begin("without the API server")
	thaw := s.withoutAPIServer()
	exercised("await", "1400")
	signal("SIGKILL")
	exercised("phase", "killed without the API server")
	exercised("await", "2000")
	thaw()
	s.eventually(long, "the API server tells of the restart", func() (bool, string) { return s.restarts(pod) != restarts, s.restarts(pod) })
	s.settled("2/2", "2/2")
	e.begin("to 3")
	s.scale(3)
	e.phase("after")
	t.Logf("%s requests failed", e.finishWithFailures())
	s.toldOfTakeOvers(1)
}

// withoutAPIServer stops the API server, and returns what lets it go on.
func (s *space) withoutAPIServer() (thaw func()) {
	s.Helper()
	s.component("freeze", "apiserver")
	thaw = sync.OnceFunc(func() { s.component("thaw", "apiserver") })
	s.Cleanup(thaw)
	return thaw
}

// exercised makes a function that speaks to the exercise where it runs, without the API server.
func (s *space) exercised() func(args ...string) {
	number := strings.TrimPrefix(s.jsonpath("pod/exercise", "{.spec.nodeName}"), "node")
	container := strings.TrimPrefix(s.jsonpath("pod/exercise", "{.status.containerStatuses[0].containerID}"), "containerd://")
	n := 0
	return func(args ...string) {
		s.Helper()
		n++
		s.node(append([]string{"exec", number, "ctr", "--namespace", "k8s.io", "task", "exec", "--exec-id", fmt.Sprint("ask-", n), container, "exercise"}, args...)...)
	}
}

// component runs hack/cluster/component.
func (s *space) component(args ...string) {
	s.Helper()
	if out, err := execute(context.Background(), "", "../../hack/cluster/component", args...); err != nil {
		s.Fatalf("hack/cluster/component %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
