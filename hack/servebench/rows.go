package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// row is one way of asking.
type row struct {
	name, what string
	// the side that the others are divided by; empty = each is divided by itself, asked with base
	anchor  string
	goal    map[string]float64 // by side
	needs   string             // a program that must be there
	ycsb    bool               // needs go-ycsb's driver
	cgroups bool               // needs processor limits
	keys    string             // prefix of keys that must be there
	sides   []string           // if not all
	only    string             // the row's only side, whatever sides are asked for
	expires bool               // only of sides whose pairs may expire, which no other row has

	operations int // of a run, at scale 1
	run        func(m *machine, t *target, operations int) (elapsed time.Duration, err error)
	// what is divided by, if anchor is empty
	base func(m *machine, t *target, operations int) (elapsed time.Duration, err error)
}

// unfit is why a row cannot be measured here; empty if it can.
func (r *row) unfit(m *machine) string {
	if r.needs != "" {
		if _, err := exec.LookPath(r.needs); err != nil {
			return r.needs + " is not installed"
		}
	}
	if r.ycsb && m.o.ycsb == "" {
		return "go-ycsb's driver was not named with -ycsb"
	}
	if r.cgroups {
		return canLimit()
	}
	return ""
}

// of are the sides of a row, without its anchor.
func (r *row) of(o *options) []string {
	if r.only != "" {
		return []string{r.only}
	}
	var sides []string
	for _, s := range o.sides {
		if (r.sides == nil || slices.Contains(r.sides, s)) && strings.HasSuffix(s, expiring) == r.expires {
			sides = append(sides, s)
		}
	}
	return sides
}

func allRows() []row {
	goals := func(dexTCP, dexSHM, shermanTCP, shermanSHM float64) map[string]float64 {
		return map[string]float64{"dex-tcp": dexTCP, "dex-shm": dexSHM, "sherman-tcp": shermanTCP, "sherman-shm": shermanSHM}
	}
	dex := func(goal float64) map[string]float64 { return map[string]float64{"dex-tcp": goal} }
	return append([]row{
		{name: "set", what: "SET of keys that are there, pipelines of 32, 50 connections to one server, which owns the keys (redis-benchmark)", anchor: "redis",
			goal: goals(0.6, 1.2, 0, 1.0), needs: "redis-benchmark", keys: nearKeys, operations: 400_000, run: benchmark("SET", nearKeys, 50, 32)},
		{name: "set-new", what: "the same of random keys that are mostly new", anchor: "redis",
			needs: "redis-benchmark", operations: 200_000, run: benchmarkOf("SET", nearKeys, 50, 32, 1_000_000_000)},
		{name: "set-million", what: "the same of a million random keys, which are new in the first round and mostly there in the others", anchor: "redis",
			needs: "redis-benchmark", operations: 1_500_000, run: benchmarkOf("SET", millionKeys, 50, 32, 1_000_000)},
		{name: "get-million", what: "GET of the same keys; beside set-million, which puts them", anchor: "redis",
			needs: "redis-benchmark", operations: 1_500_000, run: benchmarkOf("GET", millionKeys, 50, 32, 1_000_000)},
		{name: "set-half", what: "the same as set, and the server forwards half of the commands", anchor: "redis",
			needs: "redis-benchmark", keys: spreadKeys, operations: 400_000, run: benchmark("SET", spreadKeys, 50, 32)},
		{name: "set-wait", what: "the same as set with a client of ours; redis-server has a replica, and WAIT 1 ends each pipeline", anchor: "redis-replica",
			goal: map[string]float64{"dex-tcp": 2, "dex-tcp" + copied: 1.2}, keys: nearKeys, operations: 400_000, run: pipelines(50, 32, 0)},
		{name: "get", what: "GET, pipelines of 32, 50 connections to one server, which owns the keys (redis-benchmark)", anchor: "redis",
			goal: goals(1.2, 1.5, 0.5, 0), needs: "redis-benchmark", keys: nearKeys, operations: 400_000, run: benchmark("GET", nearKeys, 50, 32)},
		{name: "get-half", what: "the same, and the server forwards half of the commands", anchor: "redis",
			needs: "redis-benchmark", keys: spreadKeys, operations: 400_000, run: benchmark("GET", spreadKeys, 50, 32)},
		{name: "one", what: "SET, pipelines of 64 on one connection (redis-benchmark)", anchor: "redis",
			goal: dex(0.5), needs: "redis-benchmark", keys: nearKeys, operations: 100_000, run: benchmark("SET", nearKeys, 1, 64)},
		{name: "set-p1", what: "SET, one at a time on each of 50 connections (redis-benchmark)", anchor: "redis",
			goal: dex(0.9), needs: "redis-benchmark", keys: nearKeys, operations: 100_000, run: benchmark("SET", nearKeys, 50, 1)},
		{name: "get-p1", what: "GET, one at a time on each of 50 connections (redis-benchmark)", anchor: "redis",
			goal: dex(1), needs: "redis-benchmark", keys: nearKeys, operations: 100_000, run: benchmark("GET", nearKeys, 50, 1)},
		{name: "get-p1-1", what: "the same on one connection", anchor: "redis",
			needs: "redis-benchmark", keys: nearKeys, operations: 30_000, run: benchmark("GET", nearKeys, 1, 1)},
		{name: "get-p1-1000", what: "the same on 1,000 connections", anchor: "redis",
			needs: "redis-benchmark", keys: nearKeys, operations: 100_000, run: benchmark("GET", nearKeys, 1000, 1)},
		{name: "mset", what: "MSET of 10,000 random keys on one connection", anchor: "redis",
			goal: dex(0.5), keys: nearKeys, operations: 200_000, run: msets(10_000)},
		{name: "pipe", what: "redis-cli --pipe of 200,000 new keys", anchor: "redis",
			goal: dex(0.4), needs: "redis-cli", operations: 200_000, run: pipe},
		{name: "sdk-put", what: "PutMany of 1,000 pairs, 8 at a time; anchor: SET in pipelines of 32 on 50 connections to the same servers",
			goal: dex(0.8), keys: nearKeys, operations: 200_000, run: putMany, base: pipelines(50, 32, 0)},
		{name: "sdk-get", what: "GetMany of 1,000 keys, 8 at a time; anchor: GET in pipelines of 32 on 50 connections to the same servers",
			goal: dex(0.8), keys: nearKeys, operations: 400_000, run: getMany, base: pipelines(50, 32, 1)},
		{name: "sdk-one", what: "Get of one key, 32 at a time; anchor: GET on 32 connections, one at a time, to the same servers",
			keys: nearKeys, operations: 60_000, run: getOne, base: pipelines(32, 1, 1)},
		{name: "sdk-load", what: "Load of new pairs; anchor: SET in pipelines of 32 on 50 connections to the same servers",
			goal: dex(0.8), keys: nearKeys, operations: 200_000, run: loadPairs, base: pipelines(50, 32, 0)},
		{name: "memtier", what: "SET and GET 1:1, pipelines of 16, 2 threads of 25 connections (memtier_benchmark)", anchor: "redis",
			goal: dex(0.8), needs: "memtier_benchmark", keys: nearKeys, operations: 400_000, run: memtier},
		{name: "mix", what: "SET and GET 1:1, pipelines of 16, 50 connections, a client of ours", anchor: "redis",
			goal: dex(0.8), keys: nearKeys, operations: 400_000, run: pipelines(50, 16, 0.5)},
	}, slices.Concat(ycsbRows(), scaleRows(), serviceRows(), pairRows(), setRows(), copyRows(), fileRows())...)
}

