package repartition

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	sdk "github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
	"github.com/dmindex/dmindex/pkg/partition"
)

func smallRepartition() *Run {
	return &Run{
		Design: "dex", Transport: "shm", MemoryServers: 1, From: 2, Records: 5000, Distribution: workload.Distribution{Theta: 0.99}, CacheBytes: 1 << 20, Clients: 3, Batch: 10, Seed: 1,
		Progress: io.Discard, Settle: 20 * time.Millisecond, Before: 200 * time.Millisecond, After: 200 * time.Millisecond,
	}
}

// TestRepartition: ranges move while clients read and write, none of which fails, and nothing is
// lost.
func TestRepartition(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	res, err := smallRepartition().Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Each of two servers gives a third of what it has to the one that comes, which takes one range
	// after the other.
	if res.Failed != 0 || res.FirstErr != nil || movesOf(&res.Scaled) != 2 || len(res.Scaled.Stages) != 2 || res.Scaled.Took <= 0 || res.Checked == 0 || res.Batches == 0 ||
		res.CacheUsed == 0 || res.At < 200*time.Millisecond || len(res.Slices) < 8 {
		t.Errorf("%+v", res)
	}
	t.Logf("%v: %+v", res.Scaled.Took, res.Scaled.Stages)
	for _, stage := range res.Scaled.Stages {
		for _, m := range stage.Moves {
			if m.To != 3 {
				t.Errorf("%v moved", m)
			}
		}
	}
}

// whenSaid calls do once something with these words is written to it.
type whenSaid struct {
	words string
	do    func()
}

func (w *whenSaid) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.words) {
		go w.do()
	}
	return len(b), nil
}

