package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// toolLimit bounds a run of a tool.
const toolLimit = 3 * time.Minute

// tool runs a program to its end and returns what it printed.
func (m *machine) tool(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(m.ctx, name, args...)
	return m.finish(cmd)
}

func (m *machine) finish(cmd *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return "", err
	}
	end := time.AfterFunc(toolLimit, func() { _ = cmd.Process.Kill() })
	defer end.Stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", cmd.Path, err, tail(out.Bytes()), tail(errs.Bytes()))
	}
	return out.String(), nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-1000):] }

// rateOf is the rate that redis-benchmark --csv prints.
func rateOf(out string) (float64, error) {
	records, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(records) != 2 || len(records[1]) < 2 {
		return 0, fmt.Errorf("redis-benchmark printed %q", out)
	}
	rate, err := strconv.ParseFloat(records[1][1], 64)
	if err == nil && rate <= 0 {
		err = fmt.Errorf("redis-benchmark printed %q", out)
	}
	return rate, err
}

// pipe feeds new keys to redis-cli --pipe.
func pipe(m *machine, t *target, operations int) (time.Duration, error) {
	file := filepath.Join(m.dir, "pipe")
	defer os.Remove(file)
	c := client{}
	prefix := fmt.Sprintf("%spipe-%d-", nearKeys, time.Now().UnixNano())
	for i := range operations {
		c.command("SET", spreadKey(prefix, i), "xxx")
	}
	if err := os.WriteFile(file, c.out, 0o600); err != nil {
		return 0, err
	}
	in, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	cmd := exec.CommandContext(m.ctx, "redis-cli", "-p", portOf(t.resp[0]), "--pipe")
	cmd.Stdin = in
	began := time.Now()
	out, err := m.finish(cmd)
	elapsed := time.Since(began)
	if err == nil && !strings.Contains(out, fmt.Sprintf("errors: 0, replies: %d", operations)) {
		err = errors.New("redis-cli --pipe: " + out)
	}
	return elapsed, err
}

// memtier is a run of memtier_benchmark.
func memtier(m *machine, t *target, operations int) (time.Duration, error) {
	const threads, connections = 2, 25
	each := max(operations/(threads*connections), 1)
	out, err := m.tool("memtier_benchmark", "--server", "127.0.0.1", "--port", portOf(t.resp[0]), "--protocol", "redis", "--hide-histogram",
		"--threads", fmt.Sprint(threads), "--clients", fmt.Sprint(connections), "--requests", fmt.Sprint(each), "--ratio", "1:1", "--pipeline", "16",
		"--key-prefix", nearKeys, "--key-minimum", "1", "--key-maximum", fmt.Sprint(m.o.keys), "--data-size", "32")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(out, "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Totals" {
			rate, err := strconv.ParseFloat(fields[1], 64)
			return time.Duration(float64(operations) / rate * float64(time.Second)), err
		}
	}
	return 0, fmt.Errorf("memtier_benchmark printed %q", out)
}
