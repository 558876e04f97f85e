// Package settings reads what the device plugin is to advertise, and what it must leave to other
// plugins: a file of its own, and the configurations of the SR-IOV network device plugin and of the
// RDMA shared device plugin.
package settings

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/dmindex/dmindex/deviceplugin/hca"
)

// Defaults and limits.
const (
	DefaultResource = "dmindex.io/rdma"
	DefaultSlots    = 16
	MaxSlots        = 1000
	MaxResources    = 32
	maxName         = 70 // of a resource: the path of its socket has at most 107 bytes
	maxFile         = 1 << 20
)

// File is the format of the plugin's own file, in YAML or JSON.
type File struct {
	// Resources are what to advertise. An HCA belongs to the first one that selects it. Default:
	// dmindex.io/rdma with all HCAs.
	Resources []OwnResource `json:"resources,omitempty"`
	// SRIOV names the configuration of the SR-IOV network device plugin.
	SRIOV *SRIOV `json:"sriov,omitempty"`
	// SharedRDMA names the configuration of the RDMA shared device plugin: its HCAs are left to it.
	SharedRDMA *Other `json:"sharedRDMA,omitempty"`
}

// OwnResource is an extended resource of the plugin's own.
type OwnResource struct {
	Name string `json:"name"` // such as dmindex.io/rdma
	// of each HCA: how many containers can share it; default 16
	Slots int `json:"slots,omitempty"`
	// Select: the HCAs that any of these selects. Default: all.
	Select []Selector `json:"select,omitempty"`
	// ExcludeTopology leaves NUMA nodes out of what the kubelet is told.
	ExcludeTopology bool `json:"excludeTopology,omitempty"`
}

// Selector selects HCAs for which each field that is set has a fitting entry. Entries may contain *
// and ? as in file names.
type Selector struct {
	Devices      []string `json:"devices,omitempty"`      // names, such as mlx5_*
	PCIAddresses []string `json:"pciAddresses,omitempty"` // such as 0000:3b:00.0
	Interfaces   []string `json:"interfaces,omitempty"`   // network interfaces
	Vendors      []string `json:"vendors,omitempty"`      // PCI vendors, such as 15b3
	Products     []string `json:"products,omitempty"`     // PCI products, such as 1017
	Drivers      []string `json:"drivers,omitempty"`      // such as mlx5_core
	LinkLayers   []string `json:"linkLayers,omitempty"`   // InfiniBand, Ethernet
}

// Other names another plugin's configuration.
type Other struct {
	File string `json:"file"`
}

// Uses of the SR-IOV plugin's configuration.
const (
	Refuse    = "Refuse"    // that plugin runs: what it selects is left to it
	Advertise = "Advertise" // it does not run: its resources with isRdma are advertised here
)

// SRIOV says what to do about the SR-IOV network device plugin.
type SRIOV struct {
	File string `json:"file"`
	Use  string `json:"use"` // Refuse or Advertise
	// ResourcePrefix is of resources whose own entry has none. Default: dmindex.io. That plugin's
	// own default is intel.com.
	ResourcePrefix string `json:"resourcePrefix,omitempty"`
}

// Settings is what holds, from all files.
type Settings struct {
	Resources []Resource
	Claims    []Claim
	Warnings  []string // what is odd, but was understood
}

// Resource is an extended resource to advertise.
type Resource struct {
	Name     string
	Slots    int
	Topology bool // tell the kubelet NUMA nodes
	SRIOV    bool // keep the environment contract of the SR-IOV plugin, too
	Selects  func(hca.HCA) bool
}

// Claim is what another plugin advertises by its configuration.
type Claim struct {
	Owner   string // for people: plugin and resource
	Selects func(hca.HCA) bool
}

// Default is what holds without a file.
func Default() Settings {
	s, err := File{}.resolve(nil)
	if err != nil {
		panic(err)
	}
	return s
}

// Load reads a file, and those that it names. The second result is all that was read, so that the
// caller can tell whether anything changed; it is there even if what was read is wrong.
func Load(file string) (Settings, string, error) {
	var read strings.Builder
	reader := func(name string) ([]byte, error) {
		content, err := readSmall(name)
		fmt.Fprintf(&read, "%s %v\n%s\n", name, err, content)
		return content, err
	}
	s, err := load(file, reader)
	return s, read.String(), err
}

func load(file string, read func(string) ([]byte, error)) (Settings, error) {
	text, err := read(file)
	if err != nil {
		return Settings{}, fmt.Errorf("settings: %w", err)
	}
	var f File
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return Settings{}, fmt.Errorf("settings %s: %w", file, err)
	}
	s, err := f.resolve(read)
	if err != nil {
		return Settings{}, fmt.Errorf("settings %s: %w", file, err)
	}
	return s, nil
}

