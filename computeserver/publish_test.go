package computeserver

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/pubsub"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestMessagesOfAllServers: subscribers at every server get what is published at any server, in the
// order of each publisher, and PUBSUB knows all of them. Each server counts its own receivers.
func TestMessagesOfAllServers(t *testing.T) {
	const each = 300
	ctx := t.Context()
	c := newCluster(t, config.RoutingOwner, nil, 1, 2, 3)
	c.split([]uint32{1, 2, 3}, "h", "p")
	type listener struct {
		from uint32
		got  chan string
	}
	var all []listener
	for id := range c.servers {
		s := c.redis(id).Subscribe(ctx, "news")
		if err := s.PSubscribe(ctx, "n*", fmt.Sprint("own-", id)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := s.Receive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		l := listener{id, make(chan string, 4*3*each)}
		all = append(all, l)
		go func() {
			for {
				m, err := s.ReceiveMessage(ctx)
				if err != nil {
					return
				}
				l.got <- m.Pattern + " " + m.Payload
			}
		}()
	}
	for id := range c.servers {
		r := c.redis(id)
		if n, err := r.PubSubNumSub(ctx, "news", "none").Result(); err != nil || n["news"] != 3 || n["none"] != 0 {
			t.Errorf("server %d counts %v (%v)", id, n, err)
		}
		if names, err := r.PubSubChannels(ctx, "*").Result(); err != nil || fmt.Sprint(names) != "[news]" {
			t.Errorf("server %d lists %v (%v)", id, names, err)
		}
		if n, err := r.PubSubNumPat(ctx).Result(); err != nil || n != 6 {
			t.Errorf("server %d counts %d patterns (%v)", id, n, err)
		}
	}
	var publishers sync.WaitGroup
	for id := range c.servers {
		r := c.redis(id)
		publishers.Go(func() {
			for n := range each {
				if receivers, err := r.Publish(ctx, "news", fmt.Sprintf("%d %04d", id, n)).Result(); err != nil || receivers != 2 {
					t.Errorf("server %d has %d receivers (%v)", id, receivers, err)
					return
				}
			}
		})
	}
	publishers.Wait()
	for _, l := range all {
		last := map[string]string{}
		for range 2 * len(c.servers) * each {
			got := <-l.got
			by := got[:strings.LastIndex(got, " ")]
			if got <= last[by] {
				t.Fatalf("the subscriber of server %d got %q behind %q", l.from, got, last[by])
			}
			last[by] = got
		}
	}
	for id, r := range c.servers {
		if n := r.core.Count.Undelivered.Load(); n != 0 {
			t.Errorf("server %d dropped %d messages", id, n)
		}
		if n := r.core.Count.Delivered.Load(); n != 2*3*each {
			t.Errorf("server %d delivered %d messages", id, n)
		}
	}
}

// TestWrittenBeforePublished: a subscriber of another server that gets a message finds what the
// pipeline wrote before it, at whichever server the key is.
func TestWrittenBeforePublished(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	hears := newTalk(c, 2)
	hears.Send(computeservertest.Command("HELLO", "3") + computeservertest.Command("SUBSCRIBE", "c"))
	upTo(t, hears.from, "subscribe\r\n$1\r\nc\r\n:1\r\n")
	writer := newTalk(c, 1)
	for n := range 200 {
		value := fmt.Sprintf("%03d", n)
		writer.Send(computeservertest.Command("SET", "a", value) + computeservertest.Command("SET", "x", value) + computeservertest.Command("PUBLISH", "c", value))
		upTo(t, hears.from, value+"\r\n")
		hears.Send(computeservertest.Command("MGET", "a", "x"))
		if got, want := message(t, hears.from), fmt.Sprintf("*2\r\n$3\r\n%s\r\n$3\r\n%s\r\n", value, value); got != want {
			t.Fatalf("a subscriber found %q, want %q", got, want)
		}
	}
}

// TestPublishPastAServerThatIsAway: a server that has died takes no messages, and those of the
// others go on. It gets them again when it is there again, under the same address or another one.
func TestPublishPastAServerThatIsAway(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2, 3)
	m := c.split([]uint32{1, 2, 3}, "h", "p")
	hears := newTalk(c, 3)
	hears.Send(computeservertest.Command("SUBSCRIBE", "c"))
	upTo(t, hears.from, ":1\r\n")
	c.stop(2)
	p := c.servers[1].publisher
	p.pause = time.Millisecond
	r := newTalk(c, 1)
	publish := func(text string) {
		r.Send(computeservertest.Command("PUBLISH", "c", text))
		if got := wholeReply(t, r.from); got != ":0\r\n" {
			t.Fatalf("PUBLISH gave %q", got)
		}
		upTo(t, hears.from, text+"\r\n")
	}
	for n := range 100 {
		publish(fmt.Sprint("away-", n))
	}
	computeservertest.Await(t, "the messages for the server are given up", func() bool { return c.servers[1].core.Count.Undelivered.Load() == 100 })
	c.start(2)
	back := *m
	back.Generation, back.Servers = m.Generation+1, c.members(1, 2, 3)
	c.publish(&back)
	again := newTalk(c, 2)
	again.Send(computeservertest.Command("SUBSCRIBE", "c"))
	upTo(t, again.from, ":1\r\n")
	heard := make(chan struct{})
	go func() { defer close(heard); upTo(t, again.from, "message\r\n") }()
	computeservertest.Await(t, "the server gets messages again", func() bool {
		publish("back")
		select {
		case <-heard:
			return true
		default:
			return false
		}
	})
}

