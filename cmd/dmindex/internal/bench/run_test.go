package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// do does a run that must succeed.
func do(t *testing.T, r *Run) *Result {
	t.Helper()
	res, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestEveryTransport does every kind of operation on each transport, checks included, and looks at
// what the fabric counted.
func TestEveryTransport(t *testing.T) {
	for _, transport := range []string{"sim", "shm", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			for _, workload := range []string{"C", "F", "E", "write-only"} {
				r := smallRun(t, workload, transport)
				if transport == "tcp" {
					r.Records, r.Ops, r.Warmup = 500, 500, 100
				}
				res := do(t, r)
				s := res.Summary()
				if s.Throughput <= 0 || s.P50 <= 0 || s.P99 < s.P50 || s.P999 < s.P99 || s.MemoryBytesPerItem < 16 || s.CacheHitRate <= 0 || res.CPU <= 0 {
					t.Errorf("%s: %+v", workload, s)
				}
				if res.Latency.total != res.Ops || res.Stats.Operations < res.Ops {
					t.Errorf("%s: %d latencies and %d operations, want %d", workload, res.Latency.total, res.Stats.Operations, res.Ops)
				}
				delegated := float64(res.Stats.Delegated) / float64(res.Ops)
				if v, reads := s.Verbs, s.Verbs.Read+delegated; workload == "C" && (reads < 1 || reads > 1.1 || v.Write != 0 || v.Atomic != 0 || s.BytesPerOp < 1024*v.Read) {
					t.Errorf("lookups take %+v, %.0f bytes; %.3f READs are delegated", v, s.BytesPerOp, delegated)
				} else if workload == "write-only" && (v.Write < 1 || v.Atomic < 0.5) {
					t.Errorf("upserts take %+v", v)
				}
			}
		})
	}
}

// TestBulkLoad: records that were bulk loaded are there, in fewer nodes; long values too, and in
// text keys.
func TestBulkLoad(t *testing.T) {
	for _, transport := range []string{"sim", "shm"} {
		for _, w := range []string{"A", "F", "write-only"} {
			r := smallRun(t, w, transport)
			inserted := do(t, r)
			r = smallRun(t, w, transport)
			r.BulkLoad = true
			if res := do(t, r); w != "write-only" && res.ItemBytes >= inserted.ItemBytes {
				t.Errorf("%s over %s: %.1f bytes for each item that was bulk loaded, %.1f for those that were inserted", w, transport, res.ItemBytes, inserted.ItemBytes)
			}
			r = smallRun(t, w, transport)
			r.BulkLoad, r.Uint64, r.KeyBytes, r.ValueBytes = true, false, 40, 500
			do(t, r)
		}
	}
}

// TestSimulatedRunsReplay: a simulated run is a function of its seed.
func TestSimulatedRunsReplay(t *testing.T) {
	a, b := do(t, smallRun(t, "A", "sim")), do(t, smallRun(t, "A", "sim"))
	if a.Throughput != b.Throughput || a.Latency != b.Latency || a.Stats.Verbs != b.Stats.Verbs {
		t.Errorf("%v operations a second, then %v", a.Throughput, b.Throughput)
	}
}

// TestRunEndsEarly: a context that ends, ends the run.
func TestRunEndsEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := smallRun(t, "C", "sim").Do(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}