// pairRows are beside SET of the same servers.
func pairRows() (rows []row) {
	goal := func(ratio float64) map[string]float64 { return map[string]float64{"dex-tcp" + expiring: ratio} }
	for _, r := range []row{
		{name: "set-ex", what: "SET with EX", goal: goal(0.9), run: commands(nearKeys, "SET", "", "xxx", "EX", "1000")},
		{name: "incr", what: "INCR", goal: goal(0.9), run: commands(nearKeys+"i:", "INCR", "")},
		{name: "hset", what: "HSET of one field of a hash that has it", goal: goal(0.8), run: commands(nearKeys+"h:", "HSET", "", "field", "xxx")},
	} {
		r.what += ", pipelines of 32, 50 connections to one server, which owns the keys (redis-benchmark); anchor: SET on the same servers"
		r.needs, r.keys, r.expires, r.operations, r.base = "redis-benchmark", nearKeys, true, 200_000, benchmark("SET", nearKeys, 50, 32)
		rows = append(rows, r)
	}
	return rows
}

// commands is a run of redis-benchmark with a command whose empty argument is a random key. All
// keys are there: the same command made them.
func commands(prefix string, command ...string) func(*machine, *target, int) (time.Duration, error) {
	return func(m *machine, t *target, operations int) (time.Duration, error) {
		if err := m.load(t, prefix, command); err != nil {
			return 0, err
		}
		return m.benchmark(t, operations, 50, 32, m.o.keys, withKey(command, prefix+"__rand_int__"))
	}
}

// benchmark is a run of redis-benchmark.
func benchmark(command, prefix string, connections, pipeline int) func(*machine, *target, int) (time.Duration, error) {
	return benchmarkOf(command, prefix, connections, pipeline, 0)
}

// benchmarkOf is benchmark with random keys of so many; 0 = those that are there.
func benchmarkOf(command, prefix string, connections, pipeline, random int) func(*machine, *target, int) (time.Duration, error) {
	return func(m *machine, t *target, operations int) (time.Duration, error) {
		of := random
		if of == 0 {
			of = m.o.keys
		}
		args := []string{command, prefix + "__rand_int__"}
		if command == "SET" {
			args = append(args, "xxx")
		}
		return m.benchmark(t, operations, connections, pipeline, of, args)
	}
}

// benchmark runs redis-benchmark with a command.
func (m *machine) benchmark(t *target, operations, connections, pipeline, keys int, command []string) (time.Duration, error) {
	args := []string{"-p", portOf(t.resp[0]), "-c", fmt.Sprint(connections), "-P", fmt.Sprint(pipeline), "-n", fmt.Sprint(operations), "-r", fmt.Sprint(keys), "-q", "--csv"}
	out, err := m.tool("redis-benchmark", append(args, command...)...)
	if err != nil {
		return 0, err
	}
	rate, err := rateOf(out)
	if err != nil {
		return 0, err
	}
	return time.Duration(float64(operations) / rate * float64(time.Second)), nil
}
