package pool

import (
	"slices"
	"testing"
	"time"
)

// forgetters are the memory servers of an index as forgetEnded sees them: server 1 is the home,
// which names two clients, one after the other; server 2 joins, is used by the second one, and that
// is fenced, while the first is being forgotten.
type forgetters struct {
	Control
	asked  map[uint16][]uint32
	joined []JoinedServer
}

func (f *forgetters) Servers() []uint16 { return []uint16{1} }

func (f *forgetters) Joined(uint32, time.Duration) (JoinedList, error) {
	return JoinedList{Version: uint64(len(f.joined)), Servers: f.joined}, nil
}

func (f *forgetters) Forget(server uint16, clients []uint32, _ time.Duration) (gone, next []uint32, err error) {
	f.asked[server] = append(f.asked[server], clients...)
	switch {
	case server != 1:
	case len(clients) == 0:
		next = []uint32{10}
	case clients[0] == 10:
		f.joined = []JoinedServer{{ID: 2, State: Member}}
		next = []uint32{11}
	}
	return clients, next, nil
}

// TestForgetAtServersThatJoined: a client that used a server which joined since the first round is
// forgotten there before the home forgets it.
func TestForgetAtServersThatJoined(t *testing.T) {
	f := &forgetters{asked: map[uint16][]uint32{}}
	p := &Pool{control: f, joins: f}
	if n := p.forgetEnded(func() bool { return false }); n != 2 {
		t.Errorf("%d clients are forgotten, want 2", n)
	}
	if !slices.Equal(f.asked[1], []uint32{10, 11}) || !slices.Equal(f.asked[2], []uint32{11}) {
		t.Errorf("asked to forget: %v", f.asked)
	}
}
