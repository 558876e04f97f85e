package memserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// startKept starts a pod with a directory.
func startKept(t *testing.T, dir, pod string) *copied {
	t.Helper()
	return startCopyOf(t, keptConfig(t, dir, pod), nil, "")
}

func keptConfig(t *testing.T, dir, pod string) Config {
	c := persistConfig(dir, persist.Always)
	c.Pod, c.Logger, c.firstProcess = pod, testLog(t), 1
	return c
}

// wrote checks that a primary has what was written, and lets the client of before write more.
func (p *copied) wrote(c *tenant, chunk uint64, was, next string) {
	p.t.Helper()
	if got := string(p.region.Bytes()[chunk:][:len(was)]); got != was {
		p.t.Fatalf("%s has %q, and %q was answered", p.pod, got, was)
	}
	d := &tenant{t: p.t, index: "a", Client: client(p.t, p.Addresses().Control, "a", "tcp", nil), id: c.id}
	if err := d.try(verbs.Request{Op: verbs.Write, Remote: chunk, Local: []byte(next)}); err != nil {
		p.t.Fatal(err)
	}
}

// TestPersistBesideCopy: a volume of two copies, each with files. Whichever processes end, the one
// whose files count goes on with all that was answered: the primary, if both end; the one that took
// over, from files that it wrote as a copy, if it ends as well. The files of a copy that restarts,
// and of a primary that was replaced, count for nothing.
func TestPersistBesideCopy(t *testing.T) {
	dirA, dirB := t.TempDir(), t.TempDir()
	a, b := startKept(t, dirA, "copy-a"), startKept(t, dirB, "copy-b")
	a.obey(view(1, "copy-a"))
	c := fill(t, a.Server)
	stop := load(t, c)
	join(a, b, 2)
	stop()
	chunk := c.chunk()
	if err := c.try(verbs.Request{Op: verbs.Write, Remote: chunk, Local: []byte("one")}); err != nil {
		t.Fatal(err)
	}
	equal(t, a, b)
	incarnation := a.Incarnation()
	a.stop()
	b.stop()

	a, b = startKept(t, dirA, "copy-a"), startKept(t, dirB, "copy-b")
	if r := a.report(); r.Role != rpcv1.ReportVolumeReply_STOPPED || r.Process.Process != 2 || r.View.Number != 2 {
		t.Fatalf("the primary begins as %v", r)
	}
	if r := b.report(); r.Role != rpcv1.ReportVolumeReply_JOINING || r.Process.Process != 2 {
		t.Fatalf("the backup begins as %v", r)
	}
	a.obey(view(3, "copy-a"))
	b.obey(view(3, "copy-a"))
	if r := a.report(); r.Role != rpcv1.ReportVolumeReply_PRIMARY || r.Incarnation != incarnation {
		t.Fatalf("the primary goes on as %v, and the incarnation was %d", r, incarnation)
	}
	a.wrote(c, chunk, "one", "two")
	join(a, b, 4)
	equal(t, a, b)
	a.stop()

	fifth := &rpcv1.VolumeView{Number: 5, Primary: b.proc(), Earlier: &rpcv1.VolumeProcess{Pod: "copy-a", Process: 2}}
	b.obey(fifth)
	b.wrote(c, chunk, "two", "three")
	b.stop()
	b = startKept(t, dirB, "copy-b")
	if r := b.report(); r.Role != rpcv1.ReportVolumeReply_PRIMARY || r.View.Number != 5 || r.Incarnation != incarnation {
		t.Fatalf("the copy that took over begins as %v, and the incarnation was %d", r, incarnation)
	}
	b.wrote(c, chunk, "three", "four")

	a = startKept(t, dirA, "copy-a")
	a.obey(fifth)
	if err := <-a.ended; !errors.Is(err, ErrReplaced) {
		t.Fatalf("the earlier primary ends with %v", err)
	}
	a = startKept(t, dirA, "copy-a")
	if r := a.report(); r.Role != rpcv1.ReportVolumeReply_JOINING || r.Process.Process != 4 {
		t.Fatalf("its next process begins as %v", r)
	}
	join(b, a, 6)
	equal(t, b, a)
}

// TestPersistOfAnotherCopy: a directory is refused by another copy of the volume, and where its
// files are gone.
func TestPersistOfAnotherCopy(t *testing.T) {
	dir := t.TempDir()
	a := startKept(t, dir, "copy-a")
	a.obey(view(1, "copy-a"))
	a.stop()
	if _, err := New(keptConfig(t, dir, "copy-b")); err == nil || !strings.Contains(err.Error(), `is of the copy "copy-a"`) {
		t.Errorf("another copy: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "volume")); err != nil {
		t.Fatal(err)
	}
	if _, err := New(keptConfig(t, dir, "copy-a")); err == nil || !strings.Contains(err.Error(), "put its files back") {
		t.Errorf("without its files: %v", err)
	}
}

// TestPersistMayLackBesideCopy: the machine of a primary stopped, whose files may lack what was
// answered last, while its backup has all. It serves nothing, and hears that the backup does.
func TestPersistMayLackBesideCopy(t *testing.T) {
	dir := t.TempDir()
	soon := keptConfig(t, dir, "copy-a")
	soon.PersistSync = persist.Soon
	a, b := startCopyOf(t, soon, nil, ""), startKept(t, t.TempDir(), "copy-b")
	a.obey(view(1, "copy-a"))
	c := fill(t, a.Server)
	join(a, b, 2)
	chunk := c.chunk()
	if err := c.try(verbs.Request{Op: verbs.Write, Remote: chunk, Local: []byte("one")}); err != nil {
		t.Fatal(err)
	}
	boot := a.region.Boot
	a.stop()
	stopped(t, dir, boot)
	a = startCopyOf(t, soon, nil, "")
	if r := a.report(); r.Role != rpcv1.ReportVolumeReply_STOPPED || !r.MayLack {
		t.Fatalf("it begins as %v", r)
	}
	for range 2 {
		_, err := a.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(3, "copy-a")})
		wantCode(t, "a view of it alone", err, codes.FailedPrecondition, "--persist-accept-loss")
	}
	if r := a.report(); r.Role != rpcv1.ReportVolumeReply_STOPPED || r.View.Number != 2 || !strings.Contains(r.Problem, "may not be on disk") {
		t.Fatalf("it goes on as %v", r)
	}
	third := &rpcv1.VolumeView{Number: 3, Primary: b.proc(), Earlier: a.proc()}
	b.obey(third)
	b.wrote(c, chunk, "one", "two")
	a.obey(third)
	if err := <-a.ended; !errors.Is(err, ErrReplaced) {
		t.Fatalf("it ends with %v", err)
	}
	a = startCopyOf(t, soon, nil, "")
	join(b, a, 4)
	equal(t, b, a)
}

