package resp

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/pkg/index"
)

// slowLog is a log that confirms nothing before it is told to.
type slowLog struct {
	asked chan struct{} // a session waits
	end   chan error    // how a wait ends
	waits atomic.Int32
}

func newSlowLog() *slowLog { return &slowLog{asked: make(chan struct{}, 64), end: make(chan error)} }

func (l *slowLog) wait(uint64) error {
	l.waits.Add(1)
	l.asked <- struct{}{}
	return <-l.end
}

// silent fails the test if the server has sent something.
func silent(t *testing.T, r *computeservertest.Conn) {
	t.Helper()
	if err := r.NC.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if n, err := r.NC.Read(b[:]); n > 0 {
		t.Errorf("a reply that begins with %q came before the log was durable (%v)", b[:n], err)
	}
	if err := r.NC.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// TestPipelineWaitsOnce: the changes of a pipeline take effect at once, and its replies are held,
// reads included, until the log is durable up to the last of them: one wait. Another connection
// that reads such a change waits too.
func TestPipelineWaitsOnce(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	log := newSlowLog()
	c.store.Log(log.wait)
	writer, reader := c.raw(1), c.raw(1)
	var pipeline, want strings.Builder
	for i := range 40 {
		key := fmt.Sprint("k", i%10)
		pipeline.WriteString(computeservertest.Command("SET", key, fmt.Sprint(i)) + computeservertest.Command("GET", key) + computeservertest.Command("SETNX", key, "no") + computeservertest.Command("GET", "none"))
		fmt.Fprintf(&want, "+OK\r\n$%d\r\n%d\r\n:0\r\n$-1\r\n", len(fmt.Sprint(i)), i)
	}
	writer.Send(pipeline.String())
	<-log.asked
	if c.store.Len() != 10 {
		t.Errorf("%d of 10 keys are there while the pipeline waits", c.store.Len())
	}
	silent(t, writer)
	first := true
	for command, reply := range map[string]string{
		computeservertest.Command("GET", "k9"):          "$2\r\n39\r\n",
		computeservertest.Command("MGET", "k9", "none"): "*2\r\n$2\r\n39\r\n$-1\r\n",
		computeservertest.Command("EXISTS", "k9"):       ":1\r\n",
		computeservertest.Command("RANGE", "k9", "l"):   "*2\r\n$2\r\nk9\r\n$2\r\n39\r\n",
	} {
		if !first {
			writer.Send(computeservertest.Command("SET", "k9", "39"))
			<-log.asked
			want.WriteString("+OK\r\n")
		}
		first = false
		reader.Send(command)
		<-log.asked
		silent(t, reader)
		log.end <- nil // for one of the two, and the other one
		log.end <- nil
		reader.Expect(reply)
		writer.Expect(want.String())
		want.Reset()
	}
	if n := log.waits.Load(); n != 8 {
		t.Errorf("%d waits for the log; want one of each of 8 pipelines", n)
	}
}

// TestLogFailsBeforeReplies: where the wait fails, every change of the pipeline is UNKNOWN, and its
// reads are not answered. What failed by itself keeps its error.
func TestLogFailsBeforeReplies(t *testing.T) {
	for _, why := range []error{
		fmt.Errorf("%w: connection reset", index.ErrUnknown),
		fmt.Errorf("%w: %w", index.ErrUnknown, index.ErrTimeout),
	} {
		c := newCluster(t, config.RoutingOwner, nil, 1)
		c.split([]uint32{1})
		c.store.Log(func(uint64) error { return why })
		r := c.raw(1)
		r.Send(computeservertest.Command("SET", "a", "1") + computeservertest.Command("GET", "a") + computeservertest.Command("DEL", "none") +
			computeservertest.Command("SET", "a", strings.Repeat("v", 3000)) + computeservertest.Command("PING") + computeservertest.Command("SETNX", "b", "1"))
		for i, want := range []string{"-UNKNOWN ", "-UNAVAILABLE ", "-UNAVAILABLE ", "-ERR value is 3000 bytes", "+PONG", "-UNKNOWN "} {
			if got := r.Line(); !strings.HasPrefix(got, want) {
				t.Errorf("%v: command %d was answered %q; want %q", why, i, got, want)
			}
		}
		r.Send(computeservertest.Command("MSET", "a", "1", "b", "2"))
		if got := r.Line(); !strings.HasPrefix(got, "-UNKNOWN ") {
			t.Errorf("%v: MSET was answered %q", why, got)
		}
		c.store.Log(nil)
		r.Send(computeservertest.Command("SET", "a", "2") + computeservertest.Command("GET", "a"))
		r.Expect("+OK\r\n$1\r\n2\r\n")
	}
}

// TestInfoTellsOfPipelines: INFO says how many commands came together, and how many operations of a
// batch, how often they waited for the log, and all else that docs/serving.md names.
func TestInfoTellsOfPipelines(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	c.store.Log(func(uint64) error { return nil })
	conn := c.quiet(1)
	for range 2 {
		if out, err := conn.feed([]byte(strings.Repeat(computeservertest.Command("SET", "a", "1"), 15))); err != nil || len(out) != 15*len("+OK\r\n") {
			t.Fatalf("%q, %v", out, err)
		}
	}
	var tally count.Tally
	for range 3 {
		for range 7 {
			tally.Count(count.OK)
		}
		tally.Publish(conn.s.batches, 0)
	}
	out, err := conn.feed([]byte(computeservertest.Command("INFO")))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"dmindex_pipelines:2", "dmindex_commands_per_pipeline:15.00", "dmindex_batches:3", "dmindex_operations_per_batch:7.00",
		"dmindex_log_waits:2", "dmindex_log_wait_usec_average:", "dmindex_log_round_trips:0", "dmindex_forwarded:0", "dmindex_round_trips:0", "dmindex_index_operations:30",
	} {
		if !strings.Contains(string(out), "\r\n"+line) {
			t.Errorf("INFO lacks %s: %s", line, out)
		}
	}
}
