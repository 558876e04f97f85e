package ibv

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	plugin "github.com/dmindex/dmindex/deviceplugin/hca"
)

// TestPluginAgrees: the device plugin tells pods the GID that this package would choose.
func TestPluginAgrees(t *testing.T) {
	addresses := []string{"::", "fe80::1", "fe80::2", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1", "::ffff:10.0.0.2"}
	rapid.Check(t, func(t *rapid.T) {
		var table []gidEntry
		port := plugin.Port{Number: 1, LinkLayer: plugin.Ethernet, State: "ACTIVE"}
		for i := range rapid.IntRange(0, 8).Draw(t, "rows") {
			address := netip.MustParseAddr(rapid.SampledFrom(addresses).Draw(t, "address"))
			kind, word := gidRoCEv1, plugin.RoCEv1
			if rapid.Bool().Draw(t, "v2") {
				kind, word = gidRoCEv2, plugin.RoCEv2
			}
			table = append(table, gidEntry{index: i, kind: kind, gid: address.As16()})
			port.GIDs = append(port.GIDs, plugin.GID{Index: i, Address: address, Kind: word})
		}
		here, err := chooseGID(table)
		there, errThere := port.Address()
		if (err == nil) != (errThere == nil) || err == nil && here.index != there.Index {
			t.Fatalf("here %d, %v; the plugin says %d, %v", here.index, err, there.Index, errThere)
		}
	})
}
