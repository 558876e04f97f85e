package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPrints builds the servers, measures four rows for a moment, and looks at what was written.
func TestPrints(t *testing.T) {
	for _, program := range []string{"redis-server", "redis-benchmark"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v; hack/deps redis-server redis-tools installs it", err)
		}
	}
	dir := t.TempDir()
	o := &options{binary: filepath.Join(dir, "dmindex"), rows: []string{"set", "sdk-get", "copy-set", "service-4-get"}, sides: []string{"dex-tcp"}, rounds: 1, scale: 0.005, keys: 1000, json: filepath.Join(dir, "figures.json")}
	if out, err := exec.Command("go", "build", "-o", o.binary, "../../cmd/dmindex").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.json)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Figures {
		if len(f.Rates) != 1 || f.Rates[0] <= 0 || f.Ratio <= 0 || f.Counts == nil {
			t.Errorf("%+v", f)
		}
	}
	// redis-server and DEX, DEX, DEX with copies and without, redis-server and DEX
	if len(r.Figures) != 7 {
		t.Errorf("%d figures", len(r.Figures))
	}
}

// TestUnknownNames: what does not exist is refused before anything starts.
func TestUnknownNames(t *testing.T) {
	for _, o := range []options{
		{rows: []string{"no-row"}, rounds: 1, scale: 1, keys: 1000},
		{rows: []string{"set"}, sides: []string{"dex"}, rounds: 1, scale: 1, keys: 1000},
		{rows: []string{"set"}, sides: []string{"dex-shm-2"}, rounds: 1, scale: 1, keys: 1000},
		{rows: []string{"set"}, sides: []string{"dex-tcp-service-many"}, rounds: 1, scale: 1, keys: 1000},
		{rows: []string{"set"}, rounds: 0, scale: 1, keys: 1000},
	} {
		if err := run(context.Background(), &o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestRateOf(t *testing.T) {
	rate, err := rateOf("\"test\",\"rps\",\"avg_latency_ms\"\n\"SET a __rand_int__\",\"123.50\",\"0.1\"\n")
	if err != nil || rate != 123.5 {
		t.Errorf("%v, %v", rate, err)
	}
	if _, err := rateOf("nothing"); err == nil {
		t.Error("no rate is none")
	}
}

func TestFailures(t *testing.T) {
	out := "READ   - Takes(s): 0.4, Count: 972, OPS: 2172.4\nUPDATE_ERROR - Takes(s): 0.1, Count: 3, OPS: 15.5\n"
	if n := failures(out); n != 3 {
		t.Errorf("%d failures", n)
	}
}
