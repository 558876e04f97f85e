package control

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// copyServer is a copy of a memory server that says what a test lets it say.
type copyServer struct {
	rpcv1.UnimplementedMemoryServer
	rpcv1.UnimplementedVolumeServer
	address string

	mu          sync.Mutex
	changed     chan struct{}
	view        *rpcv1.AwaitViewReply // nil = a server that knows no views
	serves      bool                  // else it refuses all calls of Memory
	incarnation uint64
	hold        chan struct{} // calls wait for it; nil = they do not
	deaf        bool          // no call of Memory reaches it

	asked, called atomic.Int32
}

func newCopy(t *testing.T) *copyServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &copyServer{address: l.Addr().String(), changed: make(chan struct{})}
	s := grpc.NewServer()
	rpcv1.RegisterMemoryServer(s, c)
	rpcv1.RegisterVolumeServer(s, c)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return c
}

// set changes what it says.
func (c *copyServer) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *copyServer) AwaitView(ctx context.Context, r *rpcv1.AwaitViewRequest) (*rpcv1.AwaitViewReply, error) {
	c.asked.Add(1)
	over := time.After(time.Duration(r.WaitMilliseconds) * time.Millisecond)
	for {
		c.mu.Lock()
		view, changed, serves := c.view, c.changed, c.serves
		c.mu.Unlock()
		if view == nil {
			return c.UnimplementedVolumeServer.AwaitView(ctx, r)
		}
		reply := &rpcv1.AwaitViewReply{View: view.View, Copies: view.Copies, Serves: serves}
		if view.View.Number > r.After {
			return reply, nil
		}
		select {
		case <-over:
			return reply, nil
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *copyServer) Describe(ctx context.Context, _ *rpcv1.DescribeMemoryRequest) (*rpcv1.DescribeMemoryReply, error) {
	c.mu.Lock()
	serves, hold, incarnation := c.serves && !c.deaf, c.hold, c.incarnation
	c.mu.Unlock()
	c.called.Add(1)
	if !serves {
		return nil, status.Error(codes.Unavailable, "this process is not the primary of its volume")
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &rpcv1.DescribeMemoryReply{Incarnation: incarnation, Indexes: []*rpcv1.IndexUse{{Index: "a"}}}, nil
}

// viewOf is view n of copies, the primary's first.
func viewOf(n uint64, copies ...*copyServer) *rpcv1.AwaitViewReply {
	v := &rpcv1.AwaitViewReply{View: &rpcv1.VolumeView{Number: n, Primary: &rpcv1.VolumeProcess{Pod: "pod " + copies[0].address, Process: 1}}}
	for _, c := range copies {
		v.Copies = append(v.Copies, &rpcv1.VolumeCopy{Pod: "pod " + c.address, Control: c.address})
	}
	return v
}

// decide lets the first copy be primary in view n, and all of them know.
func decide(n uint64, copies ...*copyServer) {
	for i, c := range copies {
		c.set(func() { c.view, c.serves = viewOf(n, copies...), i == 0 })
	}
}

func clientOf(t *testing.T, copies ...*copyServer) *Client {
	t.Helper()
	s := Server{ID: 1, Control: copies[0].address, Incarnation: 7}
	for _, c := range copies {
		c.incarnation = 7
	}
	for _, c := range copies[1:] {
		s.Copies = append(s.Copies, c.address)
	}
	c, err := New(Config{Index: "a", Provider: "tcp", Servers: []Server{s}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

const soon = 20 * time.Second

// await waits until a call reaches a copy.
func await(t *testing.T, c *Client, to *copyServer) {
	t.Helper()
	for end := time.Now().Add(soon); ; <-time.After(time.Millisecond) {
		before := to.called.Load()
		err := c.ready(1, soon)
		if err == nil && to.called.Load() > before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no call reaches %s: %v", to.address, err)
		}
	}
}

// follows lets errors of moved arrive on a channel.
func follows(c *Client, turn uint64) chan error {
	told := make(chan error, 10)
	c.Follow(1, turn, func(why error) { told <- why })
	return told
}

func received(t *testing.T, what string, told chan error) {
	t.Helper()
	select {
	case <-told:
	case <-time.After(soon):
		t.Fatalf("nobody was told: %s", what)
	}
}

// TestCallsThePrimary: of several copies the one is called that the highest view names, whichever
// is configured first, and whatever one says that believes in an old view.
func TestCallsThePrimary(t *testing.T) {
	a, b := newCopy(t), newCopy(t)
	decide(5, a, b)
	b.set(func() { b.view, b.serves = viewOf(6, b, a), true })
	c := clientOf(t, a, b)
	if err := c.ready(1, soon); err != nil || a.called.Load() > 0 || b.called.Load() != 1 {
		t.Errorf("%v after %d calls at the former primary, %d at the present one", err, a.called.Load(), b.called.Load())
	}
}

// TestMove: a view with another primary ends the call that waits for the one before, tells who has
// a grant from there, and whoever waits for news, once each.
func TestMove(t *testing.T) {
	a, b := newCopy(t), newCopy(t)
	decide(1, a, b)
	c := clientOf(t, a, b)
	await(t, c, a)
	news := make(chan error, 10)
	c.OnNews(func() { news <- nil })
	first := c.server(1).turn.number
	told := follows(c, first)
	stop := c.Follow(1, first, func(error) { t.Error("told after stop") })
	stop()
	hung := make(chan error, 1)
	a.set(func() { a.hold = make(chan struct{}) })
	before := a.called.Load()
	go func() { hung <- c.ready(1, time.Hour) }()
	for a.called.Load() == before {
		<-time.After(time.Millisecond)
	}
	b.set(func() { b.view, b.serves = viewOf(2, b, a), true }) // a stands still
	select {
	case err := <-hung:
		if !errors.Is(err, verbs.ErrDisconnected) {
			t.Errorf("a call to the former primary ended with %v", err)
		}
	case <-time.After(soon):
		t.Fatal("a call still waits for the former primary")
	}
	received(t, "of the grant", told)
	received(t, "of the news", news)
	await(t, c, b)
	received(t, "who comes late", follows(c, first))
	if n := len(told) + len(news); n > 0 {
		t.Errorf("told %d times more", n)
	}
	told = follows(c, c.server(1).turn.number)
	decide(3, b, a) // the same primary
	received(t, "of the news", news)
	if err := c.ready(1, soon); err != nil || len(told) > 0 {
		t.Errorf("%v, and told %d times in a view of the same primary", err, len(told))
	}
}

// TestOpening: a view counts for clients once its primary serves.
func TestOpening(t *testing.T) {
	a, b := newCopy(t), newCopy(t)
	decide(1, a, b)
	c := clientOf(t, a, b)
	await(t, c, a)
	told := follows(c, c.server(1).turn.number)
	asked := b.asked.Load()
	b.set(func() { b.view = viewOf(2, b, a) })
	for b.asked.Load() < asked+3 { // it hears of the view, and asks again
		<-time.After(time.Millisecond)
	}
	if err := c.ready(1, soon); err != nil || len(told) > 0 {
		t.Errorf("%v, and told %d times before anybody serves", err, len(told))
	}
	b.set(func() { b.serves = true })
	received(t, "of the primary that serves", told)
}

// TestLearnsAddresses: a client that knows one address follows its server to others, and finds it
// by its configuration when it was nowhere that it knew.
func TestLearnsAddresses(t *testing.T) {
	a, b, d, e := newCopy(t), newCopy(t), newCopy(t), newCopy(t)
	for _, k := range []*copyServer{b, d, e} {
		k.incarnation = 7
	}
	decide(1, a, b)
	c := clientOf(t, a)
	await(t, c, a)
	b.set(func() { b.view = viewOf(1, a, b) })
	for b.asked.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	decide(2, b, d)
	await(t, c, b)
	for d.asked.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	decide(3, d)
	await(t, c, d)
	if known := len(c.server(1).copies); known > 3 {
		t.Errorf("%d copies are known", known)
	}
	decide(9, e)
	d.set(func() { d.serves = false })
	c.Give(1, []string{e.address})
	await(t, c, e)
}

// TestGivenAndTold: what a configuration says that is behind does not hide a copy that the view
// told of, and who holds a grant from an address that is given no more is told.
func TestGivenAndTold(t *testing.T) {
	a, b, d := newCopy(t), newCopy(t), newCopy(t)
	b.incarnation, d.incarnation = 7, 7
	decide(1, a, b)
	c := clientOf(t, a)
	await(t, c, a)
	for b.asked.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	// b is a copy, and the configuration does not know it yet
	c.Give(1, []string{a.address, d.address})
	told := follows(c, c.server(1).turn.number)
	a.set(func() { a.serves = false })
	b.set(func() { b.view, b.serves = viewOf(2, b), true })
	received(t, "by a copy that is not configured", told)
	await(t, c, b)

	older, now := newCopy(t), newCopy(t)
	older.serves, now.serves, now.incarnation = true, true, 7
	c = clientOf(t, older)
	await(t, c, older)
	told = follows(c, c.server(1).turn.number)
	c.Give(1, []string{now.address})
	received(t, "that the address is given no more", told)
}

// TestOlderServers: servers that know no views are called at the first address, or at the one that
// the configuration has now.
func TestOlderServers(t *testing.T) {
	a, b := newCopy(t), newCopy(t)
	a.serves, b.serves, b.incarnation = true, true, 7
	c := clientOf(t, a)
	await(t, c, a)
	c.Give(1, []string{b.address, a.address})
	if await(t, c, a); b.called.Load() > 0 {
		t.Error("the server is there, and another address was called")
	}
	c.Give(1, []string{b.address})
	await(t, c, b)
}
