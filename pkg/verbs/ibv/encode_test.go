package ibv

import (
	"encoding/hex"
	"strings"
	"testing"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// plain is an encoder with figures that tell apart.
func plain() *encoder {
	e := &encoder{lkey: 0x11223344, inline: 64, qpn: 0xabcdef}
	e.regions[verbs.RegionData] = remoteRegion{base: 0x7f0000000000, size: 1 << 30, key: 0x55667788}
	e.regions[verbs.RegionLocks] = remoteRegion{base: 0, size: 1 << 16, key: 0x99aabbcc}
	return e
}

func TestEncode(t *testing.T) {
	arena, err := verbs.MapArena(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	b, err := arena.Alloc(2048)
	if err != nil {
		t.Fatal(err)
	}
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	list := []verbs.Request{
		{Op: verbs.Read, Remote: 8192, Local: b[8:108]},
		{Op: verbs.Write, Remote: 5, Local: b[:64], Fence: true},
		{Op: verbs.Write, Remote: 5, Local: b[:65]},
		{Op: verbs.CompareSwap, Region: verbs.RegionLocks, Remote: 16, Local: b[:8], Compare: 7, Swap: 9},
		{Op: verbs.FetchAdd, Region: verbs.RegionLocks, Remote: 24, Local: b[8:16], Add: 1<<64 - 3},
	}
	got := make([]workRequest, len(list))
	for i := range got {
		// left over from another list
		got[i] = workRequest{compare: 1, swap: 2, flags: 0xff, op: 99}
	}
	plain().encode(got, list)
	data, locks := uint32(0x55667788), uint32(0x99aabbcc)
	for i, want := range []workRequest{
		{op: uint8(verbs.Read), local: at + 8, remote: 0x7f0000002000, length: 100, rkey: data},
		{op: uint8(verbs.Write), local: at, remote: 0x7f0000000005, length: 64, rkey: data, flags: flagInline | flagFence},
		{op: uint8(verbs.Write), local: at, remote: 0x7f0000000005, length: 65, rkey: data},
		{op: uint8(verbs.CompareSwap), local: at, remote: 16, length: 8, rkey: locks, compare: 7, swap: 9},
		{op: uint8(verbs.FetchAdd), local: at + 8, remote: 24, length: 8, rkey: locks, compare: 1<<64 - 3, flags: flagSignaled},
	} {
		want.lkey = 0x11223344
		if !list[i].Op.Atomic() {
			want.compare, want.swap = 1, 2 // not looked at
		} else if list[i].Op == verbs.FetchAdd {
			want.swap = 2
		}
		if got[i] != want {
			t.Errorf("request %d:\n%+v, want\n%+v", i, got[i], want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { plain().encode(got, list) }); n != 0 {
		t.Errorf("%v allocations a list", n)
	}
}

// TestMaskedEntries compares with entries that were put together by hand from the segments' layout.
func TestMaskedEntries(t *testing.T) {
	w := workRequest{local: 0x0102030405060708, remote: 0x1112131415161718, length: 8, lkey: 0x21222324, rkey: 0x31323334}
	f := func(r verbs.Request, flags uint8, want ...string) {
		t.Helper()
		w := w
		w.flags = flags
		for i := range w.wqe {
			w.wqe[i] = 0xee
		}
		maskedEntry(&w, &r, 0xabcdef)
		bytes := strings.Join(want, "")
		bytes += strings.Repeat("0", 2*rawSize-len(bytes))
		if got := hex.EncodeToString(w.wqe[:]); got != bytes {
			t.Errorf("%v:\n%s, want\n%s", r.Op, got, bytes)
		}
	}
	swap := verbs.Request{Op: verbs.MaskedCompareSwap, Compare: 0x4142434445464748, Swap: 0x5152535455565758,
		CompareMask: 0x6162636465666768, SwapMask: 0x7172737475767778}
	const target, local = "1112131415161718" + "31323334" + "00000000", "00000008" + "21222324" + "0102030405060708"
	const operands = "5152535455565758" + "4142434445464748" + "7172737475767778" + "6162636465666768"
	f(swap, 0, "09000014", "abcdef06", "00000000", "00000000", target, operands, local)
	f(swap, flagSignaled, "09000014", "abcdef06", "00000008", "00000000", target, operands, local)
	f(swap, flagFence|flagSignaled, "09000014", "abcdef06", "00000088", "00000000", target, operands, local)
	add := verbs.Request{Op: verbs.MaskedFetchAdd, Add: 0x8182838485868788, Boundary: 0x9192939495969798}
	f(add, flagFence, "09000015", "abcdef05", "00000080", "00000000", target, "8182838485868788"+"9192939495969798", local)
}

// TestMaskedInAList: a masked atomic is marked raw, has the flags of its place, and names the
// region's key.
func TestMaskedInAList(t *testing.T) {
	arena, err := verbs.MapArena(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	b, _ := arena.Alloc(64)
	got := make([]workRequest, 2)
	r := verbs.Request{Op: verbs.MaskedCompareSwap, Region: verbs.RegionLocks, Remote: 8, Local: b[:8], Fence: true}
	plain().encode(got, []verbs.Request{r, r})
	if got[0].flags != flagRaw|flagFence || got[1].flags != flagRaw|flagFence|flagSignaled {
		t.Errorf("flags %#x and %#x", got[0].flags, got[1].flags)
	}
	if got[0].wqe[11] != ctrlFence || got[1].wqe[11] != ctrlFence|ctrlCompletion {
		t.Errorf("entries say %#x and %#x", got[0].wqe[11], got[1].wqe[11])
	}
	if key := hex.EncodeToString(got[0].wqe[24:28]); key != "99aabbcc" {
		t.Errorf("key %s", key)
	}
}
