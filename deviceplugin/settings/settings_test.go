package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/deviceplugin/hca"
)

// files writes files into a folder; FOLDER in their text is that folder.
func files(t *testing.T, content map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "FOLDER", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func load1(t *testing.T, content map[string]string) (Settings, error) {
	t.Helper()
	s, _, err := Load(filepath.Join(files(t, content), "settings.yaml"))
	return s, err
}

func port(layer string) []hca.Port { return []hca.Port{{Number: 1, LinkLayer: layer, State: "ACTIVE"}} }

// A machine: a physical function with two virtual ones, an InfiniBand HCA, Soft-RoCE.
var machine = []hca.HCA{
	{Name: "mlx5_0", PCI: "0000:3b:00.0", Vendor: "15b3", Product: "1017", Driver: "mlx5_core", Interfaces: []string{"ens1"}, HasVFs: true, Ports: port(hca.Ethernet)},
	{Name: "mlx5_1", PCI: "0000:3b:00.1", Vendor: "15b3", Product: "1018", Driver: "mlx5_core", Interfaces: []string{"ens1v0"}, Ports: port(hca.Ethernet),
		VF: &hca.VF{Index: 0, PF: "0000:3b:00.0", Interfaces: []string{"ens1"}}},
	{Name: "mlx5_2", PCI: "0000:3b:00.2", Vendor: "15b3", Product: "1018", Driver: "mlx5_core", Interfaces: []string{"ens1v1"}, Ports: port(hca.Ethernet),
		VF: &hca.VF{Index: 1, PF: "0000:3b:00.0", Interfaces: []string{"ens1"}}},
	{Name: "mlx5_3", PCI: "0000:5e:00.0", Vendor: "15b3", Product: "101b", Driver: "mlx5_core", Interfaces: []string{"ibs2"}, Ports: port(hca.InfiniBand)},
	{Name: "rxe0", Interfaces: []string{"eth0"}, Ports: port(hca.Ethernet)},
}

// divided is what becomes of the machine: RESOURCE: names; refused: names.
func divided(s Settings, advertised func(hca.HCA) (string, bool)) string {
	if advertised == nil {
		advertised = func(hca.HCA) (string, bool) { return "", false }
	}
	given, refused := s.Divide(machine, advertised)
	var lines []string
	for i, r := range s.Resources {
		line := r.Name + ":"
		for _, h := range given[i] {
			line += " " + h.Name
		}
		lines = append(lines, line)
	}
	if len(refused) > 0 {
		line := "refused:"
		for _, r := range refused {
			line += " " + r.HCA.Name
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// TestDivide: which HCA goes where, by settings alone.
func TestDivide(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		s, err := load1(t, map[string]string{"settings.yaml": text})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		if got := divided(s, nil); got != want {
			t.Errorf("%s\ngives %q, want %q", text, got, want)
		}
	}
	f("", "dmindex.io/rdma: mlx5_0 mlx5_1 mlx5_2 mlx5_3 rxe0")
	f("resources: [{name: a.b/c}]", "a.b/c: mlx5_0 mlx5_1 mlx5_2 mlx5_3 rxe0")
	f("resources: [{name: a.b/ib, select: [{linkLayers: [InfiniBand]}]}, {name: a.b/rest}]", "a.b/ib: mlx5_3; a.b/rest: mlx5_0 mlx5_1 mlx5_2 rxe0")
	f("resources: [{name: a.b/c, select: [{devices: [mlx5_*], products: ['1018']}, {interfaces: [eth0]}]}]", "a.b/c: mlx5_1 mlx5_2 rxe0")
	f("resources: [{name: a.b/c, select: [{pciAddresses: ['0000:3b:*'], drivers: [mlx5_core], vendors: [15b3]}]}]", "a.b/c: mlx5_0 mlx5_1 mlx5_2")
	f("resources: [{name: a.b/c, select: [{vendors: ['8086']}]}]", "a.b/c:")

	s, err := load1(t, map[string]string{"settings.yaml": ""})
	if err != nil {
		t.Fatal(err)
	}
	if got := divided(s, func(h hca.HCA) (string, bool) { return "x/y", h.Name == "mlx5_3" }); got != "dmindex.io/rdma: mlx5_0 mlx5_1 mlx5_2 rxe0; refused: mlx5_3" {
		t.Errorf("with another plugin's HCA: %q", got)
	}
	if r := Default().Resources; len(r) != 1 || r[0].Name != DefaultResource || r[0].Slots != DefaultSlots || !r[0].Topology || r[0].SRIOV {
		t.Errorf("the default is %+v", r)
	}
}

// sriovConfig is what the SR-IOV plugin's users have.
const sriovConfig = `{"resourceList": [
	{"resourceName": "dpdk", "selectors": {"vendors": ["8086"], "drivers": ["vfio-pci"]}},
	{"resourceName": "fpga", "deviceType": "accelerator", "selectors": {"devices": ["1018"]}},
	{"resourceName": "net", "selectors": {"pfNames": ["ens1#1"], "isRdma": false}},
	{"resourceName": "roce", "resourcePrefix": "mellanox.com", "excludeTopology": true, "selectors": {"vendors": ["15b3"], "pfNames": ["ens1"], "isRdma": true}},
	{"resourceName": "ib", "selectors": [{"linkTypes": ["infiniband"], "isRdma": true}]}
]}`

// TestSRIOV: the SR-IOV plugin's HCAs are left to it, or its resources are advertised here.
func TestSRIOV(t *testing.T) {
	f := func(settings, sriov, want string) Settings {
		t.Helper()
		s, err := load1(t, map[string]string{"settings.yaml": settings, "config.json": sriov})
		if err != nil {
			t.Errorf("%s: %v", settings, err)
			return s
		}
		if got := divided(s, nil); got != want {
			t.Errorf("%s\ngives %q, want %q", settings, got, want)
		}
		return s
	}
	// mlx5_0 has virtual functions and is not the SR-IOV plugin's; nor is what is not on PCI.
	s := f("sriov: {file: FOLDER/config.json, use: Refuse}", sriovConfig, "dmindex.io/rdma: mlx5_0 rxe0; refused: mlx5_1 mlx5_2 mlx5_3")
	if _, refused := s.Divide(machine[1:2], func(hca.HCA) (string, bool) { return "", false }); len(refused) != 1 ||
		refused[0].Reason != "SR-IOV device plugin, resource mellanox.com/roce" {
		t.Errorf("refused: %+v", refused)
	}
	// mlx5_2 belongs to the entry "net", which has no RDMA.
	s = f("sriov: {file: FOLDER/config.json, use: Advertise, resourcePrefix: intel.com}", sriovConfig, "mellanox.com/roce: mlx5_1; intel.com/ib: mlx5_3")
	if r := s.Resources; len(r) != 2 || r[0].Slots != 1 || r[0].Topology || !r[0].SRIOV || !r[1].Topology {
		t.Errorf("resources: %+v", r)
	}
	f("{resources: [{name: dmindex.io/rdma, select: [{devices: [rxe0, mlx5_3]}]}], sriov: {file: FOLDER/config.json, use: Advertise}}", sriovConfig,
		"dmindex.io/rdma: mlx5_3 rxe0; mellanox.com/roce: mlx5_1; dmindex.io/ib:")
	selectors := func(text, refused string) Settings {
		t.Helper()
		want := "dmindex.io/rdma: mlx5_0"
		for _, name := range []string{"mlx5_1", "mlx5_2", "mlx5_3", "rxe0"} {
			if !strings.Contains(refused, name) {
				want += " " + name
			}
		}
		if refused != "" {
			want += "; refused: " + refused
		}
		return f("sriov: {file: FOLDER/config.json, use: Refuse}", `{"resourceList": [{"resourceName": "x", "selectors": `+text+`}]}`, want)
	}
	selectors(`{"pfNames": ["ENS1#0-0,2-9"]}`, "mlx5_1")
	selectors(`{"pfNames": ["ibs2"]}`, "mlx5_3")
	selectors(`{"pfNames": ["ibs2#0"]}`, "") // not a virtual function
	selectors(`{"rootDevices": ["0000:3b:00.0#1"]}`, "mlx5_2")
	selectors(`{"pciAddresses": ["0000:3b:00.1", "0000:5e:00.0"]}`, "mlx5_1 mlx5_3")
	selectors(`{"linkTypes": ["ether"]}`, "mlx5_1 mlx5_2")
	selectors(`{"linkTypes": ["ether"], "ddpProfiles": ["gtp"]}`, "")
	selectors(`[{"devices": ["101b"]}, {"devices": ["1018"], "drivers": ["mlx5_core"]}]`, "mlx5_1 mlx5_2 mlx5_3")
	selectors(`{}`, "mlx5_1 mlx5_2 mlx5_3")
	// more than it may select, rather than less
	s = selectors(`{"devices": ["101b"], "acpiIndexes": ["1"]}`, "mlx5_3")
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], `unknown field "acpiIndexes"`) {
		t.Errorf("warnings: %q", s.Warnings)
	}
}

// TestShared: HCAs of the RDMA shared device plugin are left to it.
func TestShared(t *testing.T) {
	f := func(config, want string) {
		t.Helper()
		s, err := load1(t, map[string]string{"settings.yaml": "sharedRDMA: {file: FOLDER/config.json}", "config.json": config})
		if err != nil {
			t.Fatal(err)
		}
		if got := divided(s, nil); got != want {
			t.Errorf("%s\ngives %q, want %q", config, got, want)
		}
	}
	f(`{"periodicUpdateInterval": 300, "configList": [{"resourceName": "a", "rdmaHcaMax": 1000, "selectors": {"vendors": ["15b3"], "linkTypes": ["infiniband"]}}]}`,
		"dmindex.io/rdma: mlx5_0 mlx5_1 mlx5_2 rxe0; refused: mlx5_3")
	f(`{"configList": [{"resourceName": "a", "devices": ["ens1"]}, {"resourceName": "b", "selectors": {"deviceIDs": ["1018"], "ifNames": ["ens1v1"]}}]}`,
		"dmindex.io/rdma: mlx5_1 mlx5_3 rxe0; refused: mlx5_0 mlx5_2")
}

// TestWrong: what cannot be used is refused with words that say what to write.
func TestWrong(t *testing.T) {
	f := func(settings, config, want string) {
		t.Helper()
		_, err := load1(t, map[string]string{"settings.yaml": settings, "config.json": config})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %s: %v, want %q", settings, config, err, want)
		}
	}
	own := func(resource, want string) {
		t.Helper()
		f("resources: ["+resource+"]", "", want)
	}
	own("{name: rdma}", "has no domain: write DOMAIN/NAME, such as dmindex.io/rdma")
	own("{name: a.b/c/d}", "resource name")
	own("{name: A_b/c}", "resource name")
	own("{name: x.kubernetes.io/rdma}", "belongs to Kubernetes")
	own("{name: "+strings.Repeat("a", 60)+".b/"+strings.Repeat("c", 20)+"}", "has 83 bytes: at most 70 are possible")
	own("{name: a.b/c, slots: 1001}", "slots is 1001: write 1 to 1000")
	own("{name: a.b/c, slots: -1}", "slots is -1: write 1 to 1000")
	own("{name: a.b/c, slot: 3}", `unknown field "slot"`)
	own("{name: a.b/c, select: [{}]}", "select[0]: it is empty: leave select out to take all HCAs")
	own("{name: a.b/c, select: [{linkLayers: [RoCE]}]}", `"RoCE" is neither InfiniBand nor Ethernet`)
	own("{name: a.b/c, select: [{devices: ['[']}]}", "no pattern")
	own("{name: a.b/c}, {name: a.b/c}", "a.b/c stands twice")
	own("", "0 resources to advertise: write 1 to 32")
	f("nonsense", "", "settings")
	f("sriov: {file: FOLDER/config.json}", "{}", `use is "": write Refuse if that plugin runs, Advertise if this one takes its place`)
	refuse := "sriov: {file: FOLDER/config.json, use: Refuse}"
	f("sriov: {file: FOLDER/absent.json, use: Refuse}", "", "no such file")
	f(refuse, "resourceList:", "not the JSON of an SR-IOV device plugin's config.json")
	f(refuse, "{}", "resourceList has 0 entries")
	f(refuse, `{"resourceList": [{"selectors": {}}]}`, "no resourceName")
	f(refuse, `{"resourceList": [{"resourceName": "x", "selectors": {"pfNames": ["ens1#3-1"]}}]}`, "write NAME or NAME#FIRST-LAST,SINGLE")
	f(refuse, `{"resourceList": [{"resourceName": "x", "selectors": {"rootDevices": ["#1"]}}]}`, "write NAME or NAME#FIRST-LAST,SINGLE")
	f(refuse, `{"resourceList": [{"resourceName": "x", "selectors": [1]}]}`, "selectors")
	advertise := "sriov: {file: FOLDER/config.json, use: Advertise}"
	f(advertise, `{"resourceList": [{"resourceName": "x", "selectors": {"isRdma": true, "acpiIndexes": ["1"]}}]}`, "leave it out, or use Refuse")
	f(advertise, `{"resourceList": [{"resourceName": "x y", "selectors": {"isRdma": true}}]}`, "resource name")
	f(advertise, `{"resourceList": [{"resourceName": "x", "selectors": {}}]}`, "0 resources to advertise")
	f("sharedRDMA: {file: FOLDER/config.json}", "[]", "not the JSON of an RDMA shared device plugin's config.json")
	f("sharedRDMA: {file: FOLDER/config.json}", "{}", "configList has 0 entries")
	f(refuse, strings.Repeat(" ", maxFile+1), "at most 1048576 are read")
}

