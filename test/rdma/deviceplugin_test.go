//go:build ibv

package rdma

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dmindex/dmindex/deviceplugin"
	"github.com/dmindex/dmindex/deviceplugin/kubelettest"
	"github.com/dmindex/dmindex/deviceplugin/settings"
	"github.com/dmindex/dmindex/pkg/verbs/ibv"
)

// run runs a program of the machine; it must succeed.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// startPlugin starts `dmindex device-plugin` for a kubelet; stop ends it as a pod is ended, and
// must find it well.
func startPlugin(t *testing.T, k *kubelettest.Kubelet) (stop func()) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte("resources: [{name: dmindex.io/rdma, slots: 2}]"), 0o644); err != nil {
		t.Fatal(err)
	}
	plugin := exec.Command(setting(t, "RDMA_PROGRAM"), "device-plugin", "--settings", file, "--kubelet-dir", k.Dir,
		"--pod-resources", k.PodResources(), "--poll", "200ms", "--metrics", "")
	plugin.Stdout, plugin.Stderr = os.Stdout, os.Stdout
	if err := plugin.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if plugin.ProcessState == nil {
			plugin.Process.Kill()
			plugin.Wait()
		}
	})
	return func() {
		t.Helper()
		if err := plugin.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- plugin.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the plugin ended with %v", err)
			}
		case <-time.After(limit):
			t.Fatalf("the plugin does not end within %v", limit)
		}
	}
}

// TestDevicePlugin runs the program against the machine's real device: what a container is given
// works; health follows the link; a device that is taken away and made again; a kubelet that
// restarts; an orderly end.
func TestDevicePlugin(t *testing.T) {
	const resource = settings.DefaultResource
	link := setting(t, "RDMA_LINK")
	k := kubelettest.Start(t, t.TempDir())
	stop := startPlugin(t, k)
	k.Has(resource, 2, 2)

	given, err := k.Allocate(resource, "rxe0/0")
	if err != nil {
		t.Fatal(err)
	}
	env := given.Envs
	if env[deviceplugin.EnvDevice] != "rxe0" || env[deviceplugin.EnvPort] != "1" || env[deviceplugin.EnvLinkLayer] != "Ethernet" || env[deviceplugin.EnvNUMANode] != "-1" {
		t.Errorf("the environment is %v", env)
	}
	row, err := os.ReadFile("/sys/class/infiniband/rxe0/ports/1/gids/" + env[deviceplugin.EnvGIDIndex])
	if err != nil {
		t.Fatal(err)
	}
	if want := netip.MustParseAddr(strings.TrimSpace(string(row))); env[deviceplugin.EnvGID] != want.String() || !want.Is4In6() {
		t.Errorf("the address is %s, the device's is %v; want an IPv4 one", env[deviceplugin.EnvGID], want)
	}
	nodes := 0
	for _, d := range given.Devices {
		if info, err := os.Stat(d.HostPath); err != nil || info.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("device node %s: %v, %v", d.HostPath, info, err)
		}
		if strings.HasPrefix(d.ContainerPath, "/dev/infiniband/uverbs") {
			nodes++
		}
	}
	if nodes != 1 {
		t.Errorf("the device nodes are %v", given.Devices)
	}
	events := make(chan string, 64)
	device, err := ibv.NewDevice(ibv.Options{Device: env[deviceplugin.EnvDevice], Report: func(device, event string, _ bool) { events <- device + " " + event }})
	if err != nil {
		t.Fatalf("the fabric cannot use what it was given: %v", err)
	}
	reports := func(want string) {
		t.Helper()
		giveUp := time.After(limit)
		for {
			select {
			case got := <-events:
				if got == want {
					return
				}
			case <-giveUp:
				t.Fatalf("the fabric does not hear of %s within %v", want, limit)
			}
		}
	}

	run(t, "ip", "link", "set", link, "down")
	reports("rxe0 PORT_ERR")
	k.Has(resource, 2, 0)
	if _, err := k.Allocate(resource, "rxe0/0"); err == nil || !strings.Contains(err.Error(), "port 1 is DOWN: bring its link up") {
		t.Errorf("a slot of a device without a link: %v", err)
	}
	if _, err := ibv.NewDevice(ibv.Options{Device: "rxe0"}); !errors.Is(err, ibv.ErrNoDevice) {
		t.Errorf("the fabric thinks otherwise: %v", err)
	}
	run(t, "ip", "link", "set", link, "up")
	reports("rxe0 PORT_ACTIVE")
	if err := device.Close(); err != nil {
		t.Error(err)
	}
	k.Has(resource, 2, 2)

	run(t, "rdma", "link", "delete", "rxe0")
	k.Has(resource, 0, 0)
	run(t, "rdma", "link", "add", "rxe0", "type", "rxe", "netdev", link)
	k.Has(resource, 2, 2)

	k.Down()
	k.Up()
	if s := k.Has(resource, 2, 2); s.Registrations != 2 {
		t.Errorf("after the kubelet's restart: %+v", s)
	}
	stop()
	k.Await(resource, "the plugin's stream ends", func(s kubelettest.State) bool { return !s.Watching })
	if left, err := filepath.Glob(filepath.Join(k.Dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("left in the kubelet's folder: %v, %v", left, err)
	}
}
