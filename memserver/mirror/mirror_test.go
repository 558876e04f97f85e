package mirror

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

const (
	testMemory = 1 << 20
	patience   = time.Minute // of tests, for what takes milliseconds
)

// copied is a sink that serves one connection.
type copied struct {
	Sink
	address string
	takes   atomic.Int64 // items that it still takes
	over    chan struct{}
	applied verbs.Position
	err     error
}

func newCopy(t *testing.T, config *tls.Config) *copied {
	t.Helper()
	c := &copied{over: make(chan struct{})}
	c.takes.Store(1 << 40)
	c.Sink = Sink{
		Memory: make([]byte, testMemory), TLS: config, Limit: patience,
		Attach: func(h Hello) error {
			if h.To != "copy" {
				return errors.New("this is another process than " + h.To)
			}
			return nil
		},
		Takes: func(Hello) bool { return c.takes.Add(-1) >= 0 },
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	t.Cleanup(func() { l.Close() })
	go func() {
		defer close(c.over)
		conn, err := l.Accept()
		if err != nil {
			c.err = err
			return
		}
		c.applied, c.err = c.Serve(conn)
	}()
	return c
}

func hello() Hello { return Hello{Size: testMemory, View: 7, From: "primary", To: "copy"} }

// mirrored is a memory and its journal.
type mirrored struct {
	memory  []byte
	source  *Source
	journal *verbs.Journal
}

func dialCopy(t *testing.T, address string, config *tls.Config, limit time.Duration) *mirrored {
	t.Helper()
	s, err := Dial(address, config, hello(), limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &mirrored{make([]byte, testMemory), s, verbs.NewJournal(env.Real(), s)}
}

// change makes one change.
func (m *mirrored) change(at uint64, data []byte) (verbs.Position, error) {
	if err := m.journal.Begin(verbs.ItemBytes(len(data))); err != nil {
		return 0, err
	}
	defer m.journal.Done()
	p := m.journal.Record(at, data)
	copy(m.memory[at:], data)
	return p, nil
}

// zero makes n bytes zero.
func (m *mirrored) zero(at uint64, n int) error {
	if err := m.journal.Begin(verbs.ItemHead); err != nil {
		return err
	}
	defer m.journal.Done()
	m.journal.Zero(at, n)
	clear(m.memory[at:][:n])
	return nil
}

// TestStream: what several goroutines change side by side, each waiting for its changes, is in the
// copy, in the clear and under TLS; more than a window of it.
func TestStream(t *testing.T) {
	files, err := identity.Open(identitytest.NewCA(t, "pool").Dir(identitytest.Options{URIs: []*url.URL{identity.Operator()}}))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ server, client *tls.Config }{
		"in the clear": {},
		"TLS":          {files.ServerConfig(Protocol), files.ClientConfig("localhost")},
	} {
		t.Run(name, func(t *testing.T) {
			copy := newCopy(t, c.server)
			m := dialCopy(t, copy.address, c.client, patience)
			var all sync.WaitGroup
			for seed := range uint64(4) {
				all.Go(func() {
					random := rand.New(rand.NewPCG(seed, 1))
					for i := range 128 {
						data := make([]byte, 1+random.IntN([]int{64, 4096, 200_000}[random.IntN(3)]))
						for b := range data {
							data[b] = byte(random.Uint32())
						}
						at := uint64(random.IntN(testMemory - len(data)))
						p, err := m.change(at, data)
						if err == nil && i%8 == 0 {
							err = m.zero(at, len(data)/2+1)
						}
						if err == nil && i%2 == 0 {
							err = m.journal.Wait(p)
						}
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			if err := m.journal.Wait(m.journal.Last()); err != nil {
				t.Fatal(err)
			}
			m.source.Close()
			<-copy.over
			if !bytes.Equal(m.memory, copy.Memory) {
				t.Error("the copy is not equal")
			}
			if copy.applied != m.journal.Last() || !errors.Is(copy.err, io.EOF) {
				t.Errorf("the copy ends at %d of %d: %v", copy.applied, m.journal.Last(), copy.err)
			}
		})
	}
}

// TestRefusals: who does not fit is told why, and no stream begins.
func TestRefusals(t *testing.T) {
	ca := identitytest.NewCA(t, "pool")
	files, err := identity.Open(ca.Dir(identitytest.Options{URIs: []*url.URL{identity.Operator()}}))
	if err != nil {
		t.Fatal(err)
	}
	stranger := identitytest.NewCA(t, "stranger").Insistent()
	for _, c := range []struct {
		name           string
		change         func(h *Hello)
		server, client *tls.Config
		want           string // of the source's error
	}{
		{"size", func(h *Hello) { h.Size-- }, nil, nil, "give both the same memory"},
		{"process", func(h *Hello) { h.To = "copy of yesterday" }, nil, nil, "another process than copy of yesterday"},
		{"name", func(h *Hello) { h.From = strings.Repeat("x", MaxName+1) }, nil, nil, "at most 512"},
		{"in the clear", func(*Hello) {}, files.ServerConfig(Protocol), nil, ""},
		{"stranger", func(*Hello) {}, files.ServerConfig(Protocol), stranger, ""},
		{"another port's TLS", func(*Hello) {}, files.ServerConfig("h2"), files.ClientConfig("localhost"), ""},
		{"copy without TLS", func(*Hello) {}, nil, files.ClientConfig("localhost"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			copy := newCopy(t, c.server)
			h := hello()
			c.change(&h)
			s, err := Dial(copy.address, c.client, h, patience)
			if err == nil {
				s.Close()
				t.Fatal("the stream is taken")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), copy.address) {
				t.Error(err)
			}
		})
	}
}

// TestOtherVersion: a source of another version, and what is no source, are told so.
func TestOtherVersion(t *testing.T) {
	h := hello()
	other := h.append(nil)
	binary.LittleEndian.PutUint32(other[8:], helloVersion+1)
	for want, sent := range map[string][]byte{
		"version 2, this program knows 1": other,
		"no stream of a memory server":    bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 4),
	} {
		copy := newCopy(t, nil)
		c, err := net.Dial("tcp", copy.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := readAnswer(c); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestSilentCopy: a source waits no longer than its limit, wherever its copy stops.
func TestSilentCopy(t *testing.T) {
	const limit = 20 * time.Millisecond
	for name, answers := range map[string]bool{"before its answer": false, "behind it": true} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			silent := make(chan net.Conn, 1)
			go func() {
				c, err := l.Accept()
				if err == nil && answers {
					if _, err = readHello(c); err == nil {
						err = writeAnswer(c, nil)
					}
				}
				if err != nil {
					t.Error(err)
				}
				silent <- c
			}()
			defer func() { (<-silent).Close() }()
			first := patience
			if !answers {
				first = limit
			}
			s, err := Dial(l.Addr().String(), nil, hello(), first)
			if err == nil {
				defer s.Close()
				s.limit = limit
				m := &mirrored{make([]byte, testMemory), s, verbs.NewJournal(env.Real(), s)}
				var p verbs.Position
				if p, err = m.change(0, []byte("unanswered")); err == nil {
					err = m.journal.Wait(p)
				}
			}
			var ne net.Error
			if !errors.As(err, &ne) || !ne.Timeout() {
				t.Error(err)
			}
		})
	}
}

// TestCopyTakesNoMore: once a copy takes nothing more, its memory stays, and no answer goes out
// that needs what it did not take.
func TestCopyTakesNoMore(t *testing.T) {
	copy := newCopy(t, nil)
	copy.takes.Store(1)
	m := dialCopy(t, copy.address, nil, patience)
	first, err := m.change(0, []byte("first"))
	if err == nil {
		err = m.journal.Wait(first)
	}
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.change(0, []byte("second"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.journal.Wait(second); err == nil {
		t.Error("the copy has what it does not take")
	}
	<-copy.over
	if copy.applied != first || string(copy.Memory[:6]) != "first\x00" {
		t.Errorf("the copy is at %d of %d, with %q: %v", copy.applied, first, copy.Memory[:6], copy.err)
	}
}

// TestMalformedStream: what is no item ends the connection, and changes nothing.
func TestMalformedStream(t *testing.T) {
	copy := newCopy(t, nil)
	s, err := Dial(copy.address, nil, hello(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Send(bytes.Repeat([]byte{0xff}, 64)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err == nil {
		t.Error("the copy goes on")
	}
	<-copy.over
	if !errors.Is(copy.err, verbs.ErrMalformed) || copy.applied != 0 {
		t.Errorf("the copy is at %d: %v", copy.applied, copy.err)
	}
}

// FuzzHello: a hello that is read says what was said; whatever else comes is refused.
func FuzzHello(f *testing.F) {
	h := hello()
	f.Add(h.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		h, err := readHello(r)
		if err == nil && !bytes.Equal(h.append(nil), b[:len(b)-r.Len()]) {
			t.Fatalf("%+v of % x", h, b)
		}
	})
}
