package memserver

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/region"
)

// TestOlderProgram: while answers of a memory server wait for another copy, its region has a format
// version that programs refuse that know no volumes: they would serve it alone, whatever the other
// copy does. The program that knows them does not serve it either without the state of the volume.
func TestOlderProgram(t *testing.T) {
	dir := t.TempDir()
	other := t.TempDir()
	a, b := startCopy(t, dir, "pod-a", nil, ""), startCopy(t, other, "pod-b", nil, "")
	wants := func(when string, version uint32) {
		t.Helper()
		page := must(os.ReadFile(filepath.Join(dir, region.DataFile)))[:region.PageBytes]
		if h, err := region.Decode(page); err != nil || binary.LittleEndian.Uint32(page[8:]) != version || h.Shared != (version == region.SharedVersion) {
			t.Errorf("%s: the region has version %d, not %d: %v", when, binary.LittleEndian.Uint32(page[8:]), version, err)
		}
	}
	a.obey(view(1, "pod-a"))
	fill(t, a.Server)
	wants("alone", region.Version)
	must(a.Join(t.Context(), &rpcv1.JoinCopyRequest{View: 1, Copy: b.proc(), Mirror: b.Addresses().Mirror}))
	a.awaits("a copy in sync", func(r *rpcv1.ReportVolumeReply) bool { return r.InSync })
	wants("with the promise to wait", region.SharedVersion)
	second := &rpcv1.VolumeView{Number: 2, Primary: a.proc(), Backup: b.proc()}
	a.obey(second)
	b.obey(second)
	wants("with a backup", region.SharedVersion)

	a.stop()
	state := filepath.Join(dir, volumeFile)
	if err := os.Rename(state, state+".away"); err != nil {
		t.Fatal(err)
	}
	c := volumeConfig(t, dir, "pod-a")
	c.Mirror = "127.0.0.1:0"
	if s, err := New(c); err == nil || !strings.Contains(err.Error(), "its volume has another copy") || !strings.Contains(err.Error(), "put the file back") {
		t.Errorf("without the state of the volume: %v, %v", s, err)
	}
	wants("refused", region.SharedVersion)
	if err := os.Rename(state+".away", state); err != nil {
		t.Fatal(err)
	}
	a = startCopy(t, dir, "pod-a", nil, "")
	if r := a.report(); r.Role != rpcv1.ReportVolumeReply_STOPPED {
		t.Fatalf("beside a backup: %v", r)
	}
	wants("stopped", region.SharedVersion)
	a.obey(&rpcv1.VolumeView{Number: 3, Primary: a.proc()})
	wants("alone again", region.Version)
	join(a, next(t, b, other), 4)
	wants("with another copy", region.SharedVersion)
	a.stop()

	// what a program stored that wrote no version 4
	a.region.Shared = false
	old := a.region.Encode()
	f := must(os.OpenFile(filepath.Join(dir, region.DataFile), os.O_RDWR, 0))
	must(f.WriteAt(old[:], 0))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	startCopy(t, dir, "pod-a", nil, "")
	wants("behind an older program of the same kind", region.SharedVersion)
}

// next is the next process of a pod whose process was a backup, and hears that it is dropped while
// nothing is connected to it.
func next(t *testing.T, b *copied, dir string) *copied {
	t.Helper()
	b.obey(&rpcv1.VolumeView{Number: 3, Primary: &rpcv1.VolumeProcess{Pod: "pod-a", Process: 2}})
	if err := <-b.ended; !errors.Is(err, ErrReplaced) {
		t.Fatal(err)
	}
	return startCopy(t, dir, "pod-b", nil, "")
}
