package report

import (
	"bytes"
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

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// made are results that nobody measured.
func made(t *testing.T) []*bench.Result {
	t.Helper()
	w, err := workload.ByName("A")
	if err != nil {
		t.Fatal(err)
	}
	var list []*bench.Result
	for clients := 2; clients <= 8; clients *= 2 {
		for _, switches := range []map[string]bool{nil, {"on<Chip>": false}} {
			r := &bench.Run{Design: "sherman", Transport: "sim", Workload: w, Records: 1000, Ops: 1000, Clients: clients, MemoryServers: 2, ComputeServers: 2, Uint64: true, KeyBytes: 8, ValueBytes: 8, Switches: switches, Seed: 1}
			res := &bench.Result{Run: r, Throughput: 1e6 * float64(clients), Ops: 1000, Calls: 2, ItemBytes: 40}
			for i := range 1000 {
				res.Latency.Record(1000 * (5 + 1000/(1000-time.Duration(i))))
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
