package ibv

import (
	"fmt"
	"net/netip"
	"strings"
)

// The kinds of a GID, with the values of libibverbs.
const (
	gidInfiniBand = 0 // also RoCE v1 on some kernels, which tell by the link layer
	gidRoCEv1     = 1
	gidRoCEv2     = 2
)

// gidEntry is one row of a port's GID table.
type gidEntry struct {
	index int
	kind  int
	gid   [16]byte
}

// chooseGID is the GID by which a RoCE port is addressed: RoCE v2, which is routed as UDP, and of
// those one with an IPv4 address before a global IPv6 address before a link-local one. The first of
// equals wins. RoCE v1 cannot leave its Ethernet segment and is not spoken.
func chooseGID(table []gidEntry) (gidEntry, error) {
	best, bestRank := gidEntry{}, 0
	for _, e := range table {
		if rank := gidRank(e); rank > bestRank {
			best, bestRank = e, rank
		}
	}
	if bestRank == 0 {
		return best, fmt.Errorf("none of the %d GIDs of the port is RoCE v2; give its network interface an IP address, and see `rdma link`", len(table))
	}
	return best, nil
}

// gidRank is 0 for a GID that cannot be used, and higher the better it is.
func gidRank(e gidEntry) int {
	a := netip.AddrFrom16(e.gid)
	switch {
	case e.kind != gidRoCEv2 || a.IsUnspecified():
		return 0
	case a.Is4In6():
		return 3
	case !a.IsLinkLocalUnicast():
		return 2
	}
	return 1
}

// portState is a port as far as the choice looks at it.
type portState struct {
	device string
	port   int
	active bool
	state  string // for messages
}

// choosePort picks what o names, or the first active port. Ports stand in the order of the host.
func choosePort(ports []portState, o Options) (portState, error) {
	if len(ports) == 0 {
		return portState{}, fmt.Errorf("%w: the host has none, or this process may not see it; /dev/infiniband/uverbs* must be there (for a pod: a device plugin's resource), and `rdma link` lists devices", ErrNoDevice)
	}
	var seen []string
	named := false
	for _, p := range ports {
		seen = append(seen, fmt.Sprintf("%s/%d (%s)", p.device, p.port, p.state))
		if o.Device != "" && p.device != o.Device || o.Port != 0 && p.port != o.Port {
			continue
		}
		named = true
		if p.active {
			return p, nil
		}
	}
	wanted := "device"
	if o.Device != "" {
		wanted = o.Device
	}
	if o.Port != 0 {
		wanted = fmt.Sprintf("%s/%d", wanted, o.Port)
	}
	if named {
		return portState{}, fmt.Errorf("%w: %s is not active: bring its link up; there are %s", ErrNoDevice, wanted, strings.Join(seen, ", "))
	}
	return portState{}, fmt.Errorf("%w: the host has no %s; there are %s", ErrNoDevice, wanted, strings.Join(seen, ", "))
}
