package ibv

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestChooseGID(t *testing.T) {
	const mapped, global, local = "::ffff:10.1.2.3", "2001:db8::1", "fe80::1"
	entry := func(index, kind int, address string) gidEntry {
		return gidEntry{index: index, kind: kind, gid: netip.MustParseAddr(address).As16()}
	}
	f := func(want int, table ...gidEntry) {
		t.Helper()
		got, err := chooseGID(table)
		if want < 0 {
			if err == nil || !strings.Contains(err.Error(), "RoCE v2") {
				t.Errorf("%v: GID %d, %v; want an error that says what is missing", table, got.index, err)
			}
			return
		}
		if err != nil || got.index != want {
			t.Errorf("%v: GID %d, %v; want %d", table, got.index, err, want)
		}
	}
	f(-1)
	f(-1, entry(0, gidRoCEv1, mapped), entry(1, gidInfiniBand, global))
	f(-1, entry(0, gidRoCEv2, "::"))
	f(0, entry(0, gidRoCEv2, local))
	f(3, entry(0, gidRoCEv1, local), entry(1, gidRoCEv2, local), entry(2, gidRoCEv1, mapped), entry(3, gidRoCEv2, mapped))
	f(1, entry(0, gidRoCEv2, local), entry(1, gidRoCEv2, global))
	f(2, entry(0, gidRoCEv2, local), entry(1, gidRoCEv2, global), entry(2, gidRoCEv2, mapped))
	f(5, entry(5, gidRoCEv2, mapped), entry(7, gidRoCEv2, "::ffff:10.9.9.9"))
}

func TestChoosePort(t *testing.T) {
	ports := []portState{
		{"mlx5_0", 1, false, "DOWN"}, {"mlx5_0", 2, true, "ACTIVE"}, {"mlx5_1", 1, true, "ACTIVE"}, {"mlx5_2", 1, false, "INIT"},
	}
	f := func(o Options, device string, port int) {
		t.Helper()
		p, err := choosePort(ports, o)
		if err != nil || p.device != device || p.port != port {
			t.Errorf("%+v: %s/%d, %v; want %s/%d", o, p.device, p.port, err, device, port)
		}
	}
	f(Options{}, "mlx5_0", 2)
	f(Options{Device: "mlx5_1"}, "mlx5_1", 1)
	f(Options{Port: 1}, "mlx5_1", 1)
	f(Options{Device: "mlx5_0", Port: 2}, "mlx5_0", 2)
	refused := func(ports []portState, o Options, words ...string) {
		t.Helper()
		_, err := choosePort(ports, o)
		if !errors.Is(err, ErrNoDevice) {
			t.Errorf("%+v: %v, want %v", o, err, ErrNoDevice)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: %v does not say %q", o, err, w)
			}
		}
	}
	refused(nil, Options{}, "/dev/infiniband", "rdma link")
	refused(ports, Options{Device: "mlx5_7"}, "mlx5_7", "mlx5_2/1 (INIT)")
	refused(ports, Options{Device: "mlx5_2"}, "mlx5_2 is not active")
	refused(ports, Options{Device: "mlx5_0", Port: 1}, "mlx5_0/1 is not active")
	refused(ports, Options{Port: 9}, "no device/9")
}
