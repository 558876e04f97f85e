package backup

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/dumpfile"
)

// dying is an index whose process of loading dies after some pairs, and one that loses what it is
// told to store.
type dying struct {
	*fakeIndex
	after int
	loses bool
}

var errDied = errors.New("died")

func (d *dying) Load(ctx context.Context, pairs iter.Seq[client.Pair], o client.LoadOptions) (stored uint64, err error) {
	for p := range pairs {
		if d.after == 0 {
			return stored, errDied
		}
		d.after--
		if !d.loses || stored%7 != 3 {
			d.put(p, o)
		}
		stored++
	}
	return stored, nil
}

func TestRestore(t *testing.T) {
	d, dir := newDirectory(t)
	from := newFake(5000)
	want, err := Create(t.Context(), from, d, artifact, description, quiet)
	if err != nil {
		t.Fatal(err)
	}
	to := &dying{fakeIndex: newFake(0), after: 3000}
	if _, err := Restore(t.Context(), to, d, artifact, want.Digest, quiet); !errors.Is(err, errDied) || len(to.pairs) != 3000 {
		t.Errorf("a restore that dies: %v, %d pairs", err, len(to.pairs))
	}
	to.after = 1 << 20
	for range 2 { // it goes on, and does nothing more
		if r, err := Restore(t.Context(), to, d, artifact, want.Digest, quiet); err != nil || r != want || !maps.Equal(to.pairs, from.pairs) {
			t.Errorf("%+v, %v, %d pairs", r, err, len(to.pairs))
		}
	}

	loses := &dying{fakeIndex: newFake(0), after: 1 << 20, loses: true}
	if _, err := Restore(t.Context(), loses, d, artifact, want.Digest, quiet); !errors.Is(err, errIncomplete) {
		t.Errorf("an index that loses pairs: %v", err)
	}
	empty := newFake(0)
	if _, err := Restore(t.Context(), empty, d, artifact, strings.Repeat("0", 64), quiet); !errors.Is(err, ErrOtherDigest) || len(empty.pairs) != 0 {
		t.Errorf("another artifact than that of the backup: %v, %d pairs", err, len(empty.pairs))
	}
	damage(t, filepath.Join(dir, artifact))
	if _, err := Restore(t.Context(), empty, d, artifact, want.Digest, quiet); !errors.Is(err, dumpfile.ErrDamaged) || len(empty.pairs) != 0 {
		t.Errorf("a damaged artifact: %v, %d pairs", err, len(empty.pairs))
	}
	if _, err := Restore(t.Context(), empty, d, "missing", want.Digest, quiet); !errors.Is(err, ErrNoArtifact) {
		t.Errorf("no artifact: %v", err)
	}
}

// visited is an index that a program writes to while it is loaded.
type visited struct {
	*fakeIndex
	key string
}

func (v *visited) Load(ctx context.Context, pairs iter.Seq[client.Pair], o client.LoadOptions) (uint64, error) {
	v.pairs[v.key] = "a program's"
	return v.fakeIndex.Load(ctx, pairs, o)
}

// TestRestoreBesideAProgram: what a program stored while the index was loaded is not replaced, and
// the restore says that it is there.
func TestRestoreBesideAProgram(t *testing.T) {
	d, _ := newDirectory(t)
	if _, err := Create(t.Context(), newFake(100), d, artifact, description, quiet); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"key/000050", "key/000050a"} {
		to := &visited{newFake(0), key}
		for range 2 { // and when it is tried again
			if _, err := Restore(t.Context(), to, d, artifact, "", quiet); !errors.Is(err, ErrOtherKeys) || to.pairs[key] != "a program's" {
				t.Errorf("%s: %v, the value is %q", key, err, to.pairs[key])
			}
		}
	}
}

