package main

import (
	"fmt"
	"time"
)

const (
	setKey     = nearKeys + "set"
	setMembers = nearKeys + "z:" // prefix of members
	setTimes   = 5               // as many members as keys: a million
)

// setRows are of sorted sets, of which one server has all members.
func setRows() (rows []row) {
	goal := func(ratio float64) map[string]float64 { return map[string]float64{"dex-tcp" + expiring: ratio} }
	for _, r := range []row{
		{name: "zadd", what: "ZADD of a random member of a set of a million, to a random score", goal: goal(0.5), operations: 200_000, run: onSet("ZADD", setKey, "__rand_int__", setMembers+"__rand_int__")},
		{name: "zadd-p1", what: "the same, one at a time", operations: 50_000, run: onSetWith(1, "ZADD", setKey, "__rand_int__", setMembers+"__rand_int__")},
		{name: "zscore", what: "ZSCORE of a random member", operations: 200_000, run: onSet("ZSCORE", setKey, setMembers+"__rand_int__")},
		{name: "zrange", what: "ZRANGE of the first 100 members", goal: goal(1), operations: 40_000, run: onSet("ZRANGE", setKey, "0", "99")},
	} {
		r.what += fmt.Sprintf("; pipelines of %d, if nothing else is said, 50 connections to one server (redis-benchmark)", setPipeline)
		r.anchor, r.needs, r.expires = "redis", "redis-benchmark", true
		rows = append(rows, r)
	}
	return rows
}

const setPipeline = 16

func onSet(command ...string) func(*machine, *target, int) (time.Duration, error) {
	return onSetWith(setPipeline, command...)
}

// onSetWith is a run of redis-benchmark on the set, which is made before.
func onSetWith(pipeline int, command ...string) func(*machine, *target, int) (time.Duration, error) {
	return func(m *machine, t *target, operations int) (time.Duration, error) {
		members := setTimes * m.o.keys
		if !t.loaded[setMembers] {
			if err := fill(t.resp[:1], setMembers, members, []string{"ZADD", setKey, "0", ""}); err != nil {
				return 0, err
			}
			t.loaded[setMembers] = true
		}
		return m.benchmark(t, operations, 50, pipeline, members, command)
	}
}
