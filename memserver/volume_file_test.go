package memserver

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/volumes"
)

func TestVolumeFile(t *testing.T) {
	f := volumeFileIn(t.TempDir())
	if _, found, err := f.load(); found || err != nil {
		t.Fatal(found, err)
	}
	want := storedVolume{
		Boot: "b", Pod: "pod", Copies: []*rpcv1.VolumeCopy{{Pod: "pod", Control: "host:7471"}},
		State: volumes.State{
			Process: 3, Content: volumes.Taken, WaitsFor: volumes.Proc{Pod: "q", Process: 2},
			View: volumes.View{Number: 1 << 60, Primary: volumes.Proc{Pod: "pod"}, Backup: volumes.Proc{Pod: "q", Process: 1}, Earlier: volumes.Proc{Pod: "r", Process: 1<<64 - 1}},
		},
	}
	for range 2 {
		if err := f.save(&want); err != nil {
			t.Fatal(err)
		}
	}
	got, found, err := f.load()
	if !found || err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, %v; stored was %+v", got, found, err, want)
	}
	if left := must(filepath.Glob(string(f) + "*")); len(left) != 1 {
		t.Errorf("files are left: %v", left)
	}
}

// TestVolumeFileIsWhole: no part of a file, and no changed one, is taken for a state, nor for none.
func TestVolumeFileIsWhole(t *testing.T) {
	f := volumeFileIn(t.TempDir())
	v := storedVolume{Pod: "pod", State: volumes.State{Process: 3, Content: volumes.Served}}
	whole := must(encodeVolume(&v))
	refused := func(b []byte, parts ...string) {
		t.Helper()
		if err := os.WriteFile(string(f), b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, found, err := f.load()
		if err == nil || found {
			t.Fatalf("%q is taken", b)
		}
		for _, part := range append(parts, string(f), "another copy") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v: it does not say %q", err, part)
			}
		}
	}
	for n := range whole {
		refused(whole[:n])
		changed := append([]byte{}, whole...)
		changed[n] ^= 0x20
		refused(changed)
	}
	refused(append(append([]byte{}, whole...), 0), "damaged")
	later := append([]byte{}, whole...)
	later[8]++
	refused(later, "version is 2", "this program has 1")
	refused([]byte("# notes of somebody else, in the wrong place\n"), "no state of a volume")
}