// TestRemoteRepartition: the same with an index that was there, and that somebody else scales;
// twice, with the records of the first time.
func TestRemoteRepartition(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	l, err := local.Start(local.Config{
		Listen: "127.0.0.1:0", ListenRPC: "127.0.0.1:0", Transport: "tcp", Design: "dex", MemoryServers: 1, ComputeServers: 4, Owners: 2, CacheBytes: 1 << 20, MemoryBytes: 128 << 20,
		KeyType: config.KeyUint64, MaxKeyBytes: 8, MaxValueBytes: 8, Routing: config.RoutingOwner, Version: "test", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- l.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	for from := 2; from <= 3; from++ {
		r := smallRepartition()
		r.From, r.Transport, r.Remote, r.Loaded = 0, "tcp", &sdk.Options{Endpoints: l.RPC[:1], Insecure: true}, from > 2
		// of which the time that a busy machine takes for an answer of the servers is a small part
		r.Before = 2 * time.Second
		scaled := make(chan error, 1)
		r.Progress = &whenSaid{fmt.Sprintf("%s %d", ScaleNow, from+1), func() {
			_, err := l.Scale(ctx, from+1)
			scaled <- err
		}}
		res, err := r.Do(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-scaled; err != nil {
			t.Fatal(err)
		}
		if res.Failed != 0 || movesOf(&res.Scaled) < 2 || res.Scaled.Took <= 0 || res.Checked == 0 || r.From != from || res.At < 200*time.Millisecond ||
			res.CacheUsed == 0 || res.HitRatio < 0.5 || res.HitRatio > 1 {
			t.Errorf("%+v", res)
		}
		t.Logf("%v: %.3f of the operations found their leaf in a cache; %+v", res.Scaled.Took, res.HitRatio, res.Scaled.Stages)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// TestLoadOrder: each record comes once, and those of a part of the key space in the order of their
// keys.
func TestLoadOrder(t *testing.T) {
	for _, c := range []struct{ n, parts, batch int }{{1000, 4, 30}, {1000, 7, 1}, {5, 8, 3}, {1, 1, 1}, {64, 8, 8}, {9, 4, 100}} {
		seen, sorted, runs := map[string]bool{}, []string{}, 1
		for p := range loadOrder(uint64(c.n), c.parts, c.batch) {
			if len(sorted) > 0 && string(p.Key) < sorted[len(sorted)-1] {
				runs++
			}
			sorted = append(sorted, string(p.Key))
			item := workload.Unscramble(binary.BigEndian.Uint64(p.Key))
			if writer, ok := workload.WriterOf(p.Value, 8, item, true); item >= uint64(c.n) || seen[string(p.Key)] || !ok || writer != 0 {
				t.Fatalf("%+v: item %d with value %x", c, item, p.Value)
			}
			seen[string(p.Key)] = true
		}
		length := (c.n + c.parts - 1) / c.parts
		if most := (length + c.batch - 1) / c.batch; len(seen) != c.n || runs > most {
			t.Errorf("%+v: %d records, %d times back to a lower key; want %d at most", c, len(seen), runs-1, most-1)
		}
		for key := range loadOrder(uint64(c.n), c.parts, c.batch) { // it may be left early
			if string(key.Key) != sorted[0] {
				t.Errorf("%+v: another first key", c)
			}
			break
		}
	}
}

func TestBadRepartitions(t *testing.T) {
	for want, change := range map[string]func(r *Run){
		"have no owners": func(r *Run) { r.Design = "sherman" },
		"unknown design": func(r *Run) { r.Design = "btree" },
		"in real time":   func(r *Run) { r.Transport = "sim" },
		"1000 to":        func(r *Run) { r.Records = 10 },
		"1 to 63":        func(r *Run) { r.From = 64 },
		"batches of 0":   func(r *Run) { r.Batch = 0 },
		"give fewer":     func(r *Run) { r.CacheBytes = 1 << 50 },
	} {
		r := smallRepartition()
		change(r)
		if _, err := r.Do(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestDriveJudges: what was answered must be there, or something later that failed.
func TestDriveJudges(t *testing.T) {
	r := smallRepartition()
	d := newDrive(r, nil)
	for item := range r.Records {
		for w := range r.Clients {
			if own := d.own(item, w); own >= r.Records || own%uint64(r.Clients) != uint64(w) {
				t.Fatalf("item %d of client %d beside item %d", own, w, item)
			}
		}
	}
	d.wrote([]uint64{7, 8}, 20, nil)
	d.wrote([]uint64{8}, 22, workload.ErrLost)
	for _, c := range []struct {
		item, writer uint64
		want         error
	}{{7, 20, nil}, {7, 18, workload.ErrLost}, {7, 22, workload.ErrLost}, {8, 20, nil}, {8, 22, nil}, {8, 18, workload.ErrLost}, {9, 0, nil}, {9, 2, workload.ErrLost}} {
		if err := d.judge(c.item, workload.AppendValue(nil, 8, c.item, c.writer)); !errors.Is(err, c.want) {
			t.Errorf("item %d with the value of batch %d: %v, want %v", c.item, c.writer, err, c.want)
		}
	}
	if err := d.judge(7, workload.AppendValue(nil, 8, 6, 20)); !errors.Is(err, workload.ErrForeign) {
		t.Errorf("another item's value: %v", err)
	}
	d.count(time.Now(), 10, workload.ErrLost)
	if d.failed.Load() != 1 || !errors.Is(d.firstErr, workload.ErrLost) {
		t.Error("a batch that failed before the measurement is not counted")
	}
}

// madeRepartition is one that nobody measured: 2 s with 100 operations a slice, then half a second
// of 10, then 80, then 95.
func madeRepartition() *Result {
	r := &Result{Run: smallRepartition(), At: 2 * time.Second, Batches: 100, Longest: time.Second}
	r.Scaled = local.Scaled{Took: 500 * time.Millisecond, Stages: []local.Stage{{Moves: make([]partition.Move, 2)}, {Moves: make([]partition.Move, 1)}}}
	for i := range 100 {
		n := uint64(95)
		switch {
		case i < 40:
			n = 100
		case i < 50:
			n = 10
		case i < 60:
			n = 80
		}
		r.Slices = append(r.Slices, n)
	}
	r.Recovered = r.recovery()
	return r
}

func TestRepartitionReports(t *testing.T) {
	r := madeRepartition()
	if r.before() != 2000 || r.lowest() != 200 || r.after() != 1900 || r.Recovered < 900*time.Millisecond || r.Recovered > time.Second || movesOf(&r.Scaled) != 3 {
		t.Errorf("before %.0f, lowest %.0f, after %.0f, back after %v", r.before(), r.lowest(), r.after(), r.Recovered)
	}
	smooth := madeRepartition()
	for i := range smooth.Slices {
		smooth.Slices[i] = 100
	}
	if back := smooth.recovery(); back != smooth.Scaled.Took {
		t.Errorf("back after %v, before the last range had moved", back)
	}
	never := madeRepartition()
	for i := 40; i < 100; i++ {
		never.Slices[i] = 50
	}
	if back := never.recovery(); back != 0 {
		t.Errorf("back after %v", back)
	}
	var text, page, file bytes.Buffer
	list := []*Result{r, never}
	if err := errors.Join(WriteTable(&text, list), WriteHTML(&page, list), WriteJSON(&file, list)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "from 2 to 3 compute servers") || strings.Count(text.String(), "1 MiB") != 2 {
		t.Errorf("table:\n%s", &text)
	}
	if n := strings.Count(page.String(), "axis dashed"); n != 4 || !strings.Contains(page.String(), "thousand operations/s") || strings.Contains(page.String(), "NaN") {
		t.Errorf("%d marks in the page", n)
	}
	var have struct{ Repartitions []map[string]any }
	if err := json.Unmarshal(file.Bytes(), &have); err != nil || len(have.Repartitions) != 2 {
		t.Fatal(err, len(have.Repartitions))
	}
	if j := have.Repartitions[0]; j["repartition_seconds"] != 0.5 || j["failed_batches"] != 0.0 || j["throughput_lowest_ops"] != 200.0 || len(j["throughput_ops"].([]any)) != 100 {
		t.Errorf("%v", j)
	}
}
