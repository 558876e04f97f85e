package pool

import (
	"errors"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// deaf is a connection to a server that does not answer the farewell.
type deaf struct {
	verbs.Conn
	p *simenv.Process
}

func (c deaf) Close() error {
	c.p.Sleep(5 * time.Second)
	return verbs.ErrTimeout
}

// TestServersThatAreGoneTogether: the connections of a client are cut side by side. So all are cut
// after the time of one, however many servers do not answer.
func TestServersThatAreGoneTogether(t *testing.T) {
	err := simenv.New(simenv.Options{Seed: 1}).Run(func(e *simenv.Process) {
		p := &Pool{env: e}
		var list []*server
		for id := range uint16(6) {
			s := &server{id: id, conn: deaf{p: e}}
			s.used.Store(true)
			list = append(list, s)
		}
		p.list.Store(&list)
		begun := e.Now()
		err := p.closeConnections()
		if took := e.Now() - begun; took > 6*time.Second {
			t.Errorf("6 servers that do not answer are left after %v", took)
		}
		if all, ok := err.(interface{ Unwrap() []error }); !ok || len(all.Unwrap()) != len(list) || !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("of %d servers that do not answer the error tells %v", len(list), err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
