package sim

import (
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// door is where a server that a process runs takes calls: each is a goroutine of that process, so
// it stands still when the process is frozen, and dies with it.
type door struct {
	server  *Server
	process *simenv.Process
	// held from Admit until the connection is in the table, so that Disconnect misses none
	admitting env.Mutex
	callers   []env.Event // of calls under way
}

// NewServerOf makes a memory server that process p runs, at an address of the caller's choice. It
// ends with p: then its connections are cut, and another process may take the address, and the
// memory.
func (f *Fabric) NewServerOf(p *simenv.Process, address string, o verbs.ServerOptions) (*Server, error) {
	s, err := f.newServer(p, address, o)
	if err != nil {
		return nil, err
	}
	s.door = &door{server: s, process: p, admitting: p.NewMutex()}
	p.AtKill(s.door.die)
	return s, nil
}

func (d *door) die() {
	s := d.server
	s.down = true
	if s.fabric.servers[s.address] == s {
		delete(s.fabric.servers, s.address)
	}
	s.dies()
	for _, caller := range d.callers {
		caller.Set()
	}
}

// call runs do in the server's process and waits until it has ended.
func (d *door) call(from *simenv.Process, limit time.Duration, do func()) error {
	ended := false
	caller := from.NewEvent()
	d.callers = append(d.callers, caller)
	defer remove(&d.callers, caller)
	d.process.Go("call of "+from.Name(), func() {
		do()
		ended = true
		caller.Set()
	})
	woken := caller.Wait(limit)
	switch {
	case from.Dead():
		return verbs.ErrClosed
	case ended:
		return nil
	case d.process.Dead():
		return verbs.ErrDisconnected
	case woken:
		panic("sim: a call ended without having ended")
	}
	return verbs.ErrTimeout
}
