package hca

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Discover reads what the machine whose sysfs is mounted at sys has. An HCA that cannot be read, or
// is beyond a limit, is left out and named by an error of problems; the others are there all the
// same. err says that sys is no sysfs at all.
func Discover(sys string) (host Host, problems []error, err error) {
	if _, err := os.Stat(filepath.Join(sys, "class")); err != nil {
		return Host{}, nil, fmt.Errorf("%s is not a sysfs: %w; mount the node's /sys there", sys, err)
	}
	class := filepath.Join(sys, "class", "infiniband")
	names, err := list(class)
	if err != nil {
		return Host{}, nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	if len(names) > MaxHCAs {
		problems = append(problems, fmt.Errorf("%s has %d devices: those after the first %d are left out", class, len(names), MaxHCAs))
		names = names[:MaxHCAs]
	}
	nodes, err := verbsNodes(sys)
	if err != nil {
		return Host{}, nil, err
	}
	for _, name := range names {
		h, err := read(class, name)
		if err != nil {
			problems = append(problems, fmt.Errorf("RDMA device %s: %w", name, err))
			continue
		}
		h.Verbs = nodes[name]
		host.HCAs = append(host.HCAs, h)
	}
	_, err = os.Stat(filepath.Join(sys, "class", "misc", "rdma_cm"))
	host.CM = err == nil
	return host, problems, nil
}

// verbsNodes maps names of RDMA devices to those of their device nodes.
func verbsNodes(sys string) (map[string]string, error) {
	class := filepath.Join(sys, "class", "infiniband_verbs")
	entries, err := list(class)
	if err != nil {
		return nil, fmt.Errorf("list device nodes: %w", err)
	}
	nodes := map[string]string{}
	for _, e := range entries {
		if strings.HasPrefix(e, "uverbs") { // beside them lies abi_version
			if name, err := line(class, e, "ibdev"); err == nil {
				nodes[name] = e
			}
		}
	}
	return nodes, nil
}

// read reads one device.
func read(class, name string) (HCA, error) {
	dir := filepath.Join(class, name)
	h := HCA{Name: name, NUMANode: -1}
	if len(name) > MaxName {
		return h, fmt.Errorf("its name is longer than %d bytes: rename it with `rdma dev set`", MaxName)
	}
	kind, err := line(dir, "node_type")
	if err != nil {
		return h, err
	}
	if kind = word(kind); kind != "CA" && kind != "RNIC" {
		return h, fmt.Errorf("it is a %s, not a channel adapter", kind)
	}
	h.GUID, _ = line(dir, "node_guid") // these are for people
	h.Firmware, _ = line(dir, "fw_ver")
	if err := readPCI(dir, &h); err != nil {
		return h, err
	}
	h.Abilities = abilitiesOf(h)
	// Soft-RoCE and Soft-iWARP name their interface
	if parent, err := line(dir, "parent"); err == nil && h.PCI == "" {
		h.Interfaces = []string{parent}
		h.Abilities.Provider = strings.TrimRight(name, "0123456789_")
	}
	ports, err := list(filepath.Join(dir, "ports"))
	if err != nil {
		return h, err
	}
	for _, p := range ports {
		number, err := strconv.Atoi(p)
		if err != nil || number < 1 || number > MaxPorts {
			return h, fmt.Errorf("port %q: not a number from 1 to %d", p, MaxPorts)
		}
		port, err := readPort(filepath.Join(dir, "ports", p), number)
		if err != nil {
			return h, fmt.Errorf("port %d: %w", number, err)
		}
		h.Ports = append(h.Ports, port)
	}
	slices.SortFunc(h.Ports, func(a, b Port) int { return a.Number - b.Number })
	return h, nil
}

// readPCI fills in what the device's PCI function says, if it has one.
func readPCI(dir string, h *HCA) error {
	device := filepath.Join(dir, "device")
	target, err := filepath.EvalSymlinks(device)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a software device
	}
	if err != nil {
		return err
	}
	if h.Vendor, err = line(target, "vendor"); errors.Is(err, fs.ErrNotExist) {
		return nil // a device on a bus that is not PCI
	}
	if err != nil {
		return err
	}
	h.PCI = filepath.Base(target)
	h.Vendor = strings.TrimPrefix(h.Vendor, "0x")
	if h.Product, err = line(target, "device"); err != nil {
		return err
	}
	h.Product = strings.TrimPrefix(h.Product, "0x")
	if driver, err := os.Readlink(filepath.Join(target, "driver")); err == nil {
		h.Driver = filepath.Base(driver)
	}
	if node, err := line(target, "numa_node"); err == nil {
		if h.NUMANode, err = strconv.Atoi(node); err != nil {
			return fmt.Errorf("numa_node is %q, not a number", node)
		}
	}
	if h.Interfaces, err = list(filepath.Join(target, "net")); err != nil {
		return err
	}
	if made, err := line(target, "sriov_numvfs"); err == nil {
		h.HasVFs = made != "0"
	}
	if pf, err := filepath.EvalSymlinks(filepath.Join(target, "physfn")); err == nil {
		h.VF = &VF{Index: vfIndex(pf, h.PCI), PF: filepath.Base(pf)}
		if h.VF.Interfaces, err = list(filepath.Join(pf, "net")); err != nil {
			return err
		}
	}
	return nil
}

// vfIndex is the number of a virtual function among those of its physical function; -1 if it is not
// among them.
func vfIndex(pf, address string) int {
	for i := range MaxHCAs {
		target, err := os.Readlink(filepath.Join(pf, fmt.Sprintf("virtfn%d", i)))
		if err != nil {
			break
		}
		if filepath.Base(target) == address {
			return i
		}
	}
	return -1
}

func readPort(dir string, number int) (Port, error) {
	p := Port{Number: number}
	var err error
	if p.LinkLayer, err = line(dir, "link_layer"); err != nil {
		return p, err
	}
	if p.LinkLayer != InfiniBand && p.LinkLayer != Ethernet {
		return p, fmt.Errorf("link layer %q is neither %s nor %s", p.LinkLayer, InfiniBand, Ethernet)
	}
	if p.State, err = line(dir, "state"); err != nil {
		return p, err
	}
	p.State = word(p.State)
	p.Rate, _ = line(dir, "rate") // for people; a port that is down may have none
	for i := range MaxGIDs {
		index := strconv.Itoa(i)
		text, err := line(dir, "gids", index)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return p, err
		}
		address, err := netip.ParseAddr(text)
		if err != nil {
			return p, fmt.Errorf("GID %d: %w", i, err)
		}
		if address.IsUnspecified() {
			continue
		}
		g := GID{Index: i, Address: address}
		if g.Kind, err = line(dir, "gid_attrs", "types", index); err != nil && p.LinkLayer == Ethernet {
			continue // it went meanwhile
		}
		g.Interface, _ = line(dir, "gid_attrs", "ndevs", index)
		p.GIDs = append(p.GIDs, g)
	}
	return p, nil
}

// word is what follows the number in the kernel's "4: ACTIVE".
func word(text string) string {
	if _, w, ok := strings.Cut(text, ": "); ok {
		return strings.TrimSpace(w)
	}
	return text
}

// line is the content of a small file, without space around it.
func line(parts ...string) (string, error) {
	f, err := os.Open(filepath.Join(parts...))
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	return strings.TrimSpace(string(text)), err
}

// list is the names in a folder, in order; none if there is no such folder.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
