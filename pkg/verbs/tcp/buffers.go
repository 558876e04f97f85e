package tcp

import (
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Bounds of what a server holds for its connections.
const (
	inBuffer = 72 << 10 // of a session: what is read at once, such as a list of 64 WRITEs of 1 KiB
	// of a session: what is sent at once, such as 64 answers to a READ of 1 KiB
	outBuffer = 72 << 10

	largeBuffers = 32 // of a server, of maxFrame bytes each: for frames that are longer
	// of a session besides its buffers: its decoded requests, its goroutine's stack
	sessionBytes = 24 << 10

	// from a large buffer to the answer; the client has given its list up by then
	frameLimit = verbs.DefaultLimit
	turnLimit  = time.Minute // for a large buffer
)

// Budget is the most bytes that a server holds for so many connections at once, whatever they send
// and however slowly they read.
func Budget(conns int) int64 {
	return int64(conns)*(inBuffer+outBuffer+sessionBytes+tlsBytes) + largeBuffers*maxFrame
}

// errTurn ends a session that waited too long for a large buffer.
var errTurn = errors.New("tcp: no buffer for a large frame became free")

// buffers are the large buffers of a server, which its sessions share. Most connections send no
// long frame most of the time, so a large buffer of its own for each would lie idle. A session
// takes one when the header of a long frame has arrived, and gives it back when the frame was
// executed.
//
// Nobody starves, and there is no deadlock:
//   - A session waits for a buffer only while it holds none, has sent all its answers and executes
//     nothing. So no holder waits for a session that waits.
//   - A holder waits for its client alone, to send the rest of the frame and to take answers that
//     do not fit into outBuffer. Both end frameLimit after it got the buffer, by the end of the
//     session.
//   - An index takes a buffer only while more are left than it holds. Alone it gets half of them,
//     and whoever comes next gets half of the rest. So clients that begin frames and do not end
//     them keep the buffers from their own index, and not from another one.
//   - Sessions that wait get buffers in the order in which they came, as far as their indexes may
//     take one. Where the first of them may not, its index holds some that come back in time. An
//     index that holds none may take any that is left.
//   - Long answers take a buffer only while half of them are left for long frames, and twice as
//     many as their index holds. They go out in pieces otherwise. So they wait for no buffer, and
//     slow readers take no more than half of them, nor all that their index may have.
//
// A large buffer passes between clients with its content. A frame is looked at only once it has
// overwritten all bytes of it, so no client's bytes reach another one.
type buffers struct {
	frame, turn time.Duration // frameLimit and turnLimit, less in tests
	sessions    atomic.Int64  // that have buffers of their own

	mu struct {
		sync.Mutex
		made    int // at most largeBuffers
		free    [][]byte
		holds   map[string]int // by index, of those that hold any
		waiting []turn
	}
}

// turn is a session's that waits for a buffer.
type turn struct {
	index string
	large chan []byte // has room for a buffer
}

func newBuffers() *buffers {
	b := &buffers{frame: frameLimit, turn: turnLimit}
	b.mu.holds = map[string]int{}
	return b
}

// take returns a large buffer for a session of index, and waits for one if it must. It fails if
// there is none for it in time or the session is cut.
func (b *buffers) take(index string, cut <-chan struct{}) ([]byte, error) {
	b.mu.Lock()
	if b.mu.holds[index] < b.leftLocked() {
		large := b.popLocked(index)
		b.mu.Unlock()
		return large, nil
	}
	mine := turn{index, make(chan []byte, 1)}
	b.mu.waiting = append(b.mu.waiting, mine)
	b.mu.Unlock()

	limit := time.NewTimer(b.turn)
	defer limit.Stop()
	err := errTurn
	select {
	case large := <-mine.large:
		return large, nil
	case <-cut:
		err = net.ErrClosed
	case <-limit.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.mu.waiting, mine); i >= 0 {
		b.mu.waiting = slices.Delete(b.mu.waiting, i, i+1)
		return nil, err
	}
	return <-mine.large, nil // give was faster, and has sent it before it released mu
}

// spare returns a large buffer for an answer to a session of index, or nil if there is none to
// spare.
func (b *buffers) spare(index string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := b.leftLocked(); left <= largeBuffers/2 || left <= 2*b.mu.holds[index] {
		return nil
	}
	return b.popLocked(index)
}

// leftLocked is how many buffers nobody holds.
func (b *buffers) leftLocked() int { return largeBuffers - b.mu.made + len(b.mu.free) }

// popLocked returns one of the buffers that are left. The last one that came back is the likeliest
// to be in the processor's cache.
func (b *buffers) popLocked(index string) []byte {
	b.mu.holds[index]++
	n := len(b.mu.free)
	if n == 0 {
		b.mu.made++
		return make([]byte, maxFrame)
	}
	large := b.mu.free[n-1]
	b.mu.free = b.mu.free[:n-1]
	return large
}

// give gives back a buffer that a session of index holds.
func (b *buffers) give(index string, large []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.free = append(b.mu.free, large[:maxFrame])
	if b.mu.holds[index]--; b.mu.holds[index] == 0 {
		delete(b.mu.holds, index)
	}
	mayTake := func(t turn) bool { return b.mu.holds[t.index] < b.leftLocked() }
	for {
		i := slices.IndexFunc(b.mu.waiting, mayTake)
		if i < 0 {
			return
		}
		b.mu.waiting[i].large <- b.popLocked(b.mu.waiting[i].index)
		b.mu.waiting = slices.Delete(b.mu.waiting, i, i+1)
	}
}

// held is how many bytes of buffers there are.
func (b *buffers) held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions.Load()*(inBuffer+outBuffer) + int64(b.mu.made)*maxFrame
}