// TestCorruptedIndexIsCaught changes a loaded index behind the run's back.
func TestCorruptedIndexIsCaught(t *testing.T) {
	r := smallRun(t, "C", "sim")
	b := fakeBencher(t, r, nil)
	s, err := newSimulated(r, mustDesign(t, "sherman"))
	if err != nil {
		t.Fatal(err)
	}
	b.cluster = s
	err = s.run(func() error {
		if _, err := b.all(); err != nil {
			return err
		}
		m, err := s.open(0, r.options(0))
		if err != nil {
			return err
		}
		session, err := m.Session()
		if err != nil {
			return err
		}
		key := b.keys.append(nil, 17)
		// the value of another item
		if err := session.Update(key, appendValue(nil, r.ValueBytes, 18, 0)); err != nil {
			return err
		}
		if _, err := b.checkScan(session); !errors.Is(err, errForeign) {
			t.Errorf("another item's value: %v, want %v", err, errForeign)
		}
		if err := errors.Join(session.Delete(key), session.Close()); err != nil {
			return err
		}
		b.members = []member{m}
		if _, err := b.check(); err == nil || !strings.Contains(err.Error(), "1000 were loaded") {
			t.Errorf("an item is gone, and the check says %v", err)
		}
		return m.close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func mustDesign(t *testing.T, name string) index.Design {
	t.Helper()
	d, err := index.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestBadRuns(t *testing.T) {
	for _, c := range []struct {
		change func(r *Run)
		want   string
	}{
		{func(r *Run) { r.Records = 0 }, "give --records 1 or more"},
		{func(r *Run) { r.Ops = 0 }, "give --ops 1 or more"},
		{func(r *Run) { r.Design = "btree" }, `unknown design "btree": there are [`},
		{func(r *Run) { r.Design, r.Records = "dex", 1<<33 }, "with owners of ranges at most 4294967295"},
		{func(r *Run) { r.Transport = "udp" }, `unknown transport "udp": there are sim, shm, tcp, ibv`},
		{func(r *Run) { r.Clients = 1 }, "each needs one at least"},
		{func(r *Run) { r.ValueBytes = 4 }, "at least 8 are needed"},
		{func(r *Run) { r.KeyBytes = 4 }, "at least 8 are needed"},
		{func(r *Run) { r.ScanFrom = 7; r.ScanTo = 3 }, "scans of 7 to 3 pairs"},
		{func(r *Run) { r.Records = 1 << 40 }, "give fewer --records or --ops"},
		{func(r *Run) { r.Switches = map[string]bool{"warp": true, "boost": false} }, "has no switch boost, warp: "},
	} {
		r := smallRun(t, "C", "sim")
		c.change(r)
		_, err := r.Do(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if checked := r.Check(); err == nil || checked == nil {
			t.Errorf("Check says %v", checked)
		}
	}
	if _, err := LookupWorkload("G"); err == nil || !strings.Contains(err.Error(), "there are A, B, C, D, E, F, LOAD, insert-intensive, write-only") {
		t.Error(err)
	}
	for _, text := range []string{"gauss", "zipfian:-1", "zipfian:x", "uniform:2", "latest:9", "zipfian:0.99/x", "zipfian:0.99/0", "latest:0.99/1e9"} {
		if d, err := ParseDistribution(text); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
	for _, text := range []string{"uniform", "latest", "latest:0.5", "zipfian:0.99", "zipfian:1.2", "zipfian:0.99/1e9"} {
		if d, err := ParseDistribution(text); err != nil || d.String() != text {
			t.Errorf("%q is %v, %v", text, d, err)
		}
	}
}

// made are results that nobody measured.
func made(t *testing.T) []*Result {
	var list []*Result
	for clients := 2; clients <= 8; clients *= 2 {
		for _, switches := range []map[string]bool{nil, {"on<Chip>": false}} {
			r := smallRun(t, "A", "sim")
			r.Clients, r.Switches = clients, switches
			res := &Result{Run: r, Throughput: 1e6 * float64(clients), Ops: 1000, Calls: 2, ItemBytes: 40}
			for i := range 1000 {
				res.Latency.record(1000 * (5 + 1000/(1000-time.Duration(i))))
			}
			res.Stats.Verbs.Requests[verbs.Read] = 1500
			res.Stats.Verbs.Bytes[verbs.Read] = 1500 << 10
			res.Stats.Verbs.RoundTrips = 1600
			res.Stats.CacheHits, res.Stats.CacheMisses = 3, 1
			list = append(list, res)
		}
	}
	return list
}

// TestJSONShape: these names are what others read.
func TestJSONShape(t *testing.T) {
	var out bytes.Buffer
	if err := WriteJSON(&out, made(t)); err != nil {
		t.Fatal(err)
	}
	var file map[string][]map[string]any
	if err := json.Unmarshal(out.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	if len(file) != 1 || len(file["runs"]) != 6 {
		t.Fatalf("%d members, %d runs", len(file), len(file["runs"]))
	}
	run := file["runs"][1]
	want := strings.Fields("apart_ops bytes_per_op cache_bytes cache_hit_rate clients cpu_us_per_op design distribution log_bytes_per_op longest_us memory_bytes_per_item ops optimum_reads_per_op p50_us p999_us p99_us popular_reads_per_op " +
		"reads_over_optimum reads_over_popular records round_trips_per_op skew switches throughput_ops transport verbs_per_op workload")
	if have := slices.Sorted(maps.Keys(run)); !slices.Equal(have, want) {
		t.Errorf("members %v, want %v", have, want)
	}
	kinds := run["verbs_per_op"].(map[string]any)
	if have := slices.Sorted(maps.Keys(kinds)); !slices.Equal(have, []string{"atomic", "log_write", "read", "rpc", "write"}) {
		t.Errorf("kinds of verbs %v", have)
	}
	if kinds["read"] != 1.5 || kinds["rpc"] != 0.002 || run["cache_hit_rate"] != 0.75 || run["bytes_per_op"] != 1536.0 || run["round_trips_per_op"] != 1.6 {
		t.Errorf("%v", run)
	}
	if switches := run["switches"].(map[string]any); switches["on<Chip>"] != false || len(file["runs"][0]["switches"].(map[string]any)) != 0 {
		t.Errorf("switches %v", switches)
	}
}

// TestHTMLIsWellFormed and needs nothing from elsewhere.
func TestHTMLIsWellFormed(t *testing.T) {
	var out bytes.Buffer
	if err := WriteHTML(&out, made(t)); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	d := xml.NewDecoder(&out)
	count := map[string]int{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok {
			count[start.Name.Local]++
		}
	}
	if count["svg"] != 3 || count["tr"] != 7 || count["script"]+count["link"]+count["img"] > 0 || count["circle"] != 6 {
		t.Errorf("elements %v", count)
	}
	if found := regexp.MustCompile(`(?i)https?:|NaN|Inf|%!`).FindString(text); found != "" {
		t.Errorf("the page has %q", found)
	}
	for _, label := range []string{">clients<", ">throughput (million operations/s)<", ">latency (µs)<", ">percentile of operations<", ">requests per operation<", "prefers-color-scheme:dark"} {
		if !strings.Contains(text, label) {
			t.Errorf("the page has no %q", label)
		}
	}
}

// TestTinyFigures does each experiment of Sherman's paper with next to nothing.
func TestTinyFigures(t *testing.T) {
	for i := range shermanFigures {
		f := &shermanFigures[i]
		base := smallRun(t, "C", "sim")
		base.Records, base.Ops, base.Warmup, base.Clients = 500, 200, 20, 4
		var out bytes.Buffer
		results, err := f.Do(t.Context(), *base, &out)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		if lines := strings.Count(out.String(), " FG+ "); len(results) != len(f.parts)*len(f.variants) || lines < len(f.parts) {
			t.Errorf("%s: %d results\n%s", f.Name, len(results), &out)
		}
		for _, p := range f.parts {
			if !strings.Contains(out.String(), p.workload) {
				t.Errorf("%s: no %s in\n%s", f.Name, p.workload, &out)
			}
			if len(p.steps) > len(f.variants) {
				t.Errorf("%s: %s has claims of %d steps", f.Name, p.workload, len(p.steps))
			}
		}
	}
	if _, err := LookupFigure("sherman-7"); err == nil || !strings.Contains(err.Error(), "there are sherman-5, sherman-6, sherman-table3, dex-6, dex-6-processor, dex-7") {
		t.Error(err)
	}
}

// TestSteps: techniques are turned on one after the other, and the design knows all of them.
func TestSteps(t *testing.T) {
	design, err := index.Lookup("sherman")
	if err != nil {
		t.Fatal(err)
	}
	for n, v := range shermanSteps {
		if have := v.switches(); len(have) != len(design.Switches)-n {
			t.Errorf("step %s has %v off", v.label, have)
		}
		for name, on := range v.switches() {
			if on || !slices.Contains(design.Switches, name) {
				t.Errorf("step %s: %s is %v", v.label, name, on)
			}
		}
	}
	if off := shermanSteps[2].off; slices.Contains(off, "combine") || slices.Contains(off, "onChip") || !slices.Contains(off, "hierarchical") {
		t.Errorf("the third step has %v off", off)
	}
}

// TestTinyGrowths does each experiment of DEX's paper with next to nothing.
func TestTinyGrowths(t *testing.T) {
	for i := range dexFigures {
		f := dexFigures[i]
		base := smallRun(t, "C", "sim")
		f.Defaults(base, func(flag string) bool { return flag != "warmup" })
		base.Records, base.Ops, base.Warmup, base.Clients = 500, 150, 20, 4
		f.settings = f.settingsOf(base)
		f.settings = f.settings[max(0, len(f.settings)-2):]
		grow := *f.grow
		grow.settings = func(*Run) []setting { return f.settings }
		f.grow = &grow
		var out bytes.Buffer
		results, err := f.Do(t.Context(), *base, &out)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		if len(results) != len(f.parts)*len(f.variants)*len(f.settings) {
			t.Errorf("%s: %d results", f.Name, len(results))
		}
		for _, v := range f.variants {
			if strings.Count(out.String(), v.label+"  ") < len(f.parts) {
				t.Errorf("%s: no %s in\n%s", f.Name, v.label, &out)
			}
		}
		for _, p := range panels(results) {
			if d := p.throughputPlot(); !p.onePoint() && !strings.HasPrefix(f.grow.title, d.x.label[:5]) {
				t.Errorf("%s: a plot against %s", f.Name, d.x.label)
			}
		}
		for _, p := range f.parts {
			if len(p.claims) > len(f.variants) {
				t.Errorf("%s: %s has claims of %d variants", f.Name, p.name, len(p.claims))
			}
		}
	}
}

// TestGrowth: compute servers come one by one, when those that there are have their clients.
func TestGrowth(t *testing.T) {
	sizes := func(g *growth, base *Run) (have [][2]int, percent []float64) {
		for _, s := range g.settings(base) {
			r := *base
			s.change(&r)
			have, percent = append(have, [2]int{r.Clients, r.ComputeServers}), append(percent, r.CachePercent)
		}
		return have, percent
	}
	if have, _ := sizes(growingClients(byClients...), &Run{Clients: 144, ComputeServers: 4}); !slices.Equal(have, [][2]int{{2, 1}, {36, 1}, {72, 2}, {144, 4}}) {
		t.Errorf("clients and compute servers %v", have)
	}
	if have, _ := sizes(growingClients(byClients...), &Run{Clients: 4, ComputeServers: 2}); !slices.Equal(have, [][2]int{{1, 1}, {2, 1}, {4, 2}}) {
		t.Errorf("clients and compute servers %v", have)
	}
	if have, percent := sizes(growingCache(1, 32), &Run{Clients: 4, ComputeServers: 2}); !slices.Equal(have, [][2]int{{4, 2}, {4, 2}}) || !slices.Equal(percent, []float64{1, 32}) {
		t.Errorf("%v, %v", have, percent)
	}
}
