package resp

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/pubsub"
)

// TestSubscriptionsAreCounted: subscriptions take no more memory than is asked of the budget.
func TestSubscriptionsAreCounted(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	for _, row := range [][3]string{
		{"SUBSCRIBE", "c", ""}, {"SUBSCRIBE", "c", "x"}, {"PSUBSCRIBE", "p", "x"}, {"PSUBSCRIBE", "p", "[xy]"}, {"PSUBSCRIBE", "p", "?"},
	} {
		conn := c.quiet(1)
		conn.nc = &sink{}
		args := []string{row[0]}
		for i := range maxOwnPatterns {
			args = append(args, row[1]+fmt.Sprint(i)+strings.Repeat(row[2], 1000/(len(row[2])+1)))
		}
		before := inUse()
		if out, err := conn.feed([]byte(computeservertest.Command(args...))); err != nil || strings.HasPrefix(string(out), "-") {
			t.Fatalf("%s gave %.100q, %v", row[0], out, err)
		}
		conn.in, conn.args, conn.out, args = nil, nil, nil, nil
		conn.nc = &sink{}
		if took, held := inUse()-before, int64(conn.sub.bytes); took > held {
			t.Errorf("%s of names of %q takes %d bytes, and the budget is asked for %d", row[0], row[2], took, held)
		}
		conn.unsubscribeAll()
		conn.account.close()
	}
}

// inUse is how many bytes of the heap are in use.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// endsAtWrite is a connection that is over when it is written to.
type endsAtWrite struct {
	net.Conn
	end    func()
	writes int
}

func (e *endsAtWrite) Write(b []byte) (int, error) {
	e.writes++
	e.end()
	return len(b), nil
}

func (*endsAtWrite) SetWriteDeadline(time.Time) error { return nil }

// TestEndedSubscriberIsSentNoMore: a connection that is over is not sent what waits, however slowly
// its client takes it.
func TestEndedSubscriberIsSentNoMore(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	conn := c.quiet(1)
	s := &subscriber{c: conn, wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.mu.account.of = &conn.s.budget
	nc := &endsAtWrite{end: s.end}
	conn.nc = nc
	s.Push(pubsub.Channels, "c", &pubsub.Message{Channel: []byte("c"), Payload: make([]byte, 10*respFlushAt)})
	if err := s.write(s.begin()); err != nil || nc.writes != 1 {
		t.Errorf("it is written to %d times, and the last time ends with %v", nc.writes, err)
	}
}
