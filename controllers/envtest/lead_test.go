package envtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers"
)

// envOperator makes the test's program an operator with these arguments, separated by spaces.
const envOperator = "DMINDEX_TEST_OPERATOR"

// runOperator is the operator in a process of its own.
func runOperator(args string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := controllers.Main(ctx, strings.Fields(args)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestLeadLost: an operator whose lease somebody else takes stops, and the same process leads again
// once it gets the lease.
func TestLeadLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, config, file, "system:admin", "system:masters")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.Env = append(os.Environ(), "KUBECONFIG="+file, "POD_NAMESPACE="+c.namespace,
		envOperator+"=--leader-elect --server-image=server:1 --metrics-addr=0 --health-addr=0 --namespace="+c.namespace)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("the operator: %v", err)
		}
		all, err := os.ReadFile(log.Name())
		if n := strings.Count(string(all), "the operator begins anew"); err != nil || n != 1 {
			t.Errorf("%v, and the log says %d times that the lead is lost:\n%s", err, n, all)
		}
	})

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "operator.dmindex.io"}}
	holder := func(not ...string) (name string) {
		t.Helper()
		c.eventually("an operator leads", func() string {
			select {
			case err := <-ended:
				ended <- err
				t.Fatalf("the operator ended: %v", err)
			default:
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
				return err.Error()
			}
			name = ptr.Deref(lease.Spec.HolderIdentity, "")
			for _, n := range append(not, "") {
				if name == n {
					return fmt.Sprintf("the lease is of %q", name)
				}
			}
			return ""
		})
		return name
	}
	made := func(name string) {
		t.Helper()
		c.create(index, name)
		c.eventually("the operator works", func() string {
			if err := c.get(name+"-memory", &dmv1.DMMemoryPool{}); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	first := holder()
	made("demo")

	before := lease.DeepCopy()
	now := metav1.NewMicroTime(time.Now())
	lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.AcquireTime = ptr.To("somebody else"), &now, &now
	if err := api.Patch(t.Context(), lease, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if second := holder("somebody else", first); second == first {
		t.Fatal(second)
	}
	made("late")
}
