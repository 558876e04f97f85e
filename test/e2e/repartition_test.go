//go:build e2e && e2efull

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
)

// repartitionManifest is an index for dmindex bench --repartition, whose memory servers and caches
// have a size.
const repartitionManifest = `
apiVersion: dmindex.io/v1alpha1
kind: DMIndex
metadata: {name: x}
spec:
  design: DEX
  durability: Memory
  key: {type: Uint64}
  value: {maxLength: 8}
  memoryPools:
  - {name: memory, template: {servers: 2, memory: %dMi}}
  computePools:
  - {name: compute, template: {replicas: 3, minReplicas: 1, maxReplicas: 4, cache: %s}}
`

// TestRepartition is figure 10 of DEX's paper on this cluster: a fourth compute server comes to
// three, over tcp, under load half of which writes. No request fails, and no acknowledged write is
// lost. E2E_CACHE is the cache of each server (default 64Mi), of several sizes one run each;
// E2E_RECORDS how many records there are (default 1000000), more than fill the caches or not, which
// are loaded once. What was measured is in the artifacts as JSON and as a page with throughput over
// time.
func TestRepartition(t *testing.T) {
	sizes, text := strings.Split(or(os.Getenv("E2E_CACHE"), "64Mi"), ","), or(os.Getenv("E2E_RECORDS"), "1000000")
	records, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("E2E_RECORDS: %v", err)
	}
	s := newSpaceAlone(t)
	memory := 256 + records*leafBytes/2>>20
	for i, cache := range sizes {
		if i > 0 {
			s.scale(3)
		}
		before := s.computePods()
		s.apply(fmt.Sprintf(repartitionManifest, memory, cache))
		s.eventually(veryLong, "all servers have such a cache", func() (bool, string) {
			now := s.computePods()
			return len(now) == 3 && !slices.ContainsFunc(now, func(pod string) bool { return slices.Contains(before, pod) }), fmt.Sprint(now)
		})
		s.settled("2/2", "3/3")
		s.repartition(cache, text, i > 0)
	}
}

// leafBytes is what a record takes of leaves that are half full, as those are whose keys came in
// their order, and as much again for all else.
const leafBytes = 2 * 68

// repartition is one run, with servers that have such caches.
func (s *space) repartition(cache, records string, loaded bool) {
	s.Helper()
	const files = "FILE "
	more := ""
	if loaded {
		more = " --loaded"
	}
	s.apply(toolsPod("bench", "sh", "-c", "cd /tmp; dmindex bench --repartition="+cache+" --secret /conn --records "+records+more+" --json r.json --html r.html; code=$?; "+
		"for f in r.json r.html; do echo; echo "+files+"$f; cat $f; done; exit $code"))
	s.eventually(loading, "the benchmark wants another server", func() (bool, string) {
		log, err := s.try("logs", "bench")
		if s.jsonpath("pod/bench", "{.status.phase}") == "Failed" {
			s.Fatalf("the benchmark failed:\n%s", tail(log, 10))
		}
		return err == nil && strings.Contains(log, "scale it to 4 compute servers"), tail(log, 5)
	})
	before := s.computePods()
	for _, pod := range before {
		s.Logf("%s: %s of memory, %s of them for its cache", pod, s.metric(pod, "process_resident_memory_bytes"), s.metric(pod, "dmindex_compute_cache_bytes"))
	}
	s.scale(4)
	came := slices.DeleteFunc(s.computePods(), func(pod string) bool { return slices.Contains(before, pod) })
	s.is(fmt.Sprint(len(came)), "1")
	s.eventually(veryLong, "the benchmark ends", func() (bool, string) {
		phase := s.jsonpath("pod/bench", "{.status.phase}")
		return phase == "Succeeded" || phase == "Failed", phase
	})
	table, rest, _ := strings.Cut(s.kubectl("logs", "bench"), "\n"+files)
	s.Logf("%s\nmemory pool: %s used", table, s.jsonpath("dmmp/x-memory", "{.status.used}"))
	for _, part := range strings.Split(rest, "\n"+files) {
		name, text, _ := strings.Cut(part, "\n")
		if err := os.WriteFile(filepath.Join(target.artifacts, "repartition-"+cache+filepath.Ext(name)), []byte(text), 0o644); err != nil {
			s.Error(err)
		}
	}
	s.is(s.jsonpath("pod/bench", "{.status.phase}"), "Succeeded")
	s.moved(rest)
	s.toldOfHandoversTo(came[0])
	s.kubectl("delete", "pod", "bench")
}

// metric is what a compute server's metrics say of a name without labels.
func (s *space) metric(pod, name string) string {
	s.Helper()
	all := s.kubectl("get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", s.namespace, pod, config.PortMetrics))
	for line := range strings.Lines(all) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	s.Fatalf("%s has no metric %s", pod, name)
	return ""
}

// loading is how long the records may take.
const loading = 40 * time.Minute

// moved looks at what the benchmark measured, which is JSON after a line with the file's name.
func (s *space) moved(text string) {
	s.Helper()
	_, text, _ = strings.Cut(text, "\n")
	var got struct {
		Repartitions []struct {
			Seconds float64 `json:"repartition_seconds"`
			Ranges  int     `json:"ranges_moved"`
			Failed  int     `json:"failed_batches"`
			Checked int     `json:"items_checked"`
		}
	}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&got); err != nil || len(got.Repartitions) != 1 {
		s.Fatalf("the benchmark's figures cannot be read: %v", err)
	}
	if r := got.Repartitions[0]; r.Failed != 0 || r.Ranges == 0 || r.Checked == 0 || r.Seconds <= 0 || r.Seconds > long.Seconds() {
		s.Errorf("measured %+v", r)
	}
}

// toldOfHandoversTo: there is an event of keys that went to a server.
func (s *space) toldOfHandoversTo(pod string) {
	s.Helper()
	s.eventually(short, "an event of keys that go to "+pod, func() (bool, string) {
		all := strings.Join(s.eventsOf("Handover"), "\n")
		return strings.Contains(all, " to "+pod), all
	})
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
