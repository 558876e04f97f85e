package mirror

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// pipe is one end of a connection within a goroutine's reach: what one side writes the other reads.
// After a number of bytes the connection breaks, either way.
type pipe struct {
	in, out *bytes.Buffer
	left    *int
	ends    bool // it breaks at the latest when all was read
}

var errCut = errors.New("the connection was cut")

func (p *pipe) Read(b []byte) (int, error) {
	if p.in.Len() == 0 {
		if *p.left == 0 || p.ends {
			return 0, errCut
		}
		return 0, nil
	}
	return p.in.Read(b)
}

func (p *pipe) Write(b []byte) (int, error) {
	n := min(len(b), *p.left)
	*p.left -= n
	if p.out.Write(b[:n]); n < len(b) {
		return n, errCut
	}
	return n, nil
}

func (p *pipe) Close() error {
	*p.left = 0
	return nil
}

// TestResumeAtEveryByte: wherever in its items, or in its copy's answers, a stream breaks, it goes
// on where the copy is, and the copy has each item once.
func TestResumeAtEveryByte(t *testing.T) {
	changes := [][]byte{[]byte("one"), []byte("another change"), []byte("8 bytes."), bytes.Repeat([]byte("long "), 20)}
	total := 0
	for _, b := range changes {
		total += verbs.ItemBytes(len(b)) + 8
	}
	c, m := newSink(t), newMirrored(t)
	for cut := 1; cut <= total; cut++ {
		for _, b := range changes {
			b[0]++
			if _, err := m.change(uint64(len(b)), b); err != nil {
				t.Fatal(err)
			}
		}
		for connects := 0; m.feed.Applied() != m.journal.Last(); connects++ {
			if connects > 1 {
				t.Fatalf("cut at byte %d: the copy is at %d of %d, and known to be at %d", cut, c.Applied(), m.journal.Last(), m.feed.Applied())
			}
			left := 1 << 20
			there, back := new(bytes.Buffer), new(bytes.Buffer)
			near, far := &pipe{back, there, &left, false}, &pipe{there, back, &left, true}
			h := hello()
			h.Kind, h.Start = Stream, m.feed.Start()
			at, err := c.attach(far, &h)
			if err != nil {
				t.Fatal(err)
			}
			s := &Source{conn: near, env: env.Real(), limit: patience, applied: uint64(at)}
			s.sent.Store(uint64(at))
			if err := m.feed.Connect(s, at); err != nil {
				t.Fatal(err)
			}
			if connects == 0 {
				left = cut
			}
			_ = m.feed.Follow(nil, m.journal.Last(), 0) // sends what the connection takes
			if err := c.applyStream(far, &h); err == nil {
				t.Fatal("the connection never broke")
			}
			_ = m.feed.Follow(nil, m.journal.Last(), 0) // takes what the copy said
		}
		if c.Applied() != m.journal.Last() || !bytes.Equal(c.memory, m.memory) {
			t.Fatalf("cut at byte %d: the copy is at %d of %d, and equal: %v", cut, c.Applied(), m.journal.Last(), bytes.Equal(c.memory, m.memory))
		}
	}
}
