package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/k8snetworkplumbingwg/sriov-network-device-plugin/pkg/types"

	"github.com/dmindex/dmindex/deviceplugin/hca"
)

// defaultPrefix is of resources of the SR-IOV plugin's configuration that name none.
const defaultPrefix = "dmindex.io"

// sriovEntry is an understood entry of the SR-IOV plugin's configuration.
type sriovEntry struct {
	name      string // with its prefix
	topology  bool
	selectors []types.NetDeviceSelectors // any of them; none = all
	unknown   string                     // a selector that is not understood
}

// addSRIOV takes the SR-IOV plugin's configuration in, as what to refuse or as what to advertise.
func (s *Settings) addSRIOV(o SRIOV, read func(string) ([]byte, error)) error {
	if o.Use != Refuse && o.Use != Advertise {
		return fmt.Errorf("use is %q: write %s if that plugin runs, %s if this one takes its place", o.Use, Refuse, Advertise)
	}
	text, err := read(o.File)
	if err != nil {
		return err
	}
	prefix := o.ResourcePrefix
	if prefix == "" {
		prefix = defaultPrefix
	}
	entries, err := parseSRIOV(text, prefix)
	if err != nil {
		return fmt.Errorf("%s: %w", o.File, err)
	}
	for i, e := range entries {
		if o.Use == Refuse {
			if e.unknown != "" {
				s.Warnings = append(s.Warnings, fmt.Sprintf("%s: resource %s: %s; it is taken to select more than it may", o.File, e.name, e.unknown))
			}
			s.Claims = append(s.Claims, Claim{"SR-IOV device plugin, resource " + e.name, e.selects})
			continue
		}
		if e.unknown != "" {
			return fmt.Errorf("%s: resource %s: %s: leave it out, or use %s", o.File, e.name, e.unknown, Refuse)
		}
		if !e.rdma() {
			continue
		}
		if err := checkName(e.name); err != nil {
			return fmt.Errorf("%s: %w", o.File, err)
		}
		// that plugin gives a device to the first entry that selects it, whatever it is
		earlier := entries[:i]
		s.Resources = append(s.Resources, Resource{Name: e.name, Slots: 1, Topology: e.topology, SRIOV: true, Selects: func(h hca.HCA) bool {
			return e.selects(h) && !slices.ContainsFunc(earlier, func(o sriovEntry) bool { return !o.rdma() && o.selects(h) })
		}})
	}
	return nil
}

// parseSRIOV understands the configuration of the SR-IOV plugin. Entries that cannot be about RDMA
// are left out.
func parseSRIOV(text []byte, prefix string) ([]sriovEntry, error) {
	var file types.ResourceConfList
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("not the JSON of an SR-IOV device plugin's config.json: %w", err)
	}
	if len(file.ResourceList) == 0 || len(file.ResourceList) > MaxResources {
		return nil, fmt.Errorf("resourceList has %d entries: want 1 to %d", len(file.ResourceList), MaxResources)
	}
	var entries []sriovEntry
	for _, r := range file.ResourceList {
		if r.DeviceType != "" && r.DeviceType != types.NetDeviceType {
			continue
		}
		if r.ResourceName == "" {
			return nil, fmt.Errorf("an entry of resourceList has no resourceName")
		}
		e := sriovEntry{name: prefix + "/" + r.ResourceName, topology: !r.ExcludeTopology}
		if r.ResourcePrefix != "" {
			e.name = r.ResourcePrefix + "/" + r.ResourceName
		}
		if r.Selectors != nil {
			if err := e.parseSelectors(*r.Selectors); err != nil {
				return nil, fmt.Errorf("resource %s: selectors: %w", e.name, err)
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseSelectors reads one object or, as newer versions write it, a list of them.
func (e *sriovEntry) parseSelectors(text json.RawMessage) error {
	objects := []json.RawMessage{text}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		if err := json.Unmarshal(text, &objects); err != nil {
			return err
		}
	}
	for _, o := range objects {
		var s types.NetDeviceSelectors
		if err := json.Unmarshal(o, &s); err != nil {
			return err
		}
		strict := json.NewDecoder(bytes.NewReader(o))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&types.NetDeviceSelectors{}); err != nil {
			e.unknown = strings.TrimPrefix(err.Error(), "json: ")
		}
		for _, list := range [][]string{s.PfNames, s.RootDevices} {
			for _, text := range list {
				if _, err := parseFunctions(text); err != nil {
					return err
				}
			}
		}
		e.selectors = append(e.selectors, s)
	}
	return nil
}

// rdma reports whether the entry's pods get RDMA devices.
func (e sriovEntry) rdma() bool {
	return slices.ContainsFunc(e.selectors, func(s types.NetDeviceSelectors) bool { return s.IsRdma })
}

// selects reports whether the SR-IOV plugin gives the PCI function of h to the entry. It knows only
// network devices on PCI, and no physical functions whose virtual functions are made.
func (e sriovEntry) selects(h hca.HCA) bool {
	if h.PCI == "" || h.HasVFs {
		return false
	}
	return len(e.selectors) == 0 || slices.ContainsFunc(e.selectors, func(s types.NetDeviceSelectors) bool { return sriovSelects(s, h) })
}

// linkTypes are that plugin's words for link layers.
var linkTypes = map[string]string{hca.Ethernet: "ether", hca.InfiniBand: "infiniband"}

func sriovSelects(s types.NetDeviceSelectors, h hca.HCA) bool {
	has := func(list []string, fits func(string) bool) bool {
		return len(list) == 0 || slices.ContainsFunc(list, fits)
	}
	is := func(values ...string) func(string) bool {
		return func(want string) bool { return slices.Contains(values, want) }
	}
	pf, pfInterfaces, index := h.PCI, h.Interfaces, -1
	if h.VF != nil {
		pf, pfInterfaces, index = h.VF.PF, h.VF.Interfaces, h.VF.Index
	}
	functions := func(names ...string) func(string) bool {
		return func(text string) bool {
			f, err := parseFunctions(text)
			return err == nil && slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, f.of) }) && f.has(index)
		}
	}
	var types []string
	for _, p := range h.Ports {
		types = append(types, linkTypes[p.LinkLayer])
	}
	return len(s.DDPProfiles) == 0 && s.VdpaType == "" && // neither is to be had with RDMA
		has(s.Vendors, is(h.Vendor)) &&
		has(s.Devices, is(h.Product)) &&
		has(s.Drivers, is(h.Driver)) &&
		has(s.PciAddresses, is(h.PCI)) &&
		has(s.LinkTypes, is(types...)) &&
		has(s.PfNames, functions(pfInterfaces...)) &&
		has(s.RootDevices, functions(pf))
}

// functions are virtual functions of a physical one, written NAME#0,3-5; NAME alone means all.
type functions struct {
	of     string
	ranges [][2]int
}

func parseFunctions(text string) (functions, error) {
	wrong := func() (functions, error) {
		return functions{}, fmt.Errorf("%q: write NAME or NAME#FIRST-LAST,SINGLE", text)
	}
	name, list, some := strings.Cut(text, "#")
	f := functions{of: name}
	if name == "" {
		return wrong()
	}
	if !some {
		return f, nil
	}
	for _, item := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(item, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || first < 0 || last < first {
			return wrong()
		}
		f.ranges = append(f.ranges, [2]int{first, last})
	}
	return f, nil
}

func (f functions) has(index int) bool {
	return f.ranges == nil || slices.ContainsFunc(f.ranges, func(r [2]int) bool { return r[0] <= index && index <= r[1] })
}