func readSmall(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes: at most %d are read", name, info.Size(), maxFile)
	}
	return os.ReadFile(name)
}

// resolve checks f, fills in defaults and reads the files that it names.
func (f File) resolve(read func(string) ([]byte, error)) (Settings, error) {
	var s Settings
	own := f.Resources
	if own == nil && (f.SRIOV == nil || f.SRIOV.Use != Advertise) {
		own = []OwnResource{{Name: DefaultResource}}
	}
	for i, r := range own {
		resource, err := r.resolve()
		if err != nil {
			return s, fmt.Errorf("resources[%d]: %w", i, err)
		}
		s.Resources = append(s.Resources, resource)
	}
	if f.SRIOV != nil {
		if err := s.addSRIOV(*f.SRIOV, read); err != nil {
			return s, fmt.Errorf("sriov: %w", err)
		}
	}
	if f.SharedRDMA != nil {
		if err := s.addShared(*f.SharedRDMA, read); err != nil {
			return s, fmt.Errorf("sharedRDMA: %w", err)
		}
	}
	if len(s.Resources) == 0 || len(s.Resources) > MaxResources {
		return s, fmt.Errorf("%d resources to advertise: write 1 to %d", len(s.Resources), MaxResources)
	}
	for i, r := range s.Resources {
		if slices.ContainsFunc(s.Resources[:i], func(o Resource) bool { return o.Name == r.Name }) {
			return s, fmt.Errorf("resource %s stands twice: give each a name of its own", r.Name)
		}
	}
	return s, nil
}

func (r OwnResource) resolve() (Resource, error) {
	if r.Slots == 0 {
		r.Slots = DefaultSlots
	}
	if r.Slots < 1 || r.Slots > MaxSlots {
		return Resource{}, fmt.Errorf("slots is %d: write 1 to %d", r.Slots, MaxSlots)
	}
	if err := checkName(r.Name); err != nil {
		return Resource{}, err
	}
	for i, s := range r.Select {
		if err := s.check(); err != nil {
			return Resource{}, fmt.Errorf("select[%d]: %w", i, err)
		}
	}
	return Resource{Name: r.Name, Slots: r.Slots, Topology: !r.ExcludeTopology, Selects: func(h hca.HCA) bool {
		return len(r.Select) == 0 || slices.ContainsFunc(r.Select, func(s Selector) bool { return s.selects(h) })
	}}, nil
}

// checkName refuses what the kubelet would refuse.
func checkName(name string) error {
	domain, _, ok := strings.Cut(name, "/")
	if !ok {
		return fmt.Errorf("resource name %q has no domain: write DOMAIN/NAME, such as %s", name, DefaultResource)
	}
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return fmt.Errorf("resource name %q: %s", name, strings.Join(problems, "; "))
	}
	if len(name) > maxName {
		return fmt.Errorf("resource name %q has %d bytes: at most %d are possible", name, len(name), maxName)
	}
	if domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		return fmt.Errorf("resource name %q: the domain kubernetes.io belongs to Kubernetes; take one of yours", name)
	}
	return nil
}

// fields are what a selector has, with what an HCA has of each.
func (s Selector) fields(h hca.HCA) []field {
	var layers []string
	for _, p := range h.Ports {
		layers = append(layers, p.LinkLayer)
	}
	return []field{
		{"devices", s.Devices, []string{h.Name}},
		{"pciAddresses", s.PCIAddresses, []string{h.PCI}},
		{"interfaces", s.Interfaces, h.Interfaces},
		{"vendors", s.Vendors, []string{h.Vendor}},
		{"products", s.Products, []string{h.Product}},
		{"drivers", s.Drivers, []string{h.Driver}},
		{"linkLayers", s.LinkLayers, layers},
	}
}

type field struct {
	name      string
	want, has []string
}

func (s Selector) check() error {
	set := 0
	for _, f := range s.fields(hca.HCA{}) {
		set += len(f.want)
		for _, pattern := range f.want {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return fmt.Errorf("%s: %q is no pattern", f.name, pattern)
			}
		}
	}
	if set == 0 {
		return errors.New("it is empty: leave select out to take all HCAs")
	}
	for _, l := range s.LinkLayers {
		if l != hca.InfiniBand && l != hca.Ethernet {
			return fmt.Errorf("linkLayers: %q is neither %s nor %s", l, hca.InfiniBand, hca.Ethernet)
		}
	}
	return nil
}

func (s Selector) selects(h hca.HCA) bool {
	for _, f := range s.fields(h) {
		if len(f.want) > 0 && !slices.ContainsFunc(f.has, func(has string) bool {
			return slices.ContainsFunc(f.want, func(pattern string) bool {
				ok, _ := path.Match(pattern, has)
				return ok
			})
		}) {
			return false
		}
	}
	return true
}
