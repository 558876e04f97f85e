//go:build e2e && e2efull

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repartitionManifest is an index for dmindex bench --repartition, whose caches have a size.
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
  - {name: memory, template: {servers: 2, memory: 768Mi}}
  computePools:
  - {name: compute, template: {replicas: 3, minReplicas: 1, maxReplicas: 4, cache: %s}}
`

// TestRepartition is figure 10 of DEX's paper on this cluster: a fourth compute server comes to three, over tcp, under load half of which writes. No request fails, and no acknowledged write is
// lost. E2E_CACHE is the cache of each server (default 64Mi), E2E_RECORDS how many there are (default 1000000), more than fill the caches or not. What was measured is in the artifacts as JSON and
// as a page with throughput over time.
func TestRepartition(t *testing.T) {
	cache, records := or(os.Getenv("E2E_CACHE"), "64Mi"), or(os.Getenv("E2E_RECORDS"), "1000000")
	s := newSpace(t)
	s.apply(fmt.Sprintf(repartitionManifest, cache))
	s.settled("2/2", "3/3")
	const files = "FILE "
	s.apply(toolsPod("bench", "sh", "-c", "cd /tmp; dmindex bench --repartition="+cache+" --secret /conn --records "+records+" --json r.json --html r.html; code=$?; "+
		"for f in r.json r.html; do echo; echo "+files+"$f; cat $f; done; exit $code"))
	s.eventually(veryLong, "the benchmark wants another server", func() (bool, string) {
		log, err := s.try("logs", "bench")
		if s.jsonpath("pod/bench", "{.status.phase}") == "Failed" {
			s.Fatalf("the benchmark failed:\n%s", tail(log, 10))
		}
		return err == nil && strings.Contains(log, "scale it to 4 compute servers"), tail(log, 5)
	})
	s.scale(4)
	s.eventually(veryLong, "the benchmark ends", func() (bool, string) {
		phase := s.jsonpath("pod/bench", "{.status.phase}")
		return phase == "Succeeded" || phase == "Failed", phase
	})
	table, rest, _ := strings.Cut(s.kubectl("logs", "bench"), "\n"+files)
	t.Log(table)
	for _, part := range strings.Split(rest, "\n"+files) {
		name, text, _ := strings.Cut(part, "\n")
		if err := os.WriteFile(filepath.Join(target.artifacts, "repartition-"+cache+filepath.Ext(name)), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	s.is(s.jsonpath("pod/bench", "{.status.phase}"), "Succeeded")
	s.moved(rest)
	s.toldOfHandoversTo("x-compute-3")
}

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
