package deviceplugin

import (
	"encoding/json"
	"path"
	"strconv"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/dmindex/dmindex/deviceplugin/hca"
)

// The environment of a container that was given slots: docs/rdma.md is its contract. Each variable
// is a list with an entry for each HCA, in the same order, separated by commas. It says what held
// when the container was admitted.
const (
	EnvDevice    = "DMINDEX_RDMA_DEVICE"     // name, such as mlx5_0
	EnvPort      = "DMINDEX_RDMA_PORT"       // number of the port to use
	EnvGIDIndex  = "DMINDEX_RDMA_GID_INDEX"  // row of the port's table of addresses
	EnvGID       = "DMINDEX_RDMA_GID"        // that address
	EnvLinkLayer = "DMINDEX_RDMA_LINK_LAYER" // InfiniBand or Ethernet
	EnvNUMANode  = "DMINDEX_RDMA_NUMA_NODE"  // -1 = unknown
	EnvPCI       = "DMINDEX_RDMA_PCI"        // address, empty for a software device
)

// containerDev is where containers find devices.
const containerDev = "/dev"

// environment is what a container is told about its HCAs, which are healthy.
func environment(hcas []hca.HCA) map[string]string {
	lists := map[string][]string{}
	for _, h := range hcas {
		port, gid, err := h.Best()
		if err != nil {
			continue // its slots are not given out
		}
		for name, value := range map[string]string{
			EnvDevice: h.Name, EnvPort: strconv.Itoa(port.Number), EnvGIDIndex: strconv.Itoa(gid.Index), EnvGID: gid.Address.String(),
			EnvLinkLayer: port.LinkLayer, EnvNUMANode: strconv.Itoa(h.NUMANode), EnvPCI: h.PCI,
		} {
			lists[name] = append(lists[name], value)
		}
	}
	env := map[string]string{}
	for name, values := range lists {
		env[name] = strings.Join(values, ",")
	}
	return env
}

// sriovEnvironment is what the SR-IOV network device plugin would tell, for programs that look for
// that.
func sriovEnvironment(resource string, hcas []hca.HCA, cm bool) map[string]string {
	type about struct {
		Generic map[string]string `json:"generic"`
		RDMA    map[string]string `json:"rdma"`
	}
	info := map[string]about{}
	var addresses []string
	for _, h := range hcas {
		addresses = append(addresses, h.PCI)
		nodes := map[string]string{"uverbs": h.Node(containerDev)}
		if cm {
			nodes["rdma_cm"] = cmNode(containerDev)
		}
		info[h.PCI] = about{map[string]string{"deviceID": h.PCI}, nodes}
	}
	text, err := json.Marshal(info)
	if err != nil {
		panic(err) // strings only
	}
	name := "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(resource))
	return map[string]string{name: strings.Join(addresses, ","), name + "_INFO": string(text)}
}

// deviceNodes are the device nodes of HCAs, with the machine's /dev at dev: that of each for verbs,
// and the connection manager's, which is one for all. Those for subnet management are not among
// them.
func deviceNodes(dev string, hcas []hca.HCA, cm bool) []*pluginapi.DeviceSpec {
	var nodes []*pluginapi.DeviceSpec
	for _, h := range hcas {
		nodes = append(nodes, &pluginapi.DeviceSpec{HostPath: h.Node(dev), ContainerPath: h.Node(containerDev), Permissions: "rw"})
	}
	if cm {
		nodes = append(nodes, &pluginapi.DeviceSpec{HostPath: cmNode(dev), ContainerPath: cmNode(containerDev), Permissions: "rw"})
	}
	return nodes
}

func cmNode(dev string) string { return path.Join(dev, "infiniband", "rdma_cm") }