// TestPublishPastASlowServer: messages for a server that answers nothing wait within bounds, and
// once that was waited for in vain nobody waits any more.
func TestPublishPastASlowServer(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	stuck, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	members := append(c.members(1), partition.Server{ID: 2, Name: "pod-2", RPC: stuck.Addr().String()})
	m, err := partition.ByBoundaries(computeservertest.Index, members, [][]byte{[]byte("m")})
	if err != nil {
		t.Fatal(err)
	}
	c.publish(m)
	p := c.servers[1].publisher
	p.limit, p.patience = time.Hour, 20*time.Millisecond
	const beyond = 10_000
	began := time.Now()
	for n := range publishQueued + publishBatch + beyond {
		p.relay(&pubsub.Message{Channel: []byte("c"), Payload: fmt.Append(nil, n)})
	}
	if took := time.Since(began); took > beyond*p.patience/4 {
		t.Errorf("publishing took %v: each message waited", took)
	}
	q := p.queue(members[1])
	q.mu.Lock()
	waits := len(q.messages)
	q.mu.Unlock()
	if waits != publishQueued {
		t.Errorf("%d messages wait, want %d", waits, publishQueued)
	}
	if n := c.servers[1].core.Count.Undelivered.Load(); n < beyond || n > beyond+publishBatch {
		t.Errorf("%d messages were dropped, want %d and at most a batch more", n, beyond)
	}
	large := &pubsub.Message{Channel: []byte("c"), Payload: make([]byte, 1<<20)}
	q.mu.Lock()
	q.messages, q.bytes, q.behind = nil, 0, false
	q.mu.Unlock()
	for range 20 {
		p.relay(large)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes > publishQueuedSize {
		t.Errorf("%d bytes wait", q.bytes)
	}
	p.limit = 0 // of what the end sends
}

// TestLateBatch: a batch that comes behind a later one of the same process goes to nobody.
func TestLateBatch(t *testing.T) {
	var a arrivals
	var got []uint64
	come := func(server uint32, process, number uint64) {
		a.inOrder(&rpcv1.PublishRequest{Server: server, Process: process, Number: number}, func() { got = append(got, number) })
	}
	come(1, 7, 1)
	come(1, 7, 3)
	come(1, 7, 2)
	come(1, 7, 3)
	come(2, 7, 2)
	come(1, 8, 1)
	come(1, 8, 2)
	if want := fmt.Sprint([]uint64{1, 3, 2, 1, 2}); fmt.Sprint(got) != want {
		t.Errorf("%v were delivered, want %s", got, want)
	}
}

// olderServer is one of a version that knows no messages.
type olderServer struct {
	rpcv1.UnimplementedComputeServer
}

// TestPublishPastAnOlderServer: a server that does not know the calls is passed over.
func TestPublishPastAnOlderServer(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 3)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	older := grpc.NewServer(grpc.Creds(insecure.NewCredentials()))
	rpcv1.RegisterComputeServer(older, olderServer{})
	go func() { _ = older.Serve(l) }()
	defer older.Stop()
	members := append(c.members(1, 3), partition.Server{ID: 2, Name: "pod-2", RPC: l.Addr().String()})
	m, err := partition.ByBoundaries(computeservertest.Index, members, [][]byte{[]byte("h"), []byte("p")})
	if err != nil {
		t.Fatal(err)
	}
	c.publish(m)
	hears := newTalk(c, 3)
	hears.Send(computeservertest.Command("SUBSCRIBE", "c"))
	upTo(t, hears.from, ":1\r\n")
	r := newTalk(c, 1)
	r.Send(computeservertest.Command("PUBLISH", "c", "text") + computeservertest.Command("PUBSUB", "NUMSUB", "c"))
	if got := wholeReply(t, r.from) + wholeReply(t, r.from); got != ":0\r\n*2\r\n$1\r\nc\r\n:1\r\n" {
		t.Errorf("beside an older server: %q", got)
	}
	upTo(t, hears.from, "text\r\n")
	computeservertest.Await(t, "the message for it is given up", func() bool { return c.servers[1].core.Count.Undelivered.Load() == 1 })
}

// TestSubscribeUnderTLS: messages come while the connection is read, and between its replies.
func TestSubscribeUnderTLS(t *testing.T) {
	c, ca, _ := respCluster(t, false, nil)
	login := computeservertest.Command("AUTH", "secret") + computeservertest.Command("HELLO", "3") + computeservertest.Command("ECHO", "begin")
	both := make([]*talk, 2)
	for i := range both {
		conn, _ := c.dialRESP(ca)
		both[i] = &talk{conn, bufio.NewReader(conn.NC)}
		both[i].Send(login)
		upTo(t, both[i].from, "begin\r\n")
	}
	hears, says := both[0], both[1]
	hears.Send(computeservertest.Command("SUBSCRIBE", "c"))
	upTo(t, hears.from, ":1\r\n")
	const all = 500
	var publisher sync.WaitGroup
	defer publisher.Wait()
	publisher.Go(func() {
		for n := range all {
			says.Send(computeservertest.Command("PUBLISH", "c", fmt.Sprint(n, strings.Repeat(".", 100*(n%100)))))
			if got, err := says.from.ReadString('\n'); got != ":1\r\n" {
				t.Errorf("PUBLISH gave %q (%v)", got, err)
				return
			}
		}
	})
	for n, pongs := 0, 0; n < all; {
		hears.Send("PING\r\n")
		for before := pongs; pongs == before; {
			switch got := message(t, hears.from); {
			case got == "+PONG\r\n":
				pongs++
			case strings.HasSuffix(got, fmt.Sprint("\r\n", n, strings.Repeat(".", 100*(n%100)), "\r\n")):
				n++
			default:
				t.Fatalf("%.80q came, where message %d, or an answer, is next", got, n)
			}
		}
	}
}
