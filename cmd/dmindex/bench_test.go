package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runBench runs the command.
func runBench(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, progress bytes.Buffer
	cmd := root()
	cmd.SetArgs(append([]string{"bench"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&progress)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), progress.String(), err
}

func TestBench(t *testing.T) {
	dir := t.TempDir()
	jsonFile, htmlFile := filepath.Join(dir, "runs.json"), filepath.Join(dir, "runs.html")
	out, progress, err := runBench(t, "--transport", "sim,shm", "--workload", "C,a", "--clients", "2,4", "--records", "1000", "--ops", "1000",
		"--key", "bytes:32", "--value", "20", "--cache-percent", "10", "--json", jsonFile, "--html", htmlFile)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out, "\n"); lines != 10 || !strings.Contains(out, "zipfian:0.99") || !strings.Contains(out, "text keys of 32 bytes") {
		t.Errorf("%d lines:\n%s", lines, out)
	}
	if !strings.Contains(progress, "dex C: measure: 1000 of 1000 operations") || !strings.Contains(progress, "of simulated time") {
		t.Errorf("progress:\n%s", progress)
	}
	text, err := os.ReadFile(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Runs []struct{ Transport, Workload string }
	}
	if err := json.Unmarshal(text, &file); err != nil || len(file.Runs) != 8 || file.Runs[7].Workload != "A" || file.Runs[7].Transport != "shm" {
		t.Errorf("%v in %s", err, text)
	}
	if page, err := os.ReadFile(htmlFile); err != nil || !bytes.Contains(page, []byte("</html>")) {
		t.Errorf("%v in %s", err, page)
	}
}

func TestBenchFigure(t *testing.T) {
	out, _, err := runBench(t, "--figure", "sherman-table3", "--records", "500", "--ops", "100", "--servers", "2x2", "--clients", "4")
	if err != nil || !strings.Contains(out, "range-write, 1000") || !strings.Contains(out, "14.08") {
		t.Errorf("%v in\n%s", err, out)
	}
}

func TestBenchMarkdown(t *testing.T) {
	out, _, err := runBench(t, "--workload", "C", "--records", "1000", "--ops", "1000", "--markdown", "--processor-time", "100")
	if err != nil || !strings.Contains(out, "\n| design | transport |") || !strings.Contains(out, "\n|---|---|") || !strings.Contains(out, "\n| dex | sim | C |") {
		t.Errorf("%v in\n%s", err, out)
	}
	out, _, err = runBench(t, "--figure", "dex-6-processor", "--records", "500", "--ops", "100", "--servers", "2x2", "--clients", "4", "--markdown")
	if err != nil || !strings.Contains(out, "\n|  | 0.5x | 1x | 2x | x Sherman |") || !strings.Contains(out, " (1.00x) |") {
		t.Errorf("%v in\n%s", err, out)
	}
}

func TestBenchProcessor(t *testing.T) {
	out, _, err := runBench(t, "--figure", "processor", "--design", "sherman", "--records", "500", "--ops", "500")
	if err != nil || !strings.Contains(out, "\"sherman\": {\n\tcosts{") || strings.Contains(out, "dex") {
		t.Errorf("%v in\n%s", err, out)
	}
}

func TestBenchRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--records 0", "give --records 1 or more"},
		{"--workload G", `unknown workload "G": there are A, B,`},
		{"--servers 8", `--servers "8": write memory servers x compute servers, as in 8x8`},
		{"--scan 5-x", `--scan "5-x": write the shortest and the longest length`},
		{"--switch combine", `--switch "combine": write name=on or name=off`},
		{"--switch warp=off", "design dex has no switch warp: "},
		{"--cache-percent 5 --cache-bytes 1Mi", "not both"},
		{"--distribution gauss", "unknown distribution"},
		{"--key uint32", "write uint64, or bytes:N"},
		{"--records 1000000000000", "give fewer --records or --ops"},
		{"--design sherman --records 1000000000000", "give fewer --records or --ops"},
		{"--json /no/where.json", "/no/where.json"},
		{"--message-rate 0", "--message-rate: give a number above 0"},
		{"--message-rate 45 --transport shm", "over shm the NICs are what they are"},
		{"--processor-time 0", "--processor-time: give a number above 0"},
		{"--processor-time 2 --transport shm", "over shm operations take the processor time that they take"},
		{"--figure sherman-5 --design dex", "--design: figure sherman-5 says itself"},
		{"--figure sherman-9", "there are sherman-5"},
		{"--figure sherman-5 --workload C", "--workload: figure sherman-5 says itself what it measures"},
		{"--figure sherman-5 --clients 1,2", "a figure takes one number"},
		{"--figure dex-9 --cache-percent 3", "--cache-percent: figure dex-9 says itself what it measures"},
		{"--figure dex-6-processor --processor-time 2", "--processor-time: figure dex-6-processor says itself"},
		{"--figure smart-21 --clients 8", "--clients: figure smart-21 says itself"},
		{"--figure smart-15 --key bytes:64", "--key: figure smart-15 says itself"},
		{"--figure five-cache --cache-bytes 1Mi", "--cache-bytes: figure five-cache says itself"},
		{"--figure five --message-rate 45", "--message-rate: figure five says itself"},
		{"--figure five-values --value 64", "--value: figure five-values says itself"},
		{"--figure five-memory --records 9", "--records: figure five-memory says itself"},
		{"--figure five-processor --transport tcp", "--transport: figure five-processor says itself"},
		{"--figure five-crash --workload C", "--workload: figure five-crash says itself"},
		{"--figure five-crash --servers 2x1 --clients 4", "give 2 or more"},
		{"--figure five-speed", "five-crash"},
		{"--figure five-speed", "five-cache"},
		{"--figure five-claims --clients 8", "--clients: figure five-claims says itself"},
		{"--figure five-claim", "five-claims"},
		{"--repartition --figure dex-9", "--figure: --repartition says itself"},
		{"--repartition=64Mi --transport sim", "in real time"},
		{"--repartition=64Mi --servers 3", "write memory servers x compute servers before the change"},
		{"--repartition=many", "--repartition: "},
		{"--secret /no/where", "--secret: only --repartition"},
		{"--loaded", "--loaded: only --repartition"},
		{"--repartition=64Mi --loaded", "--loaded: servers of this process"},
		{"--repartition=64Mi,1Mi --secret /no/where", "give the size of its caches alone"},
		{"--repartition=64Mi --secret /no/where", "/no/where"},
	} {
		if out, _, err := runBench(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("bench %s: %v, want %q\n%s", c.args, err, c.want, out)
		}
	}
}
