package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ycsbRows are go-ycsb's core workloads with 32 threads, each of which waits for its answer. A
// value is one string of 1.5 KB: ten fields of 100 bytes, coded as text. An update reads before it
// writes, as go-ycsb does with strings.
func ycsbRows() []row {
	const zipf = " (go-ycsb, zipfian)"
	goal := map[string]float64{"dex-tcp": 0.8}
	rows := []row{
		{name: "ycsb-load", what: "inserts (go-ycsb)", operations: 40_000, goal: goal, run: ycsb(true, 0, 0)},
		{name: "ycsb-a", what: "half reads, half updates" + zipf, operations: 40_000, goal: goal, run: ycsb(false, 0.5, 0.5)},
		{name: "ycsb-b", what: "95 % reads, 5 % updates" + zipf, operations: 60_000, goal: goal, run: ycsb(false, 0.95, 0.05)},
		{name: "ycsb-c", what: "reads" + zipf, operations: 60_000, goal: map[string]float64{"dex-tcp": 1}, run: ycsb(false, 1, 0)},
	}
	for i := range rows {
		rows[i].anchor, rows[i].ycsb = "redis", true
	}
	return rows
}

func ycsb(load bool, reads, updates float64) func(*machine, *target, int) (time.Duration, error) {
	return func(m *machine, t *target, operations int) (time.Duration, error) {
		records := min(m.o.keys, 40_000)
		if load {
			records = operations
		} else if !t.loaded[ycsbKeys] {
			if _, err := m.runYCSB(t, true, records, 0, 0, 0); err != nil {
				return 0, err
			}
			t.loaded[ycsbKeys] = true
		}
		return m.runYCSB(t, load, records, operations, reads, updates)
	}
}

func (m *machine) runYCSB(t *target, load bool, records, operations int, reads, updates float64) (time.Duration, error) {
	out, err := m.tool(m.o.ycsb, "redis.addr="+t.resp[0], "redis.datatype=string", "threadcount=32", "silence=true",
		fmt.Sprint("recordcount=", records), fmt.Sprint("operationcount=", operations), fmt.Sprint("dotransactions=", !load),
		fmt.Sprint("readproportion=", reads), fmt.Sprint("updateproportion=", updates), "scanproportion=0", "insertproportion=0", "requestdistribution=zipfian")
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(out, "elapsed seconds: ")
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0, fmt.Errorf("go-ycsb printed %q", tail([]byte(out)))
	}
	if most := max(operations, records) / 1000; failures(out) > most {
		return 0, fmt.Errorf("more than %d operations failed: %s", most, tail([]byte(out)))
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// failures is how many operations go-ycsb says failed. Some do at redis-server, too: a popular key
// may lie right beyond the last one that was loaded.
func failures(out string) (n int) {
	for _, line := range bytes.Split([]byte(out), []byte("\n")) {
		name, rest, ok := strings.Cut(string(line), "_ERROR")
		if _, count, found := strings.Cut(rest, "Count: "); ok && found && !strings.Contains(name, " ") {
			count, _, _ = strings.Cut(count, ",")
			k, _ := strconv.Atoi(count)
			n += k
		}
	}
	return n
}
