package main

import (
	"strings"
	"testing"
)

// TestGivenDevice: a server takes the first device that the device plugin gave.
func TestGivenDevice(t *testing.T) {
	for given, want := range map[string]string{"": "", "mlx5_0": "mlx5_0", "mlx5_1,mlx5_0": "mlx5_1"} {
		t.Setenv("DMINDEX_RDMA_DEVICE", given)
		if got := givenDevice(); got != want {
			t.Errorf("of %q it takes %q, want %q", given, got, want)
		}
	}
}

// TestDevicePluginFlags: wrong flags end the program with words that say what to do.
func TestDevicePluginFlags(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	f := func(want string, args ...string) {
		t.Helper()
		cmd := root()
		cmd.SetArgs(append([]string{"device-plugin", "--metrics", ""}, args...))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	f("set NODE_NAME from spec.nodeName, or say --labels=false", "--labels")
	f("/nowhere is not there", "--kubelet-dir", "/nowhere")
	f("poll is 1h0m0s", "--kubelet-dir", t.TempDir(), "--poll", "1h")
	f("absent.yaml: no such file", "--kubelet-dir", t.TempDir(), "--settings", t.TempDir()+"/absent.yaml")
}
