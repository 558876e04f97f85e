package engine

import (
	"testing"

	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestServesByTable: what a session found to be served it asks the table for no more, until it
// belongs to another table.
func TestServesByTable(t *testing.T) {
	tables := ownership.NewTables(env.Real())
	span := func(from, to string) partition.Span { return partition.Span{Start: []byte(from), End: []byte(to)} }
	s := &Session{}
	serves := func(keys string) (served string) {
		s.by = tables.Enter()
		defer tables.Leave(s.by)
		for range 2 {
			served = ""
			for _, k := range keys {
				if s.Serves([]byte(string(k))) {
					served += string(k)
				}
			}
		}
		return served
	}
	tables.Replace(nil, []partition.Span{span("b", "d"), span("m", "")})
	if got := serves("abcdmz"); got != "bcmz" {
		t.Errorf("%q are served", got)
	}
	tables.Replace(nil, []partition.Span{span("c", "d")})
	if got := serves("abcdmz"); got != "c" {
		t.Errorf("%q are served by the next table", got)
	}
	tables.Replace(nil, nil)
	if got := serves("abcdmz"); got != "" {
		t.Errorf("%q are served by an empty table", got)
	}
	if (&Session{}).Serves([]byte("a")) != true {
		t.Error("a session without a table serves nothing")
	}
}
