package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

const patience = 5 * time.Minute // of tests, for what takes milliseconds

// bufferServer is a server whose large buffers the test sees.
func bufferServer(t *testing.T, frame, turn time.Duration) (b *buffers, s verbs.Server, address string, tokens *verbstest.Tokens) {
	t.Helper()
	b, tokens = newBuffers(), new(verbstest.Tokens)
	b.frame, b.turn = frame, turn
	s, err := newServer(verbs.ServerOptions{Memory: verbstest.Memory(t, 4<<20, 4096), Admission: tokens}, b)
	if err != nil {
		t.Fatal(err)
	}
	return b, s, listen(t, s), tokens
}

// patientConn is rawConn for tests that load the machine.
func patientConn(t *testing.T, address string, tokens *verbstest.Tokens) net.Conn {
	t.Helper()
	return patientConnOf(t, address, tokens, "")
}

func patientConnOf(t *testing.T, address string, tokens *verbstest.Tokens, index string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := greet(c, &hello.Hello{Token: tokens.Issue(verbs.Peer{Index: index, Client: 1})}, time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// counts are what there is of large buffers, and of sessions that wait for one.
func (b *buffers) counts() (made, free, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.made, len(b.mu.free), len(b.mu.waiting)
}

// await waits for a state of the buffers.
func await(t *testing.T, b *buffers, what string, is func(made, free, waiting int) bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(b.counts()); runtime.Gosched() {
		if time.Now().After(end) {
			made, free, waiting := b.counts()
			t.Fatalf("%s: %d made, %d free, %d sessions wait", what, made, free, waiting)
		}
	}
}

func allBack(made, free, waiting int) bool { return made == free && waiting == 0 }

// each is the index that holds buffer i of takeAll.
func each(i int) string { return fmt.Sprintf("index %d", i) }

// takeAll takes every large buffer, each for another index.
func takeAll(t *testing.T, b *buffers) (all [][]byte) {
	t.Helper()
	for i := range largeBuffers {
		large, err := b.take(each(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, large)
	}
	return all
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestIdleConnections: after a burst of the largest transfers on many connections, these hold no
// more than the budget says, and no large buffer.
func TestIdleConnections(t *testing.T) {
	const conns = 150
	b, _, address, tokens := bufferServer(t, patience, patience)
	block := make([]byte, verbs.MaxTransfer)
	frames := append(encodeList([]verbs.Request{{Op: verbs.Write, Local: block}}, 0, 0),
		encodeList([]verbs.Request{{Op: verbs.Read, Local: block}}, 0, 1)...)
	var list [conns]net.Conn
	for i := range list {
		list[i] = patientConn(t, address, tokens)
	}
	before := heapInUse() - b.held()
	var all sync.WaitGroup
	for _, c := range list {
		all.Go(func() {
			if _, err := c.Write(frames); err != nil {
				t.Error(err)
			}
			if _, err := io.CopyN(io.Discard, c, 2*headerSize+verbs.MaxTransfer); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made, free, waiting := b.counts(); !allBack(made, free, waiting) || made == 0 {
		t.Errorf("of %d large buffers %d came back, %d sessions wait", made, free, waiting)
	}
	budget := Budget(conns)
	if held := b.held(); held > budget {
		t.Errorf("the server holds %d bytes of buffers, %d are its budget", held, budget)
	}
	if grown := heapInUse() - before; grown > budget {
		t.Errorf("the heap has %d bytes for %d idle connections, %d are their budget", grown, conns, budget)
	}
}

// TestManyLargeFrames: as many connections as there may be, each in the middle of a large frame,
// are all answered.
func TestManyLargeFrames(t *testing.T) {
	const size, first = 256 << 10, 8 << 10
	b, _, address, tokens := bufferServer(t, patience, patience)
	frame := encodeList([]verbs.Request{{Op: verbs.Write, Local: make([]byte, size)}}, 0, 0)
	var list [verbs.DefaultMaxConns]net.Conn
	for i := range list {
		list[i] = patientConnOf(t, address, tokens, []string{"a", "b"}[i%2]) // each has its share
		if _, err := list[i].Write(frame[:first]); err != nil {
			t.Fatal(err)
		}
	}
	await(t, b, "each session has a buffer or waits", func(made, free, waiting int) bool {
		return made > largeBuffers/2 && made <= largeBuffers && free == 0 && waiting == len(list)-made
	})
	if held, budget := b.held(), Budget(len(list)); held > budget {
		t.Errorf("the server holds %d bytes of buffers, %d are its budget", held, budget)
	}
	var all sync.WaitGroup
	for _, c := range list {
		all.Go(func() {
			if _, err := c.Write(frame[first:]); err != nil {
				t.Error(err)
			}
			var answer [headerSize]byte
			if _, err := io.ReadFull(c, answer[:]); err != nil || answer[6] != frameList {
				t.Errorf("answer %v: %v", answer, err)
			}
		})
	}
	all.Wait()
	if made, free, waiting := b.counts(); !allBack(made, free, waiting) {
		t.Errorf("of %d large buffers %d came back, %d sessions wait", made, free, waiting)
	}
}

// TestHalfALargeFrame: a client that does not send the rest loses the buffer, and with it the
// connection.
func TestHalfALargeFrame(t *testing.T) {
	b, _, address, tokens := bufferServer(t, 50*time.Millisecond, patience)
	all := takeAll(t, b)
	b.give(each(0), all[0])
	c := patientConn(t, address, tokens)
	frame := encodeList([]verbs.Request{{Op: verbs.Write, Local: make([]byte, 1<<20)}}, 0, 0)
	if got := answers(t, c, frame[:len(frame)/2]); len(got) != 0 {
		t.Errorf("half a frame is answered with %+v", got)
	}
	for i, large := range all[1:] {
		b.give(each(1+i), large)
	}
	await(t, b, "the buffer comes back", allBack)
}

// pipes is a listener whose connections hold nothing: a write ends with the other side's read.
type pipes struct{ accept chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.accept; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p *pipes) Close() error { return nil }
func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestSlowReaderOfALargeFrame: a client that does not take the answer to a large frame loses its
// buffer, too.
func TestSlowReaderOfALargeFrame(t *testing.T) {
	b, s, _, tokens := bufferServer(t, time.Second, patience)
	p := &pipes{make(chan net.Conn, 1)}
	go s.Serve(p)
	t.Cleanup(func() { close(p.accept) })
	c, far := net.Pipe()
	defer c.Close()
	p.accept <- far
	if _, err := greet(c, &hello.Hello{Token: tokens.Issue(verbs.Peer{Client: 1})}, time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	frame := encodeList([]verbs.Request{
		{Op: verbs.Write, Local: make([]byte, inBuffer)}, {Op: verbs.Read, Local: make([]byte, outBuffer)},
	}, 0, 0)
	c.SetDeadline(time.Now().Add(patience))
	c.Write(frame) // fails if the machine stands still for as long as the limit
	await(t, b, "the buffer comes back", func(made, free, waiting int) bool { return made > 0 && made == free })
	if n, err := io.Copy(io.Discard, c); err != nil || n > 0 {
		t.Errorf("%d bytes of the answer arrived after its end: %v", n, err)
	}
}

// TestCutWhileWaiting: Disconnect ends a session that waits for a large buffer. Others are answered
// meanwhile.
func TestCutWhileWaiting(t *testing.T) {
	b, s, address, tokens := bufferServer(t, patience, patience)
	all := takeAll(t, b)
	c := patientConn(t, address, tokens)
	frame := encodeList([]verbs.Request{{Op: verbs.Write, Local: make([]byte, inBuffer)}}, 0, 0)
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	await(t, b, "the session waits", func(_, _, waiting int) bool { return waiting == 1 })
	bye := (&header{size: headerSize, kind: frameBye}).append(nil)
	if got := answers(t, patientConn(t, address, tokens), bye); len(got) != 1 || got[0].kind != frameBye {
		t.Errorf("a farewell is answered with %+v", got)
	}
	cut := make(chan int)
	go func() { cut <- s.Disconnect(func(verbs.Peer) bool { return true }) }()
	select {
	case n := <-cut:
		if n != 1 {
			t.Errorf("%d sessions were cut", n)
		}
	case <-time.After(patience / 5):
		t.Fatal("Disconnect waits for a session that waits for a buffer")
	}
	for i, large := range all {
		b.give(each(i), large)
	}
	await(t, b, "all buffers are free", allBack)
}

// TestSpare: long answers leave half of the buffers for long frames, and some of them for those of
// their own index.
func TestSpare(t *testing.T) {
	b := newBuffers()
	spared := 0
	for _, index := range []string{"a", "b"} {
		for large := b.spare(index); large != nil; large = b.spare(index) {
			if spared++; len(large) != maxFrame {
				t.Fatalf("a buffer of %d bytes", len(large))
			}
		}
		large, err := b.take(index, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.give(index, large)
		if b.spare(index) != nil {
			t.Error("answers get more buffers once some are free")
		}
	}
	if spared != largeBuffers/2 {
		t.Errorf("answers get %d buffers, %d are half of them", spared, largeBuffers/2)
	}
}

// TestShareOfLargeBuffers: clients of one index that begin long frames and do not end them keep no
// other index from sending one.
func TestShareOfLargeBuffers(t *testing.T) {
	b, _, address, tokens := bufferServer(t, patience, patience)
	frame := encodeList([]verbs.Request{{Op: verbs.Write, Local: make([]byte, inBuffer)}}, 0, 0)
	for i, index := range []string{"a", "b", "c"} {
		for range largeBuffers {
			if _, err := patientConnOf(t, address, tokens, index).Write(frame[:headerSize]); err != nil {
				t.Fatal(err)
			}
		}
		await(t, b, "the index has what it may have", func(made, free, waiting int) bool {
			return made-free+waiting == (i+1)*largeBuffers
		})
	}
	c := patientConnOf(t, address, tokens, "d")
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	var answer [headerSize]byte
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(c, answer[:]); err != nil || answer[6] != frameList {
		t.Errorf("a long frame of another index: answer %v: %v", answer, err)
	}
}

// TestTurnLimit: the wait for a large buffer ends.
func TestTurnLimit(t *testing.T) {
	b := newBuffers()
	b.turn = time.Millisecond
	all := takeAll(t, b)
	if _, err := b.take("late", nil); !errors.Is(err, errTurn) {
		t.Errorf("take without a free buffer: %v", err)
	}
	if made, free, waiting := b.counts(); made != largeBuffers || free != 0 || waiting != 0 {
		t.Errorf("%d made, %d free, %d wait", made, free, waiting)
	}
	// The first that came is the first that gets one.
	b.turn = patience
	var order [2]chan []byte
	for i := range order {
		order[i] = make(chan []byte, 1)
		go func() {
			large, _ := b.take(fmt.Sprintf("late %d", i), nil)
			order[i] <- large
		}()
		await(t, b, "take waits", func(_, _, waiting int) bool { return waiting == i+1 })
	}
	b.give(each(0), all[0])
	if large := <-order[0]; len(large) != maxFrame {
		t.Errorf("a buffer of %d bytes", len(large))
	}
	select {
	case <-order[1]:
		t.Error("one buffer was given to two")
	default:
	}
	b.give(each(1), all[1][:inBuffer])
	if large := <-order[1]; len(large) != maxFrame {
		t.Errorf("a buffer of %d bytes", len(large))
	}
}

// TestSizes: what the budget and the sizes of buffers take for granted.
func TestSizes(t *testing.T) {
	const stack = 8 << 10 // of a session's goroutine
	if n := unsafe.Sizeof(session{}) + stack; n > sessionBytes {
		t.Errorf("a session takes %d bytes besides its buffers, sessionBytes is %d", n, sessionBytes)
	}
	if n := callAnswer + pad(verbs.MaxCall); n > outBuffer {
		t.Errorf("the longest answer of a call has %d bytes, outBuffer is %d", n, outBuffer)
	}
	list := make([]verbs.Request, verbs.MaxList)
	for i := range list {
		list[i] = verbs.Request{Op: verbs.Write, Local: make([]byte, 1024)}
	}
	if n := len(encodeList(list, 0, 0)); n > inBuffer || n > outBuffer {
		t.Errorf("%d WRITEs of 1 KiB have %d bytes, a session's buffers %d and %d", len(list), n, inBuffer, outBuffer)
	}
}
