// Package sysfstest makes folders that look like the sysfs of machines with HCAs, for tests of what
// reads one.
package sysfstest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Device is an HCA to be made. What is left out is not there, or has a usual value.
type Device struct {
	Name      string
	PCI       string // empty = a software device
	Vendor    string // default 15b3
	Product   string // default 1017, a ConnectX-5
	Driver    string // default mlx5_core
	NUMANode  int
	Interface string
	PF        string // PCI address of the physical function, made before, if it is a virtual one
	NumVFs    int
	Verbs     string // default uverbs<how many there were before>; "-" = none
	LinkLayer string // default Ethernet
	State     string // default 4: ACTIVE
	GIDs      []GID  // default: a link-local and an IPv4 one, both RoCE v2; of InfiniBand one
	NodeType  string // default 1: CA
	MorePorts int    // beyond the first
}

// GID is a row of a port's table.
type GID struct{ Address, Kind string }

// Tree is a sysfs that is made up.
type Tree struct {
	Root string
	t    testing.TB
	made int
}

// New makes an empty one in a folder: a machine without RDMA.
func New(t testing.TB, root string) *Tree {
	t.Helper()
	s := &Tree{Root: root, t: t}
	s.folder("class")
	return s
}

// Add makes a device.
func (s *Tree) Add(d Device) {
	s.t.Helper()
	or := func(p *string, value string) {
		if *p == "" {
			*p = value
		}
	}
	or(&d.Vendor, "15b3")
	or(&d.Product, "1017")
	or(&d.Driver, "mlx5_core")
	or(&d.LinkLayer, "Ethernet")
	or(&d.State, "4: ACTIVE")
	or(&d.NodeType, "1: CA")
	or(&d.Verbs, fmt.Sprintf("uverbs%d", s.made))
	s.made++
	if d.GIDs == nil {
		switch d.LinkLayer {
		case "Ethernet":
			d.GIDs = []GID{
				{fmt.Sprintf("fe80:0000:0000:0000:0264:6dff:fe00:%04x", s.made), "IB/RoCE v1"},
				{fmt.Sprintf("fe80:0000:0000:0000:0264:6dff:fe00:%04x", s.made), "RoCE v2"},
				{fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a4d:%04x", s.made), "IB/RoCE v1"},
				{fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a4d:%04x", s.made), "RoCE v2"},
			}
		default:
			d.GIDs = []GID{{fmt.Sprintf("fe80:0000:0000:0000:ec0d:9a03:0078:%04x", s.made), "IB/RoCE v1"}}
		}
	}
	home := "devices/virtual/infiniband/" + d.Name
	if d.PCI != "" {
		pci := "devices/pci0000:00/" + d.PCI
		home = pci + "/infiniband/" + d.Name
		s.pci(pci, d)
		s.link("../..", home, "device") // as seen from the device's own folder
	}
	s.file(d.NodeType, home, "node_type")
	s.file(fmt.Sprintf("0264:6d00:0000:%04x", s.made), home, "node_guid")
	s.file("16.35.2000", home, "fw_ver")
	if d.PCI == "" && d.Interface != "" {
		s.file(d.Interface, home, "parent")
	}
	for port := 1; port <= 1+d.MorePorts; port++ {
		s.port(fmt.Sprintf("%s/ports/%d", home, port), d)
	}
	if d.Verbs != "-" {
		s.file(d.Name, "class/infiniband_verbs", d.Verbs, "ibdev")
		s.file("6", "class/infiniband_verbs/abi_version")
	}
	// last: who reads meanwhile sees nothing of it, or all
	s.link("../../"+home, "class/infiniband", d.Name)
}

// CM makes the connection manager.
func (s *Tree) CM() {
	s.t.Helper()
	s.folder("class/misc/rdma_cm")
}

// Remove takes a device away, as if it were unplugged.
func (s *Tree) Remove(name string) {
	s.t.Helper()
	s.must(os.Remove(filepath.Join(s.Root, "class/infiniband", name)))
}

// SetState changes the state of a port, such as "1: DOWN".
func (s *Tree) SetState(name string, port int, state string) {
	s.t.Helper()
	home, err := filepath.EvalSymlinks(filepath.Join(s.Root, "class/infiniband", name))
	s.must(err)
	// A reader sees the old one or the new one meanwhile.
	file := filepath.Join(home, "ports", fmt.Sprint(port), "state")
	s.must(os.WriteFile(file+".new", []byte(state+"\n"), 0o644))
	s.must(os.Rename(file+".new", file))
}

func (s *Tree) pci(dir string, d Device) {
	s.t.Helper()
	s.file("0x"+d.Vendor, dir, "vendor")
	s.file("0x"+d.Product, dir, "device")
	s.file(fmt.Sprint(d.NUMANode), dir, "numa_node")
	s.file(fmt.Sprint(d.NumVFs), dir, "sriov_numvfs")
	s.folder("bus/pci/drivers", d.Driver)
	s.link("../../../bus/pci/drivers/"+d.Driver, dir, "driver")
	if d.Interface != "" {
		s.folder(dir, "net", d.Interface)
	}
	if d.PF != "" {
		s.link("../"+d.PF, dir, "physfn")
		pf := filepath.Join(s.Root, "devices/pci0000:00", d.PF)
		for i := 0; ; i++ {
			err := os.Symlink("../"+d.PCI, filepath.Join(pf, fmt.Sprintf("virtfn%d", i)))
			if os.IsExist(err) {
				continue
			}
			s.must(err)
			break
		}
	}
}

func (s *Tree) port(dir string, d Device) {
	s.t.Helper()
	s.file(d.State, dir, "state")
	s.file(d.LinkLayer, dir, "link_layer")
	s.file("100 Gb/sec (4X EDR)", dir, "rate")
	for i := range len(d.GIDs) + 2 { // tables have empty rows
		if i >= len(d.GIDs) {
			s.file("0000:0000:0000:0000:0000:0000:0000:0000", dir, "gids", fmt.Sprint(i))
			continue
		}
		s.file(d.GIDs[i].Address, dir, "gids", fmt.Sprint(i))
		s.file(d.GIDs[i].Kind, dir, "gid_attrs/types", fmt.Sprint(i))
		if d.Interface != "" {
			s.file(d.Interface, dir, "gid_attrs/ndevs", fmt.Sprint(i))
		}
	}
}

func (s *Tree) path(parts ...string) string {
	return filepath.Join(append([]string{s.Root}, parts...)...)
}

func (s *Tree) folder(parts ...string) {
	s.t.Helper()
	s.must(os.MkdirAll(s.path(parts...), 0o755))
}

func (s *Tree) file(content string, parts ...string) {
	s.t.Helper()
	s.must(os.MkdirAll(filepath.Dir(s.path(parts...)), 0o755))
	s.must(os.WriteFile(s.path(parts...), []byte(content+"\n"), 0o644))
}

func (s *Tree) link(target string, parts ...string) {
	s.t.Helper()
	s.must(os.MkdirAll(filepath.Dir(s.path(parts...)), 0o755))
	s.must(os.Symlink(target, s.path(parts...)))
}

func (s *Tree) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
