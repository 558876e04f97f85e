package resp

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/index"
)

// batches notes what sessions do together.
type batches struct {
	mu  sync.Mutex
	all []string
}

func (b *batches) note(what string, keys int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, fmt.Sprint(what, " ", keys))
}

// TestPipelineReadsTogether: the keys of a run of GETs are looked up in one batch, and the changes
// of a window are prepared together; what each command finds is what it would find alone.
func TestPipelineReadsTogether(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	conn, b := c.quiet(1), &batches{}
	// the first pipeline of a connection makes its window
	if out, err := conn.feed([]byte(strings.Repeat(computeservertest.Command("PING"), 3))); err != nil || string(out) != strings.Repeat("+PONG\r\n", 3) {
		t.Fatalf("%q, %v", out, err)
	}
	c.store.BeforeBatch(b.note)
	var pipeline, want strings.Builder
	add := func(reply string, command ...string) {
		pipeline.WriteString(computeservertest.Command(command...))
		want.WriteString(reply)
	}
	add("$-1\r\n", "GET", "a")
	add("$-1\r\n", "GET", "b")
	add("+OK\r\n", "SET", "a", "1")
	add("$1\r\n1\r\n", "GET", "a")
	add("$-1\r\n", "GET", "b")
	add("-ERR wrong number of arguments for 'get' command\r\n", "GET")
	add("$1\r\n1\r\n", "GET", "a")
	add("+OK\r\n", "SET", "a", "2", "XX")
	add(":1\r\n", "SETNX", "b", "3")
	add("$1\r\n3\r\n", "GET", "b")
	add("+PONG\r\n", "PING")
	add(":1\r\n", "DEL", "a")
	add("$-1\r\n", "GET", "a")
	add("$1\r\n3\r\n", "GET", "b")
	out, err := conn.feed([]byte(pipeline.String()))
	if err != nil || string(out) != want.String() {
		t.Errorf("replies %q, %v; want %q", out, err, want.String())
	}
	if want := []string{"look up 2", "prepare 4", "look up 3", "look up 2"}; !slices.Equal(b.all, want) {
		t.Errorf("done together: %q; want %q", b.all, want)
	}
}

// TestWindows: windows end where they may: behind so many commands or arguments, where the session
// is returned, or where the values that were looked up ahead are too many.
func TestWindows(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	long := strings.Repeat("v", 2000)
	for _, keys := range []int{1, windowLeast - 1, windowLeast, windowLeast + 1, windowLeast + windowMost, windowLeast + windowMost + 1, 3*respProvisional + 5} {
		conn := c.quiet(1)
		var set, get, many, sets, gets, each strings.Builder
		for i := range keys {
			key, value := fmt.Sprint("key", i), fmt.Sprint(i, long[:(i%3)*1000])
			set.WriteString(computeservertest.Command("SET", key, value))
			sets.WriteString("+OK\r\n")
			get.WriteString(computeservertest.Command("GET", key))
			fmt.Fprintf(&gets, "$%d\r\n%s\r\n", len(value), value)
			many.WriteString(computeservertest.Command(slices.Concat([]string{"EXISTS"}, slices.Repeat([]string{key}, 1+i%200))...))
			fmt.Fprintf(&each, ":%d\r\n", 1+i%200)
		}
		for _, p := range []struct{ what, send, want string }{{"SET", set.String(), sets.String()}, {"GET", get.String(), gets.String()}, {"EXISTS", many.String(), each.String()}} {
			var got strings.Builder
			conn.nc = discard{write: func(b []byte) { got.Write(b) }}
			out, err := conn.feed([]byte(p.send))
			if got.Write(out); err != nil || got.String() != p.want {
				t.Errorf("%d of %s: %d bytes of replies, %v; want %d", keys, p.what, got.Len(), err, len(p.want))
			}
		}
	}
}

// TestDeadBesideAWindow: a session that dies while it looks ahead is returned, and the commands say
// why they fail.
func TestDeadBesideAWindow(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	r := c.raw(1)
	for range 3 { // with a window, and without one
		c.store.Fail(index.ErrUnreachable)
		r.Send(computeservertest.Command("GET", "a") + computeservertest.Command("GET", "b") + computeservertest.Command("SET", "a", "1") + computeservertest.Command("SET", "b", "1"))
		for i := range 4 {
			if got := r.Line(); !strings.HasPrefix(got, "-UNAVAILABLE ") {
				t.Errorf("command %d was answered %q", i, got)
			}
		}
		c.store.Fail(nil)
		computeservertest.Await(t, "the index is open again", func() bool {
			r.Send(computeservertest.Command("SET", "a", "1"))
			return r.Line() == "+OK\r\n"
		})
		r.Send(computeservertest.Command("GET", "a") + computeservertest.Command("GET", "a"))
		r.Expect("$1\r\n1\r\n$1\r\n1\r\n")
	}
}

// TestAnswersOfALostSessionAreForgotten: a session is returned in the middle of a window, because
// there are many replies, and what it saw is lost. The rest of the window, which was looked up
// ahead with that session, is looked up again.
func TestAnswersOfALostSessionAreForgotten(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	waits, undone := 0, 0
	c.store.Log(func(uint64) error {
		if waits++; waits == 2 {
			undone = c.store.Lose(func(_, _ []byte, _ bool) {})
		}
		return nil
	})
	conn := c.quiet(1)
	// the first pipeline of a connection makes its window
	if out, err := conn.feed([]byte(computeservertest.Command("PING") + computeservertest.Command("SET", "key", "old"))); err != nil || string(out) != "+PONG\r\n+OK\r\n" {
		t.Fatalf("%q, %v", out, err)
	}
	// The PING waits for nothing: so the session has all replies that it may have behind the first
	// command of a window.
	const rest = windowMost / 2
	var got strings.Builder
	conn.nc = discard{write: func(b []byte) { got.Write(b) }}
	out, err := conn.feed([]byte(computeservertest.Command("PING") + computeservertest.Command("SET", "key", "new") +
		strings.Repeat(computeservertest.Command("GET", "key"), respProvisional-1+rest)))
	if got.Write(out); err != nil {
		t.Fatal(err)
	}
	if undone != 1 || waits != 3 {
		t.Errorf("%d changes were undone in %d waits for the log; want 1 in 3", undone, waits)
	}
	if strings.Contains(got.String(), "new") {
		t.Error("a GET was replied the value that was lost")
	}
	if n := strings.Count(got.String(), "$3\r\nold\r\n"); n != rest {
		t.Errorf("%d GETs were replied the value that is there; want %d", n, rest)
	}
	if n := strings.Count(got.String(), "-UNAVAILABLE "); n != respProvisional-1 {
		t.Errorf("%d GETs were not answered; want %d", n, respProvisional-1)
	}
}

// TestForwardsDoNotWait: commands that are forwarded are sent while those of this server wait for
// the log.
func TestForwardsDoNotWait(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	log := newSlowLog()
	c.store.Log(log.wait)
	r := c.raw(1)
	r.Send(computeservertest.Command("SET", "a", "1") + computeservertest.Command("SET", "z", "1") + computeservertest.Command("GET", "a"))
	<-log.asked
	<-log.asked // by the other server, before the first wait has ended
	silent(t, r)
	log.end <- nil
	log.end <- nil
	r.Expect("+OK\r\n+OK\r\n$1\r\n1\r\n")
}
