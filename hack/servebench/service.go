package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rows of a service ask all compute servers of an index for keys of all, as programs do behind a
// Service of Kubernetes: with N servers all but an Nth of the commands are forwarded. All servers
// share the processors with the client, and so does redis-server, which is one process.
const (
	serviceKeys = spreadKeys
	service     = "-service-" // before the number of compute servers of a side of such rows
)

func serviceRows() []row {
	var rows []row
	for _, servers := range []int{2, 4, 8} {
		for _, r := range []struct {
			command string
			reads   float64
		}{{"SET", 0}, {"GET", 1}} {
			rows = append(rows, row{name: fmt.Sprintf("service-%d-%s", servers, strings.ToLower(r.command)), anchor: "redis", only: fmt.Sprint("dex-tcp", service, servers), keys: serviceKeys,
				what: fmt.Sprintf("%s, pipelines of 32, 50 connections to all of %d compute servers, keys of all of them, a client of ours", r.command, servers), operations: 400_000,
				run: func(m *machine, t *target, operations int) (time.Duration, error) {
					return ask(t.resp, 50, operations, r.reads, func(i int) *picker { return newPicker(serviceKeys, m.o.keys, i) })
				}})
		}
	}
	return rows
}

// cutService takes the number of compute servers off a side, two if it says none.
func cutService(side string) (rest string, servers int) {
	rest, number, found := strings.Cut(side, service)
	if !found {
		return side, 2
	}
	servers, _ = strconv.Atoi(number)
	return rest, servers
}

// serviceDivided are where the ranges of so many compute servers begin, each with as many keys.
func serviceDivided(keys, servers int) (boundaries []string) {
	for i := 1; i < servers; i++ {
		boundaries = append(boundaries, spreadKey(serviceKeys, keys*i/servers))
	}
	return boundaries
}