// TestPersistFirstViewCutOff: a server that ends before it has made the files of a new volume has
// not stored that there are any, so the next one obeys the first view.
func TestPersistFirstViewCutOff(t *testing.T) {
	dir := t.TempDir()
	a := startKept(t, dir, "copy-a")
	inTheWay := filepath.Join(dir, "log.0000000000000000.new")
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := a.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(1, "copy-a")})
	wantCode(t, "a first view without files", err, codes.Unavailable, "is a directory")
	a.stop()
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	a = startKept(t, dir, "copy-a")
	a.obey(view(1, "copy-a"))
	fill(t, a.Server)
}

// TestPersistFilesOfBackup: both processes ended, and the directory of the primary is lost. That of
// the backup has all that was answered: its next process serves. If its machine stopped, and
// answers did not wait for its disk, it does so once somebody accepts the loss.
func TestPersistFilesOfBackup(t *testing.T) {
	for _, sync := range []persist.Sync{persist.Always, persist.Soon} {
		dir := t.TempDir()
		config := keptConfig(t, dir, "copy-b")
		config.PersistSync = sync
		a, b := startKept(t, t.TempDir(), "copy-a"), startCopyOf(t, config, nil, "")
		a.obey(view(1, "copy-a"))
		c := fill(t, a.Server)
		join(a, b, 2)
		chunk := c.chunk()
		if err := c.try(verbs.Request{Op: verbs.Write, Remote: chunk, Local: []byte("one")}); err != nil {
			t.Fatal(err)
		}
		was, incarnation, boot := b.proc(), a.Incarnation(), b.region.Boot
		third := &rpcv1.VolumeView{Number: 3, Earlier: a.proc()}
		a.stop()
		b.stop()

		if sync != persist.Always {
			stopped(t, dir, boot)
		}
		b = startCopyOf(t, config, nil, "")
		if r := b.report(); r.Role != rpcv1.ReportVolumeReply_JOINING || r.Was.GetProcess() != was.Process || r.Was.GetPod() != was.Pod || r.MayLack != (sync != persist.Always) || r.First != was.Process {
			t.Fatalf("the backup begins as %v", r)
		}
		third.Primary = b.proc()
		if sync != persist.Always {
			_, err := b.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: third})
			wantCode(t, "a view of it", err, codes.FailedPrecondition, "--persist-accept-loss")
			if r := b.report(); r.Role != rpcv1.ReportVolumeReply_JOINING || r.Was == nil || !strings.Contains(r.Problem, "may not be on disk") {
				t.Fatalf("it goes on as %v", r)
			}
			b.stop()
			accepts := config
			accepts.PersistAcceptLoss = true
			b = startCopyOf(t, accepts, nil, "")
			if r := b.report(); r.Was == nil || r.MayLack {
				t.Fatalf("once the loss is accepted it begins as %v", r)
			}
			third.Primary = b.proc()
		}
		b.obey(third)
		if r := b.report(); r.Role != rpcv1.ReportVolumeReply_PRIMARY || r.Incarnation != incarnation || r.Was != nil {
			t.Fatalf("it goes on as %v, and the incarnation was %d", r, incarnation)
		}
		if got := string(b.region.Bytes()[chunk:][:3]); got != "one" {
			t.Fatalf("it has %q, and %q was answered", got, "one")
		}
		if sync == persist.Always { // else clients of before are fenced
			b.wrote(c, chunk, "one", "two")
		}
	}
}

// TestPersistFilesThatDiffer: the files of a backup whose memory differs from its primary's count
// for nothing.
func TestPersistFilesThatDiffer(t *testing.T) {
	dir := t.TempDir()
	a, b := startKept(t, t.TempDir(), "copy-a"), startKept(t, dir, "copy-b")
	a.obey(view(1, "copy-a"))
	fill(t, a.Server)
	join(a, b, 2)
	b.volume.sink.Look(func(r *verbs.Replica) { r.Memory[a.region.ChunkOffset(2)+100_000]++ })
	select {
	case err := <-b.ended:
		if !errors.Is(err, ErrReplaced) {
			t.Errorf("a copy that differs ends with %v", err)
		}
	case <-time.After(limit):
		t.Fatal("a copy that differs is not found")
	}
	b = startKept(t, dir, "copy-b")
	if r := b.report(); r.Was != nil {
		t.Errorf("the next process reports %v", r)
	}
}
