//go:build e2e

package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// exercise is a pod that writes, reads and remembers (test/exercise).
type exercise struct {
	*space
	operations string // of a phase, at least
}

// startExercise starts the pod "exercise" and returns when it has begun. It asks 200 times a
// second: three tests side by side must leave processors to the nodes of their cluster, on two
// cores too.
func (s *space) startExercise(operations int, options ...string) *exercise {
	s.Helper()
	return s.startExerciseOn("", operations, options...)
}

// startExerciseOn is startExercise with the pod on a certain node, unless that is empty.
func (s *space) startExerciseOn(node string, operations int, options ...string) *exercise {
	s.Helper()
	s.apply(onNode(node, toolsPod("exercise", append([]string{"exercise", "run", "--secret", "/conn", "--for", "90m", "--rate", "200"}, options...)...)))
	e := &exercise{s, strconv.Itoa(operations)}
	s.eventually(long, "the exercise runs", func() (bool, string) {
		out, err := s.try("exec", "exercise", "--", "exercise", "await", "100")
		return err == nil, out
	})
	return e
}

// onNode is the manifest of a pod that runs on a certain node, unless that is empty.
func onNode(node, pod string) string {
	if node == "" {
		return pod
	}
	return strings.Replace(pod, "spec:\n", "spec:\n  nodeName: "+node+"\n", 1)
}

// phase begins a phase and returns when it has its operations.
func (e *exercise) phase(name string) {
	e.Helper()
	e.begin(name)
	e.kubectl("exec", "exercise", "--", "exercise", "await", e.operations)
}

// begin begins a phase.
func (e *exercise) begin(name string) {
	e.Helper()
	e.kubectl("exec", "exercise", "--", "exercise", "phase", name)
}

var verdict = regexp.MustCompile(`(?m)^failed requests: (\d+), stale reads: (\d+), keys read back: \d+, acknowledged writes lost: (\d+)$`)

// rewritten is what the exercise says after it wrote every key once more.
var rewritten = regexp.MustCompile(`(?m)^keys written again: \d+, failed: (\d+), slowest: (\S+)$`)

// atOnce is how long writing a key may take when nothing is in the way: less than a lease, which is
// how long the locks of a dead client may be waited for.
const atOnce = 8 * time.Second

// finish ends the exercise: no request may have failed, no read may have been stale, no
// acknowledged write may be lost.
func (e *exercise) finish() {
	e.Helper()
	if failed := e.finishWithFailures(); failed != "0" {
		e.Errorf("%s requests failed", failed)
	}
}

// finishWithFailures is finish where servers died without a warning: requests may have failed, and
// their number is returned.
func (e *exercise) finishWithFailures() (failed string) {
	e.Helper()
	e.kubectl("exec", "exercise", "--", "exercise", "stop")
	e.eventually(long, "the exercise has read everything back", func() (bool, string) {
		phase := e.jsonpath("pod/exercise", "{.status.phase}")
		return phase == "Succeeded" || phase == "Failed", phase
	})
	log := e.kubectl("logs", "exercise")
	e.Log(log)
	got := verdict.FindStringSubmatch(log)
	if got == nil || got[2] != "0" || got[3] != "0" {
		e.Fatalf("the exercise did not end as it should:\n%s", tail(log, 12))
	}
	again := rewritten.FindStringSubmatch(log)
	if again == nil || again[1] != "0" {
		e.Fatalf("keys cannot be written:\n%s", tail(log, 12))
	}
	if slowest, err := time.ParseDuration(again[2]); err != nil || slowest > atOnce {
		e.Errorf("writing a key took %s", again[2])
	}
	return got[1]
}
