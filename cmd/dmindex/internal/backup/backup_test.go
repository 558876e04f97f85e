package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/dumpfile"
)

// fakeIndex is an index in a map. Scans end with scanErr after scanned pairs.
type fakeIndex struct {
	pairs   map[string]string
	expires map[string]time.Time
	now     time.Time // by which its pairs expire
	scanErr error
	scanned int
	scans   int // begun
}

func newFake(n int) *fakeIndex {
	f := &fakeIndex{pairs: map[string]string{}, expires: map[string]time.Time{}}
	for i := range n {
		f.pairs[fmt.Sprintf("key/%06d", i)] = fmt.Sprintf("value of %d", i)
	}
	return f
}

func (f *fakeIndex) Scan(context.Context, []byte, []byte, client.ScanOptions) iter.Seq2[client.Pair, error] {
	f.scans++
	return func(yield func(client.Pair, error) bool) {
		for i, key := range slices.Sorted(maps.Keys(f.pairs)) {
			if f.scanErr != nil && i == f.scanned {
				yield(client.Pair{}, f.scanErr)
				return
			}
			if !yield(client.Pair{Key: []byte(key), Value: []byte(f.pairs[key]), Expires: f.expires[key]}, nil) {
				return
			}
		}
	}
}

func (f *fakeIndex) Load(_ context.Context, pairs iter.Seq[client.Pair], o client.LoadOptions) (stored uint64, err error) {
	for p := range pairs {
		f.put(p, o)
		stored++
	}
	return stored, nil
}

func (f *fakeIndex) put(p client.Pair, o client.LoadOptions) {
	if _, there := f.pairs[string(p.Key)]; !there || !o.KeepExisting {
		if !p.Expires.IsZero() && p.Expires.Before(f.now) {
			return // it has expired
		}
		f.pairs[string(p.Key)], f.expires[string(p.Key)] = string(p.Value), p.Expires
	}
}

const artifact = "ns/demo/nightly.uid.dump"

var description = dumpfile.Description{Index: "demo"}

func quiet(uint64) {}

func newDirectory(t *testing.T) (*Directory, string) {
	t.Helper()
	dir := t.TempDir()
	d, err := OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, dir
}

// files are the regular files below a folder.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// damage changes a byte in the middle of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(path, content, 0o640); err != nil {
		t.Fatal(err)
	}
}

func TestCreateTwiceDumpsOnce(t *testing.T) {
	d, dir := newDirectory(t)
	index := newFake(5000)
	first, err := Create(t.Context(), index, d, artifact, description, quiet)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, artifact))
	if err != nil {
		t.Fatal(err)
	}
	if first.Keys != 5000 || first.Bytes != info.Size() || len(first.Digest) != 64 {
		t.Errorf("reported %+v of a file of %d bytes", first, info.Size())
	}
	index.pairs["later"] = "1"
	again, err := Create(t.Context(), index, d, artifact, description, quiet)
	if err != nil || again != first || index.scans != 1 {
		t.Errorf("the second attempt reported %+v, %v after %d scans; want what the first one did", again, err, index.scans)
	}
	if got := files(t, dir); !slices.Equal(got, []string{artifact}) {
		t.Errorf("in the folder are %v", got)
	}
}

func TestCreateReplacesDamaged(t *testing.T) {
	d, dir := newDirectory(t)
	index := newFake(100)
	first, err := Create(t.Context(), index, d, artifact, description, quiet)
	if err != nil {
		t.Fatal(err)
	}
	damage(t, filepath.Join(dir, artifact))
	if _, err := Verify(t.Context(), d, artifact, first.Digest); !errors.Is(err, dumpfile.ErrDamaged) {
		t.Errorf("verify a damaged artifact: %v", err)
	}
	if again, err := Create(t.Context(), index, d, artifact, description, quiet); err != nil || again.Keys != 100 || index.scans != 2 {
		t.Errorf("%+v, %v after %d scans", again, err, index.scans)
	}
}

