package computeserver

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// TestPage: each server draws all of them, and what it does not know of one it says; keys are not
// shown.
func TestPage(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "secret-m")
	r := c.raw(1)
	for _, key := range []string{"secret-a", "secret-z"} {
		r.Send("SET " + key + " v\r\n")
		r.Expect("+OK\r\n")
	}
	at := "http://" + c.servers[1].Addresses().Metrics
	page := func() string {
		t.Helper()
		reply, err := http.Get(at + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		if err != nil || reply.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v: %s", reply.Status, err, text)
		}
		if p := reply.Header.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") {
			t.Errorf("Content-Security-Policy: %q", p)
		}
		return string(text)
	}
	first := page()
	for _, want := range []string{"pod-1", "pod-2", ">set<", "This server is ready", "serves"} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is not in the page:\n%s", want, first)
		}
	}
	if strings.Contains(first, "secret") {
		t.Error("a key is in the page")
	}
	if page() != first {
		t.Error("the page is drawn anew for who asks right behind")
	}
	if code, _ := c.servers[1].get(t, "/other"); code != http.StatusNotFound {
		t.Errorf("/other: %d", code)
	}
	c.stop(2)
	drawn := c.servers[1].pages
	drawn.mu.Lock()
	drawn.drawn = nil // as if it was too old
	drawn.mu.Unlock()
	if text := page(); !strings.Contains(text, "cannot be reached") || !strings.Contains(text, "as the map says") {
		t.Errorf("with a server away:\n%s", text)
	}
}

// TestSamples: a sample is what happened between two moments, also where the index was opened anew.
func TestSamples(t *testing.T) {
	at := time.Unix(1000, 0)
	before := totals{at: at, operations: 100, errors: 1, hits: 10, misses: 10}
	now := totals{at: at.Add(10 * time.Second), operations: 1100, errors: 6, hits: 40, misses: 20}
	before.latencies[3] = 5
	now.latencies[3], now.latencies[10] = 5+989, 11
	s := now.since(&before)
	if s.Operations != 100 || s.Errors != 0.5 || s.HitRatio != 0.75 || s.P99 != (1024*time.Microsecond).Seconds() {
		t.Errorf("%+v", s)
	}
	now.latencies[10] = 9
	if s := now.since(&before); s.P99 != (8 * time.Microsecond).Seconds() {
		t.Errorf("one in a hundred is slow: %+v", s)
	}
	now.hits = 0
	if s := now.since(&before); s.HitRatio >= 0 {
		t.Errorf("of an index that was opened anew: %+v", s)
	}
	if s := (&totals{at: now.at}).since(&totals{at: at}); s.P99 != 0 || s.Operations != 0 || len(now.latencies) != count.HistogramBuckets {
		t.Errorf("without requests: %+v", s)
	}
}
