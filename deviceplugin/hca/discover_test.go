package hca_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/deviceplugin/hca"
	"github.com/dmindex/dmindex/deviceplugin/hca/sysfstest"
)

func discover(t *testing.T, s *sysfstest.Tree) (hca.Host, []error) {
	t.Helper()
	host, problems, err := hca.Discover(s.Root)
	if err != nil {
		t.Fatal(err)
	}
	return host, problems
}

// TestDiscover reads a machine with a physical function, two virtual ones of it, an InfiniBand HCA
// with two ports and Soft-RoCE.
func TestDiscover(t *testing.T) {
	s := sysfstest.New(t, t.TempDir())
	s.CM()
	s.Add(sysfstest.Device{Name: "mlx5_0", PCI: "0000:3b:00.0", NUMANode: 1, Interface: "ens1", NumVFs: 2})
	s.Add(sysfstest.Device{Name: "mlx5_1", PCI: "0000:3b:00.1", PF: "0000:3b:00.0", Product: "1018", NUMANode: 1, Interface: "ens1v0"})
	s.Add(sysfstest.Device{Name: "mlx5_2", PCI: "0000:3b:00.2", PF: "0000:3b:00.0", Product: "1018", NUMANode: 1, Interface: "ens1v1"})
	s.Add(sysfstest.Device{Name: "mlx4_0", PCI: "0000:5e:00.0", Product: "1003", Driver: "mlx4_core", NUMANode: -1, LinkLayer: "InfiniBand", MorePorts: 1, Verbs: "-"})
	s.Add(sysfstest.Device{Name: "rxe0", Interface: "eth0", GIDs: []sysfstest.GID{{Address: "0000:0000:0000:0000:0000:ffff:0a4d:0009", Kind: "RoCE v2"}}})
	host, problems := discover(t, s)
	if len(problems) != 0 || !host.CM || len(host.HCAs) != 5 {
		t.Fatalf("found %d HCAs, problems %v, connection manager %v", len(host.HCAs), problems, host.CM)
	}
	by := map[string]hca.HCA{}
	for _, h := range host.HCAs {
		by[h.Name] = h
	}

	pf := by["mlx5_0"]
	if !pf.HasVFs || pf.VF != nil || pf.PCI != "0000:3b:00.0" || pf.Vendor != "15b3" || pf.Product != "1017" || pf.Driver != "mlx5_core" ||
		pf.NUMANode != 1 || pf.Verbs != "uverbs0" || pf.Firmware != "16.35.2000" || !reflect.DeepEqual(pf.Interfaces, []string{"ens1"}) {
		t.Errorf("the physical function is %+v", pf)
	}
	if a := pf.Abilities; a.Model != "ConnectX-5" || a.Provider != "mlx5" || !a.DeviceMemory || !a.MaskedAtomics {
		t.Errorf("it can %+v", a)
	}
	want := []hca.Port{{Number: 1, LinkLayer: hca.Ethernet, State: "ACTIVE", Rate: "100 Gb/sec (4X EDR)", GIDs: []hca.GID{
		{Index: 0, Address: netip.MustParseAddr("fe80::264:6dff:fe00:1"), Kind: hca.RoCEv1, Interface: "ens1"},
		{Index: 1, Address: netip.MustParseAddr("fe80::264:6dff:fe00:1"), Kind: hca.RoCEv2, Interface: "ens1"},
		{Index: 2, Address: netip.MustParseAddr("::ffff:10.77.0.1"), Kind: hca.RoCEv1, Interface: "ens1"},
		{Index: 3, Address: netip.MustParseAddr("::ffff:10.77.0.1"), Kind: hca.RoCEv2, Interface: "ens1"},
	}}}
	if !reflect.DeepEqual(pf.Ports, want) {
		t.Errorf("its ports are\n%+v, want\n%+v", pf.Ports, want)
	}
	if vf := by["mlx5_2"]; vf.VF == nil || !reflect.DeepEqual(*vf.VF, hca.VF{Index: 1, PF: "0000:3b:00.0", Interfaces: []string{"ens1"}}) || vf.Verbs != "uverbs2" {
		t.Errorf("the second virtual function is %+v of %+v", vf, vf.VF)
	}
	old := by["mlx4_0"]
	if len(old.Ports) != 2 || old.Ports[1].Number != 2 || old.NUMANode != -1 || old.Abilities.MaskedAtomics || old.Abilities.DeviceMemory {
		t.Errorf("the old HCA is %+v", old)
	}
	if err := old.Healthy(); err == nil || !strings.Contains(err.Error(), "load the kernel module ib_uverbs") {
		t.Errorf("without a device node it is %v", err)
	}
	soft := by["rxe0"]
	if soft.PCI != "" || soft.NUMANode != -1 || soft.Abilities.Provider != "rxe" || !reflect.DeepEqual(soft.Interfaces, []string{"eth0"}) || soft.Healthy() != nil {
		t.Errorf("Soft-RoCE is %+v, %v", soft, soft.Healthy())
	}
}

// TestNothing: a machine without RDMA has no HCAs; what is no sysfs is an error that says so.
func TestNothing(t *testing.T) {
	s := sysfstest.New(t, t.TempDir())
	if host, problems := discover(t, s); len(host.HCAs) != 0 || host.CM || len(problems) != 0 {
		t.Errorf("an empty machine has %+v, %v", host, problems)
	}
	_, _, err := hca.Discover(filepath.Join(s.Root, "nowhere"))
	if err == nil || !strings.Contains(err.Error(), "is not a sysfs") || !strings.Contains(err.Error(), "mount the node's /sys") {
		t.Errorf("no sysfs: %v", err)
	}
}

