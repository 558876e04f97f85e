//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Limits of waiting.
const (
	command  = 3 * time.Minute  // of one kubectl: more than any has for itself
	long     = 2 * time.Minute  // for servers that start, move or recover
	veryLong = 10 * time.Minute // for benchmarks
	short    = time.Minute      // for what takes moments
	gone     = 2 * time.Minute  // for a namespace to be deleted
)

// space is a test's own namespace, which enforces restricted pod security. When the test ends it is
// deleted with all that is in it, and that, too, must succeed.
type space struct {
	*testing.T
	namespace string
}

// newSpace is for a test that leaves nodes, API server and operator alone: it runs beside others,
// when those that do not are over.
func newSpace(t *testing.T) *space {
	t.Helper()
	t.Parallel()
	return newSpaceAlone(t)
}

// newSpaceAlone is for a test that has the cluster for itself.
func newSpaceAlone(t *testing.T) *space {
	t.Helper()
	name := strings.NewReplacer("/", "-", "_", "-").Replace(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")))
	s := &space{t, "e2e-" + name + "-" + rand.String(4)}
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata:
  name: %s
  labels: {pod-security.kubernetes.io/enforce: restricted}
`, s.namespace))
	t.Cleanup(func() {
		if t.Failed() {
			s.gather()
		}
		if os.Getenv("KEEP") == "1" && t.Failed() {
			t.Logf("namespace %s is kept", s.namespace)
			return
		}
		s.deleteNamespace()
	})
	return s
}

// deleteNamespace deletes it and waits until it is gone.
func (s *space) deleteNamespace() {
	s.Helper()
	if out, err := s.try("delete", "namespace", s.namespace, "--ignore-not-found", "--wait=false"); err != nil {
		s.Errorf("delete namespace: %v: %s", err, out)
	}
	s.eventually(gone, "namespace is gone", func() (bool, string) {
		out, err := s.try("get", "namespace", s.namespace, "--ignore-not-found", "-o", "jsonpath={.status.conditions}")
		return err == nil && out == "", out
	})
}

// execute runs a program and returns what it printed. An error's text is in what it printed.
func execute(ctx context.Context, stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, command)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("ended after %v", command)
	}
	return strings.TrimRight(out.String(), "\n"), err
}

// try runs kubectl in the namespace.
func (s *space) try(args ...string) (string, error) {
	// Not the test's context: cleanups run kubectl, too.
	return execute(context.Background(), "", target.kubectl, append([]string{"--namespace", s.namespace}, args...)...)
}

// kubectl runs kubectl in the namespace; it must succeed.
func (s *space) kubectl(args ...string) string {
	s.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// tryApply is kubectl apply of a manifest, with further arguments.
func (s *space) tryApply(manifest string, args ...string) (string, error) {
	return execute(context.Background(), manifest, target.kubectl,
		append([]string{"--namespace", s.namespace, "apply", "-f", "-"}, args...)...)
}

func (s *space) apply(manifest string) {
	s.Helper()
	if out, err := s.tryApply(manifest); err != nil {
		s.Fatalf("kubectl apply: %v\n%s\nof%s", err, out, manifest)
	}
}

// refused is an apply that must fail and say want.
func (s *space) refused(manifest, want string) {
	s.Helper()
	if out, err := s.tryApply(manifest); err == nil {
		s.Errorf("accepted: %s; want %q", out, want)
	} else if !strings.Contains(out, want) {
		s.Errorf("refused with %s; want %q", out, want)
	}
}

// eventually tries f until it says true; otherwise the test ends after the limit with what f saw
// last.
func (s *space) eventually(limit time.Duration, what string, f func() (ok bool, saw string)) {
	s.Helper()
	saw := ""
	err := wait.PollUntilContextTimeout(context.Background(), 500*time.Millisecond, limit, true, func(context.Context) (ok bool, _ error) {
		ok, saw = f()
		return ok, nil
	})
	if err != nil {
		s.Fatalf("not within %v: %s; last seen: %s", limit, what, saw)
	}
}

// writes counts the changes of the operator's objects within a time, but for one of its own, which
// must be seen.
func (s *space) writes(within time.Duration) (n int) {
	var all sync.WaitGroup
	var count atomic.Int64
	for _, kind := range []string{"dmi", "dmmp", "dmcp"} {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			out, _ := execute(ctx, "", target.kubectl, "--namespace", s.namespace, "get", kind, "--watch-only", "-o", "name")
			if strings.Contains(out, "error") {
				s.Errorf("kubectl get %s --watch-only: %s", kind, out)
			}
			count.Add(int64(len(strings.Fields(out))))
		})
	}
	<-time.After(within / 2)
	s.kubectl("annotate", "dmi", "--all", "--overwrite", "e2e=seen")
	all.Wait()
	if count.Load() == 0 {
		s.Errorf("kubectl get --watch-only did not see the annotation")
	}
	return int(count.Load()) - 1
}

// stays looks for the whole window that f returns what it returned at first.
func (s *space) stays(window time.Duration, what string, f func() string) {
	s.Helper()
	first := f()
	err := wait.PollUntilContextTimeout(context.Background(), time.Second, window, false, func(context.Context) (bool, error) {
		if now := f(); now != first {
			return false, fmt.Errorf("was\n%s\nis\n%s", first, now)
		}
		return false, nil
	})
	if !wait.Interrupted(err) {
		s.Errorf("%s changed within %v: %v", what, window, err)
	}
}

// rests waits for at most limit until f says the same throughout window.
func (s *space) rests(window, limit time.Duration, what string, f func() string) {
	s.Helper()
	last, since := f(), time.Now()
	err := wait.PollUntilContextTimeout(context.Background(), time.Second, limit, false, func(context.Context) (bool, error) {
		if now := f(); now != last {
			s.Logf("%s: was\n%s\nis\n%s", what, last, now)
			last, since = now, time.Now()
		}
		return time.Since(since) >= window, nil
	})
	if err != nil {
		s.Errorf("%s does not stay the same for %v within %v: %v", what, window, limit, err)
	}
}

// gather writes what one wants to see of a failed test to the artifacts, and prints the essentials.
func (s *space) gather() {
	dir := filepath.Join(target.artifacts, s.namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.Log(err)
		return
	}
	keep := func(name string, args ...string) string {
		out, _ := s.try(args...)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(out+"\n"), 0o644); err != nil {
			s.Log(err)
		}
		return out
	}
	s.Log(keep("overview.txt", "get", "dmi,dmmp,dmcp,pods", "-o", "wide"))
	s.Log(keep("conditions.txt", "get", "dmi,dmmp,dmcp", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name}:{range .status.conditions[*]}{"\n  "}{.type}={.status} {.reason}: {.message}{end}{"\n"}{end}`))
	s.Log(tail(keep("events.txt", "get", "events", "--sort-by=.metadata.creationTimestamp"), 15))
	keep("objects.yaml", "get", "dmi,dmmp,dmcp,pods,services,configmaps,poddisruptionbudgets", "-o", "yaml")
	keep("describe.txt", "describe", "dmi,dmmp,dmcp,pods")
	keep("operator.log", "--namespace", target.system, "logs", "--all-containers", "--tail=2000", "--selector="+operatorSelector)
	for _, pod := range strings.Fields(s.jsonpath("pods", "{.items[*].metadata.name}")) {
		if last := tail(keep(pod+".log", "logs", pod, "--all-containers", "--tail=5000"), 5); last != "" {
			s.Logf("%s:\n%s", pod, last)
		}
		keep(pod+".previous.log", "logs", pod, "--all-containers", "--previous", "--tail=5000")
	}
	s.Logf("more of it in %s", dir)
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
