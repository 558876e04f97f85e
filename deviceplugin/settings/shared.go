package settings

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/deviceplugin/hca"
)

// sharedFile is the configuration of the RDMA shared device plugin, as far as it says which HCAs
// are its own.
type sharedFile struct {
	ConfigList []struct {
		ResourceName   string   `json:"resourceName"`
		ResourcePrefix string   `json:"resourcePrefix"`
		Devices        []string `json:"devices"` // network interfaces
		Selectors      struct {
			Vendors   []string `json:"vendors"`
			DeviceIDs []string `json:"deviceIDs"`
			Drivers   []string `json:"drivers"`
			IfNames   []string `json:"ifNames"`
			LinkTypes []string `json:"linkTypes"`
		} `json:"selectors"`
	} `json:"configList"`
}

// addShared takes the RDMA shared device plugin's configuration in, as what to refuse.
func (s *Settings) addShared(o Other, read func(string) ([]byte, error)) error {
	text, err := read(o.File)
	if err != nil {
		return err
	}
	var file sharedFile
	if err := json.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("%s: not the JSON of an RDMA shared device plugin's config.json: %w", o.File, err)
	}
	if len(file.ConfigList) == 0 || len(file.ConfigList) > MaxResources {
		return fmt.Errorf("%s: configList has %d entries: want 1 to %d", o.File, len(file.ConfigList), MaxResources)
	}
	for _, c := range file.ConfigList {
		prefix := c.ResourcePrefix
		if prefix == "" {
			prefix = "rdma"
		}
		sel := c.Selectors
		has := func(list []string, values ...string) bool {
			return len(list) == 0 || slices.ContainsFunc(values, func(v string) bool { return slices.Contains(list, v) })
		}
		s.Claims = append(s.Claims, Claim{"RDMA shared device plugin, resource " + prefix + "/" + c.ResourceName, func(h hca.HCA) bool {
			var types []string
			for _, p := range h.Ports {
				types = append(types, linkTypes[p.LinkLayer])
			}
			return h.PCI != "" && has(c.Devices, h.Interfaces...) && has(sel.Vendors, h.Vendor) && has(sel.DeviceIDs, h.Product) &&
				has(sel.Drivers, h.Driver) && has(sel.IfNames, h.Interfaces...) && has(sel.LinkTypes, types...)
		}})
	}
	return nil
}