// TestCreateFails: an attempt that fails anywhere leaves nothing under the artifact's name, and the
// next one finds nothing in its way.
func TestCreateFails(t *testing.T) {
	d, dir := newDirectory(t)
	full := errors.New("no space left on device")
	index := newFake(100)
	index.scanErr, index.scanned = errors.New("the index went away"), 50
	if _, err := Create(t.Context(), index, d, artifact, description, quiet); !errors.Is(err, index.scanErr) {
		t.Errorf("a scan that failed: %v", err)
	}
	err := d.Create(t.Context(), artifact, func(w io.Writer) error {
		_, err := w.Write([]byte("half of it"))
		return errors.Join(err, full)
	})
	if !errors.Is(err, full) {
		t.Errorf("a volume that is full: %v", err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("in the folder are %v", got)
	}
	// A process that died left a file; and so did one that works on another artifact.
	other := artifact + "2" + unfinished + "A"
	for _, name := range []string{artifact + unfinished + "A", other} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	index.scanErr = nil
	if _, err := Create(t.Context(), index, d, artifact, description, quiet); err != nil {
		t.Error(err)
	}
	if got, want := files(t, dir), []string{artifact, other}; !slices.Equal(got, want) {
		t.Errorf("in the folder are %v, want %v", got, want)
	}
}

// TestCreateKeepsTheFirst: of two attempts at the same time the second one to end fails.
func TestCreateKeepsTheFirst(t *testing.T) {
	d, _ := newDirectory(t)
	var first string
	err := d.Create(t.Context(), artifact, func(w io.Writer) error {
		_, err := w.Write([]byte("second"))
		report, failed := Create(t.Context(), newFake(3), d, artifact, description, quiet)
		first = report.Digest
		return errors.Join(err, failed)
	})
	if err == nil {
		t.Error("the second attempt replaced what the first one had reported")
	}
	if _, err := Verify(t.Context(), d, artifact, first); err != nil {
		t.Error(err)
	}
}

// swapped is a store that keeps something else than what is written.
type swapped struct {
	*Directory
	damage func()
}

func (s swapped) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	err := s.Directory.Create(ctx, name, write)
	s.damage()
	return err
}

func TestCreateReadsBack(t *testing.T) {
	d, dir := newDirectory(t)
	index := newFake(100)
	s := swapped{d, func() { damage(t, filepath.Join(dir, artifact)) }}
	if _, err := Create(t.Context(), index, s, artifact, description, quiet); !errors.Is(err, dumpfile.ErrDamaged) || !strings.Contains(err.Error(), "read back") {
		t.Errorf("a store that damages what it keeps: %v", err)
	}
	s.damage = func() { // a whole dump, but not this one
		if err := d.Delete(t.Context(), artifact); err != nil {
			t.Error(err)
		}
		if _, err := Create(t.Context(), newFake(99), d, artifact, description, quiet); err != nil {
			t.Error(err)
		}
	}
	if _, err := Create(t.Context(), index, s, artifact, description, quiet); !errors.Is(err, ErrOtherDigest) {
		t.Errorf("a store that has another dump: %v", err)
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("in the folder are %v", got)
	}
}

func TestDelete(t *testing.T) {
	d, dir := newDirectory(t)
	if err := d.Delete(t.Context(), artifact); err != nil {
		t.Errorf("delete where there is no folder: %v", err)
	}
	if _, err := Create(t.Context(), newFake(3), d, artifact, description, quiet); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, artifact+unfinished+"A"), nil, 0o640); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Delete(t.Context(), artifact); err != nil {
			t.Error(err)
		}
	}
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("in the folder are %v", got)
	}
	if _, err := Verify(t.Context(), d, artifact, ""); !errors.Is(err, ErrNoArtifact) {
		t.Errorf("verify what is not there: %v", err)
	}
}

// TestDirectoryIsNotLeft: names and links do not lead out of the folder.
func TestDirectoryIsNotLeft(t *testing.T) {
	d, dir := newDirectory(t)
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../a.dump", "/a.dump", "link/a.dump"} {
		if _, err := Create(t.Context(), newFake(3), d, name, description, quiet); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	if got := files(t, outside); len(got) != 0 {
		t.Errorf("outside are %v", got)
	}
}

// TestAbandoned: what the last attempt at an artifact left is deleted by those at others, but
// neither what somebody may still write nor anything else.
func TestAbandoned(t *testing.T) {
	d, dir := newDirectory(t)
	old := time.Now().Add(-abandoned - time.Minute)
	for name, when := range map[string]time.Time{
		"ns/demo/killed.uid.dump" + unfinished + "A":  old,
		"ns/demo/busy.uid.dump" + unfinished + "A":    time.Now(),
		"ns/demo/kept.uid.dump":                       old,
		"ns/demo/of-others" + unfinished + "A":        old,
		"ns/other/killed.uid.dump" + unfinished + "A": old,
	} {
		file := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o770), os.WriteFile(file, nil, 0o640), os.Chtimes(file, when, when))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Create(t.Context(), newFake(3), d, artifact, description, quiet); err != nil {
		t.Fatal(err)
	}
	want := []string{"ns/demo/busy.uid.dump" + unfinished + "A", "ns/demo/kept.uid.dump", artifact, "ns/demo/of-others" + unfinished + "A", "ns/other/killed.uid.dump" + unfinished + "A"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("in the folder are %v, want %v", got, want)
	}
}