// TestBroken: an HCA that cannot be understood is named, and hides no other one.
func TestBroken(t *testing.T) {
	f := func(d sysfstest.Device, want string) {
		t.Helper()
		s := sysfstest.New(t, t.TempDir())
		s.Add(sysfstest.Device{Name: "mlx5_0", PCI: "0000:3b:00.0"})
		s.Add(d)
		host, problems := discover(t, s)
		if len(host.HCAs) != 1 || host.HCAs[0].Name != "mlx5_0" || len(problems) != 1 ||
			!strings.Contains(problems[0].Error(), want) || !strings.Contains(problems[0].Error(), d.Name) {
			t.Errorf("%s: found %d HCAs, problems %v, want %q", d.Name, len(host.HCAs), problems, want)
		}
	}
	f(sysfstest.Device{Name: "switch0", NodeType: "2: Switch"}, "it is a Switch")
	f(sysfstest.Device{Name: strings.Repeat("x", 60)}, "longer than 48 bytes")
	f(sysfstest.Device{Name: "odd0", LinkLayer: "Token ring"}, "neither InfiniBand nor Ethernet")
	f(sysfstest.Device{Name: "gid0", GIDs: []sysfstest.GID{{Address: "what", Kind: "RoCE v2"}}}, "GID 0")
	f(sysfstest.Device{Name: "ports0", MorePorts: hca.MaxPorts}, "not a number from 1 to 8")

	// A file that went while it was read.
	s := sysfstest.New(t, t.TempDir())
	s.Add(sysfstest.Device{Name: "mlx5_0", PCI: "0000:3b:00.0"})
	if err := os.Remove(filepath.Join(s.Root, "class/infiniband/mlx5_0/ports/1/state")); err != nil {
		t.Fatal(err)
	}
	if host, problems := discover(t, s); len(host.HCAs) != 0 || len(problems) != 1 {
		t.Errorf("without a state: %+v, %v", host, problems)
	}
}

// TestBest: which port and address a program is told to use, and what to do if there is none.
func TestBest(t *testing.T) {
	gid := func(i int, address, kind string) hca.GID {
		return hca.GID{Index: i, Address: netip.MustParseAddr(address), Kind: kind}
	}
	f := func(h hca.HCA, port, index int, want string) {
		t.Helper()
		p, g, err := h.Best()
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("best is %d, %d, %v; want %q", p.Number, g.Index, err, want)
			}
			return
		}
		if err != nil || p.Number != port || g.Index != index {
			t.Errorf("best is port %d, GID %d, %v; want %d, %d", p.Number, g.Index, err, port, index)
		}
	}
	roce := func(gids ...hca.GID) hca.Port {
		return hca.Port{Number: 1, LinkLayer: hca.Ethernet, State: "ACTIVE", GIDs: gids}
	}
	one := func(p hca.Port) hca.HCA { return hca.HCA{Ports: []hca.Port{p}} }
	f(one(roce(gid(0, "fe80::1", hca.RoCEv2), gid(1, "2001:db8::1", hca.RoCEv2), gid(2, "::ffff:10.0.0.1", hca.RoCEv2), gid(3, "::ffff:10.0.0.2", hca.RoCEv2))), 1, 2, "")
	f(one(roce(gid(4, "fe80::1", hca.RoCEv2), gid(5, "2001:db8::1", hca.RoCEv2))), 1, 5, "")
	f(one(roce(gid(0, "::ffff:10.0.0.1", hca.RoCEv1), gid(7, "fe80::1", hca.RoCEv2))), 1, 7, "")
	f(one(roce(gid(0, "::ffff:10.0.0.1", hca.RoCEv1))), 0, 0, "none of its 1 GIDs is RoCE v2: give its network interface an IP address")
	f(one(hca.Port{Number: 1, LinkLayer: hca.InfiniBand, State: "ACTIVE"}), 0, 0, "is a subnet manager running?")
	f(one(hca.Port{Number: 1, LinkLayer: hca.InfiniBand, State: "INIT", GIDs: []hca.GID{gid(0, "fe80::1", hca.RoCEv1)}}), 0, 0, "port 1 is INIT: bring its link up")
	f(hca.HCA{}, 0, 0, "no ports")
	second := roce(gid(3, "::ffff:10.0.0.1", hca.RoCEv2))
	second.Number = 2
	f(hca.HCA{Ports: []hca.Port{{Number: 1, State: "DOWN"}, second}}, 2, 3, "")
}

// BenchmarkDiscover is a look at a machine with 100 virtual functions.
func BenchmarkDiscover(b *testing.B) {
	s := sysfstest.New(b, b.TempDir())
	s.Add(sysfstest.Device{Name: "mlx5_0", PCI: "0000:3b:00.0", Interface: "ens1", NumVFs: 100})
	for i := range 100 {
		s.Add(sysfstest.Device{Name: fmt.Sprintf("mlx5_%d", i+1), PCI: fmt.Sprintf("0000:3b:%02x.0", i+1), PF: "0000:3b:00.0", Interface: fmt.Sprintf("ens1v%d", i)})
	}
	for b.Loop() {
		if host, problems, err := hca.Discover(s.Root); err != nil || len(problems) != 0 || len(host.HCAs) != 101 {
			b.Fatal(len(host.HCAs), problems, err)
		}
	}
}
