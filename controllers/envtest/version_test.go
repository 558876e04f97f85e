package envtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// emulated is the environment variable that makes the API server one of an older minor version: it
// has neither the kinds nor the fields, gates and functions in rules that came later.
const emulated = "DMINDEX_EMULATED_VERSION"

// TestOldestKubernetes: the CRDs, their rules and the operator work with an API server of the
// oldest version that the chart takes. All other tests have the newest one.
func TestOldestKubernetes(t *testing.T) {
	if os.Getenv(emulated) != "" {
		return // this is it
	}
	t.Parallel()
	chart, err := os.ReadFile(filepath.Join("..", "..", "charts", "dmindex", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	oldest := regexp.MustCompile(`(?m)^kubeVersion: ">=(1\.[0-9]+)\.0-0"$`).FindSubmatch(chart)
	if oldest == nil {
		t.Fatalf("Chart.yaml does not say from which version on:\n%s", chart)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), self, "-test.run=^(TestOldestKubernetes|TestIndexComesUp|TestRefusedAtCreation|TestRefusedAsChange|TestScale)$", "-test.v", "-test.count=1")
	run.Env = append(os.Environ(), emulated+"="+string(oldest[1]))
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	run.WaitDelay = 10 * time.Second
	out, err := run.CombinedOutput()
	if err != nil {
		t.Errorf("with Kubernetes %s: %v\n%s", oldest[1], err, out)
	}
	if !regexp.MustCompile(`(?m)^--- PASS: TestIndexComesUp`).Match(out) {
		t.Errorf("with Kubernetes %s no index came up:\n%s", oldest[1], out)
	}
}