// TestLoadSaysWhatItRead: what was read changes with any of the files, also if they are wrong.
func TestLoadSaysWhatItRead(t *testing.T) {
	dir := files(t, map[string]string{"settings.yaml": "sriov: {file: FOLDER/config.json, use: Refuse}", "config.json": sriovConfig})
	name := filepath.Join(dir, "settings.yaml")
	_, first, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, again, _ := Load(name); again != first {
		t.Error("what was read differs although nothing has changed")
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, second, err := Load(name)
	if err == nil || second == first {
		t.Errorf("a changed file of another plugin: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "config.json")); err != nil {
		t.Fatal(err)
	}
	if _, third, err := Load(name); err == nil || third == second {
		t.Errorf("a file that went: %v", err)
	}
}

// FuzzSRIOV: whatever another plugin's configuration holds, it is an error or can be used.
func FuzzSRIOV(f *testing.F) {
	f.Add([]byte(sriovConfig), true)
	f.Add([]byte(sriovConfig), false)
	f.Add([]byte(`{"resourceList": [{"resourceName": "x", "selectors": [{"pfNames": ["a#0,2-5"], "rootDevices": ["0000:3b:00.0"], "isRdma": true}]}]}`), true)
	f.Fuzz(func(t *testing.T, config []byte, advertise bool) {
		use := Refuse
		if advertise {
			use = Advertise
		}
		own := File{SRIOV: &SRIOV{File: "config.json", Use: use}}
		s, err := own.resolve(func(string) ([]byte, error) { return config, nil })
		if err != nil {
			return
		}
		given, refused := s.Divide(machine, func(hca.HCA) (string, bool) { return "", false })
		seen := map[string]bool{}
		for _, hcas := range given {
			for _, h := range hcas {
				if seen[h.Name] {
					t.Errorf("%s was given twice", h.Name)
				}
				seen[h.Name] = true
			}
		}
		for _, r := range refused {
			if seen[r.HCA.Name] {
				t.Errorf("%s was given and refused", r.HCA.Name)
			}
		}
		for _, r := range s.Resources {
			if checkName(r.Name) != nil || r.Slots < 1 || r.Slots > MaxSlots {
				t.Errorf("resource %+v was accepted", r)
			}
		}
	})
}