// TestRestoreOverKeys: an index with pairs of its own is refused, and stays as it is.
func TestRestoreOverKeys(t *testing.T) {
	d, _ := newDirectory(t)
	if _, err := Create(t.Context(), newFake(100), d, artifact, description, quiet); err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]string{
		"before all":    {"a", "1"},
		"between":       {"key/000050a", "1"},
		"behind all":    {"z", "1"},
		"another value": {"key/000050", "1"},
	} {
		for _, begun := range []int{0, 40} {
			to := newFake(begun)
			to.pairs[pair[0]] = pair[1]
			before := maps.Clone(to.pairs)
			_, err := Restore(t.Context(), to, d, artifact, "", quiet)
			if !errors.Is(err, ErrOtherKeys) || !maps.Equal(to.pairs, before) {
				t.Errorf("%s: %v, %d pairs", name, err, len(to.pairs))
			} else if text := err.Error(); strings.Contains(text, pair[0]+`"`) || strings.Contains(text, "key/0") {
				t.Errorf("%s: the error, which everybody sees, names a key: %s", name, text)
			}
		}
	}
	err := d.Create(t.Context(), "disorder", func(out io.Writer) error {
		w, err := dumpfile.NewWriter(out, description)
		if err != nil {
			return err
		}
		for _, key := range []string{"b", "a"} {
			if err := w.Add(client.Pair{Key: []byte(key)}); err != nil {
				return err
			}
		}
		_, _, err = w.Close()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	to := newFake(0)
	if _, err := Restore(t.Context(), to, d, "disorder", "", quiet); err == nil || len(to.pairs) != 0 {
		t.Errorf("an artifact in disorder: %v, %d pairs", err, len(to.pairs))
	}
}

// TestRestoreKeepsDeadlines: a restored pair expires when the dumped one would have. One that has
// expired by the clock of its server is not missing, and one that expires at another time is not
// the backup's.
func TestRestoreKeepsDeadlines(t *testing.T) {
	d, _ := newDirectory(t)
	from := newFake(10)
	soon, later := time.UnixMilli(1_000), time.UnixMilli(1_900_000_000_123)
	from.expires["key/000003"], from.expires["key/000007"] = soon, later
	want, err := Create(t.Context(), from, d, artifact, description, quiet)
	if err != nil {
		t.Fatal(err)
	}
	to := newFake(0)
	for range 2 {
		if r, err := Restore(t.Context(), to, d, artifact, want.Digest, quiet); err != nil || r != want || !maps.Equal(to.pairs, from.pairs) || !to.expires["key/000003"].Equal(soon) || !to.expires["key/000007"].Equal(later) {
			t.Errorf("%+v, %v, %d pairs, %v", r, err, len(to.pairs), to.expires)
		}
	}
	to = newFake(0)
	to.now = soon.Add(time.Second)
	for range 2 {
		if _, err := Restore(t.Context(), to, d, artifact, want.Digest, quiet); err != nil || len(to.pairs) != 9 {
			t.Errorf("a pair that has expired: %v, %d pairs", err, len(to.pairs))
		}
	}
	to.expires["key/000007"] = later.Add(time.Millisecond)
	if _, err := Restore(t.Context(), to, d, artifact, want.Digest, quiet); !errors.Is(err, ErrOtherKeys) {
		t.Errorf("a pair that expires at another time: %v", err)
	}
}

// setIndex is an index whose pairs are members of sorted sets, which get their deadlines also where
// they are kept.
type setIndex struct {
	*fakeIndex
	forgets bool // the deadlines
}

func (s setIndex) Scan(ctx context.Context, start, end []byte, o client.ScanOptions) iter.Seq2[client.Pair, error] {
	return func(yield func(client.Pair, error) bool) {
		for p, err := range s.fakeIndex.Scan(ctx, start, end, o) {
			if p.Member = true; !yield(p, err) {
				return
			}
		}
	}
}

func (s setIndex) Load(_ context.Context, pairs iter.Seq[client.Pair], o client.LoadOptions) (stored uint64, err error) {
	for p := range pairs {
		if s.put(p, o); !s.forgets {
			s.expires[string(p.Key)] = p.Expires
		}
		stored++
	}
	return stored, nil
}

// TestRestoreOfUndatedSets: a restore that ended between the members of a set and its deadline can
// be repeated.
func TestRestoreOfUndatedSets(t *testing.T) {
	d, _ := newDirectory(t)
	later := time.UnixMilli(1_900_000_000_123)
	from := setIndex{fakeIndex: newFake(10)}
	from.expires["key/000003"] = later
	want, err := Create(t.Context(), from, d, artifact, description, quiet)
	if err != nil {
		t.Fatal(err)
	}
	to := setIndex{fakeIndex: newFake(5)}
	if r, err := Restore(t.Context(), to, d, artifact, want.Digest, quiet); err != nil || r != want || !to.expires["key/000003"].Equal(later) {
		t.Errorf("%+v, %v, %v", r, err, to.expires)
	}
	to = setIndex{newFake(5), true}
	if _, err := Restore(t.Context(), to, d, artifact, want.Digest, quiet); !errors.Is(err, errIncomplete) {
		t.Errorf("an index that forgets deadlines: %v", err)
	}
	to.pairs["key/000003"] = "another value"
	if _, err := Restore(t.Context(), to, d, artifact, want.Digest, quiet); !errors.Is(err, ErrOtherKeys) {
		t.Errorf("another member: %v", err)
	}
}
