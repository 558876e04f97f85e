// Package hca finds the RDMA devices of a machine in its sysfs: what they are, where they are
// plugged in, what they can do and whether their ports are up. It opens no device and calls no
// driver, so it needs no rights beyond reading the folder that it is given.
package hca

import (
	"fmt"
	"net/netip"
	"path"
)

// Limits on what is read of a machine. What lies beyond is left out; Discover says so.
const (
	MaxHCAs  = 512
	MaxPorts = 8
	MaxGIDs  = 64 // of a port
	// bytes of a device's name, so that names of its slots stay within the 63 bytes of the kubelet
	MaxName = 48
)

// Host is what a machine has.
type Host struct {
	HCAs []HCA // by name
	CM   bool  // the connection manager /dev/infiniband/rdma_cm is there
}

// HCA is one RDMA device.
type HCA struct {
	Name string // of the RDMA device, such as mlx5_0
	// device node below /dev/infiniband by which programs open it, such as uverbs0; empty = there
	// is none
	Verbs    string
	GUID     string
	Firmware string

	// Where it is plugged in. A software device has none of this but interfaces.
	PCI        string // address, such as 0000:3b:00.0
	Vendor     string // four hexadecimal digits
	Product    string // likewise
	Driver     string // of the PCI function, such as mlx5_core
	NUMANode   int    // -1 = unknown
	Interfaces []string
	VF         *VF  // if it is a virtual function
	HasVFs     bool // it is a physical function whose virtual functions are made

	Ports     []Port
	Abilities Abilities
}

// VF says what a virtual function belongs to.
type VF struct {
	Index      int
	PF         string   // PCI address of the physical function
	Interfaces []string // of the physical function
}

// Link layers of a port.
const (
	InfiniBand = "InfiniBand"
	Ethernet   = "Ethernet" // RoCE
)

// Port is a port of an HCA.
type Port struct {
	Number    int
	LinkLayer string // InfiniBand or Ethernet
	State     string // the kernel's word: ACTIVE, DOWN, INIT, ARMED
	Rate      string // the kernel's words, such as 100 Gb/sec (4X EDR)
	GIDs      []GID
}

// Active reports whether the port moves data.
func (p Port) Active() bool { return p.State == "ACTIVE" }

// Kinds of GIDs, in the kernel's words.
const (
	RoCEv1 = "IB/RoCE v1" // also every GID of an InfiniBand port
	RoCEv2 = "RoCE v2"
)

// GID is a row of a port's table of addresses.
type GID struct {
	Index     int
	Address   netip.Addr
	Kind      string
	Interface string // of RoCE
}

// Best is the port that a program should use: the first active one that has an address. If there is
// none, the error says what to do.
func (h HCA) Best() (Port, GID, error) {
	var why error
	for _, p := range h.Ports {
		if !p.Active() {
			if why == nil {
				why = fmt.Errorf("port %d is %s: bring its link up", p.Number, p.State)
			}
			continue
		}
		g, err := p.Address()
		if err == nil {
			return p, g, nil
		}
		why = fmt.Errorf("port %d is active, but %w", p.Number, err)
	}
	if why == nil {
		why = fmt.Errorf("it has no ports")
	}
	return Port{}, GID{}, why
}

// Address is the GID by which a port is addressed: the first one of InfiniBand; of RoCE the one
// that package ibv chooses, too: RoCE v2, and of those one with an IPv4 address before a global
// IPv6 address before a link-local one, the first of equals.
func (p Port) Address() (GID, error) {
	best, bestRank := GID{}, 0
	for _, g := range p.GIDs {
		if p.LinkLayer == InfiniBand {
			return g, nil
		}
		if rank := rank(g); rank > bestRank {
			best, bestRank = g, rank
		}
	}
	if bestRank > 0 {
		return best, nil
	}
	if p.LinkLayer == InfiniBand {
		return GID{}, fmt.Errorf("it has no GID: is a subnet manager running?")
	}
	return GID{}, fmt.Errorf("none of its %d GIDs is RoCE v2: give its network interface an IP address", len(p.GIDs))
}

// rank is 0 for a GID that RoCE cannot use, and higher the better it is.
func rank(g GID) int {
	switch {
	case g.Kind != RoCEv2 || g.Address.IsUnspecified():
		return 0
	case g.Address.Is4In6():
		return 3
	case !g.Address.IsLinkLocalUnicast():
		return 2
	}
	return 1
}

// Healthy is nil if programs can use the HCA now, else it says what is missing.
func (h HCA) Healthy() error {
	if h.Verbs == "" {
		return fmt.Errorf("it has no device node below /dev/infiniband: load the kernel module ib_uverbs")
	}
	_, _, err := h.Best()
	return err
}

// Node is the path of the device node below dev.
func (h HCA) Node(dev string) string { return path.Join(dev, "infiniband", h.Verbs) }
