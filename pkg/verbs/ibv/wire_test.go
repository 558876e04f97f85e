package ibv

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestFrameRoundTrip(t *testing.T) {
	e := endpoint{qpn: 0xabcdef, psn: 0x123456, mtu: 5, reads: 16, lid: 0xfffe, gid: [16]byte{1, 15: 9}}
	for _, f := range []frame{
		{kind: framePair, slot: MaxQPs - 1, seq: 1<<32 - 1, endpoint: e},
		{kind: framePair, code: codeTooMany, seq: 7},
		{kind: frameDrop, slot: 3},
		{kind: frameBye},
	} {
		b := f.append(nil)
		if len(b) != frameSize {
			t.Fatalf("%+v takes %d bytes", f, len(b))
		}
		if got, err := readFrame(bytes.NewReader(b)); err != nil || got != f {
			t.Errorf("%+v comes back as %+v, %v", f, got, err)
		}
		if _, err := readFrame(bytes.NewReader(b[:frameSize-1])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a frame cut short: %v", err)
		}
	}
}

func TestFramesThatMakeNoSense(t *testing.T) {
	good := frame{kind: framePair, endpoint: endpoint{qpn: 1, mtu: 1, reads: 1}}
	for what, change := range map[string]func(f *frame){
		"kind 0":            func(f *frame) { f.kind = 0 },
		"an unknown kind":   func(f *frame) { f.kind = frameCalls + 1 },
		"an unknown code":   func(f *frame) { f.code = codePath + 1 },
		"a slot too far":    func(f *frame) { f.slot = MaxQPs },
		"queue pair 0":      func(f *frame) { f.qpn = 0 },
		"a queue pair > 24": func(f *frame) { f.qpn = 1 << 24 },
		"a sequence > 24":   func(f *frame) { f.psn = 1 << 24 },
		"MTU 0":             func(f *frame) { f.mtu = 0 },
		"MTU 6":             func(f *frame) { f.mtu = 6 },
		"no reads":          func(f *frame) { f.reads = 0 },
	} {
		f := good
		change(&f)
		if _, err := readFrame(bytes.NewReader(f.append(nil))); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v, want %v", what, err, errFrame)
		}
	}
}

func TestPath(t *testing.T) {
	f := func(mine, theirs endpoint, mtu, code uint8) {
		t.Helper()
		if m, c := path(&mine, &theirs); m != mtu || c != code {
			t.Errorf("%+v with %+v: MTU %d, code %d", mine, theirs, m, c)
		}
	}
	f(endpoint{mtu: 5}, endpoint{mtu: 3}, 3, codeOK)
	f(endpoint{mtu: 3, lid: 1}, endpoint{mtu: 5, lid: 2}, 3, codeOK)
	f(endpoint{mtu: 3, lid: 1}, endpoint{mtu: 5}, 0, codePath)
	f(endpoint{mtu: 3}, endpoint{mtu: 5, lid: 1}, 0, codePath)
	for mtu, want := range []int{1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096} {
		if mtu > 0 && mtuBytes(uint8(mtu)) != want {
			t.Errorf("MTU %d is %d bytes, want %d", mtu, mtuBytes(uint8(mtu)), want)
		}
	}
	if codeErr(codeOK) != nil || !errors.Is(codeErr(codeTooMany), verbs.ErrTooMany) || !errors.Is(codeErr(codePath), verbs.ErrDisconnected) {
		t.Error("codes do not mean what they say")
	}
}

func TestRegionsRoundTrip(t *testing.T) {
	data, locks := remoteRegion{base: 1 << 63, size: 77, key: 9, calls: true}, remoteRegion{base: 0, size: 8, key: 1<<32 - 1}
	b := appendRegion(appendRegion(nil, locks), data)
	list := []verbs.Region{{ID: verbs.RegionLocks, Size: 8}, {ID: verbs.RegionData, Size: 77}}
	got, err := readRegions(bytes.NewReader(b), list)
	if err != nil || got[verbs.RegionData] != data || got[verbs.RegionLocks] != locks {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := readRegions(bytes.NewReader(b[:20]), list); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add((&frame{kind: framePair, endpoint: endpoint{qpn: 1, mtu: 5, reads: 1}}).append(nil))
	f.Add((&frame{kind: frameBye}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		if again, err := readFrame(bytes.NewReader(got.append(nil))); err != nil || again != got {
			t.Errorf("%+v comes back as %+v, %v", got, again, err)
		}
	})
}
