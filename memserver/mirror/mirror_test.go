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
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/volumes"
)

const (
	testMemory = 1 << 20
	patience   = time.Minute // of tests, for what takes milliseconds
)

var testShape = Shape{Size: testMemory, Chunk: 1 << 16, Locks: 1 << 10, Slots: 4, Layout: 3, Ledger: 7}

// toyHost is a host that stores nothing.
type toyHost struct{}

func (toyHost) Save(volumes.State) error    { return nil }
func (toyHost) Close()                      {}
func (toyHost) Prepare() error              { return nil }
func (toyHost) Durable() bool               { return false }
func (toyHost) MayLack() bool               { return false }
func (toyHost) Restore() error              { return nil }
func (toyHost) Drain(volumes.Proc) error    { return nil }
func (toyHost) Return(volumes.Proc, uint64) {}

// copied is a process with a sink that serves what connects to an address.
type copied struct {
	*Sink
	memory  []byte
	member  *volumes.Member
	address string
	ends    chan error // of each connection
}

func newSink(t testing.TB) *copied {
	t.Helper()
	m, err := volumes.New(env.Real(), "copy", volumes.State{}, toyHost{})
	if err != nil {
		t.Fatal(err)
	}
	c := &copied{memory: make([]byte, testMemory), member: m, ends: make(chan error, 64)}
	c.Sink = NewSink(env.Real(), m, verbs.Replica{Memory: c.memory}, testShape)
	c.Limit = patience
	return c
}

func newCopy(t testing.TB, config *tls.Config) *copied {
	t.Helper()
	c := newSink(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			socket, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				conn, err := Accept(socket, config, patience)
				if err == nil {
					err = c.Serve(conn)
				}
				c.ends <- err
			}()
		}
	}()
	return c
}

func hello() Hello {
	return Hello{Shape: testShape, View: 7, Join: 1, From: volumes.Proc{Pod: "primary", Process: 3}, To: volumes.Proc{Pod: "copy", Process: 1}}
}

// mirrored is a memory and its journal.
type mirrored struct {
	memory  []byte
	journal *verbs.Journal
	feed    *verbs.Feed
}

func newMirrored(t testing.TB) *mirrored {
	t.Helper()
	m := &mirrored{memory: make([]byte, testMemory), journal: verbs.NewJournal(env.Real(), nil)}
	var err error
	if m.feed, err = m.journal.Feed(func() error { return nil }, nil); err == nil {
		err = m.feed.Await()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.feed.Drop)
	return m
}

// connect lets the stream go on over a connection.
func (m *mirrored) connect(c Conn, limit time.Duration) error {
	s, from, err := NewSource(env.Real(), c, hello(), limit)
	if err != nil {
		return err
	}
	return m.feed.Connect(s, from)
}

func (m *mirrored) dial(t testing.TB, address string, config *tls.Config) {
	t.Helper()
	c, err := Dial(address, config, patience)
	if err == nil {
		err = m.connect(c, patience)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// change makes one change.
func (m *mirrored) change(at uint64, data []byte) (verbs.Position, error) {
	if err := m.journal.Begin(nil, verbs.ItemBytes(len(data))); err != nil {
		return 0, err
	}
	defer m.journal.Done()
	p := m.journal.Record(at, data)
	copy(m.memory[at:], data)
	return p, nil
}

// zero makes n bytes zero.
func (m *mirrored) zero(at uint64, n int) error {
	if err := m.journal.Begin(nil, verbs.ItemHead); err != nil {
		return err
	}
	defer m.journal.Done()
	m.journal.Zero(at, n)
	clear(m.memory[at:][:n])
	return nil
}

func testFiles(t testing.TB) *identity.Files {
	t.Helper()
	files, err := identity.Open(identitytest.NewCA(t, "pool").Dir(identitytest.Options{URIs: []*url.URL{identity.Operator()}}))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestStream: what several goroutines change side by side, each waiting for its changes, is in the
// copy, in the clear and under TLS; more than a window of it, while its connection breaks now and
// then.
func TestStream(t *testing.T) {
	files := testFiles(t)
	for name, c := range map[string]struct{ server, client *tls.Config }{
		"in the clear": {},
		"TLS":          {files.ServerConfig(Protocol), files.ClientConfig("localhost")},
	} {
		t.Run(name, func(t *testing.T) {
			copy, m := newCopy(t, c.server), newMirrored(t)
			m.dial(t, copy.address, c.client)
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
							err = m.journal.Wait(nil, p)
						}
						if err != nil {
							t.Error(err)
							return
						}
						if seed == 0 && i%16 == 0 {
							m.dial(t, copy.address, c.client)
						}
					}
				})
			}
			all.Wait()
			if err := m.journal.Wait(nil, m.journal.Last()); err != nil {
				t.Fatal(err)
			}
			copy.Close()
			if !bytes.Equal(m.memory, copy.memory) || copy.Applied() != m.journal.Last() {
				t.Errorf("the copy is not equal, at %d of %d", copy.Applied(), m.journal.Last())
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
		{"size", func(h *Hello) { h.Shape.Size-- }, nil, nil, "its data region is 1048575, the one of this copy 1048576: give all copies of a volume the same sizes"},
		{"chunks", func(h *Hello) { h.Shape.Chunk *= 2 }, nil, nil, "its chunk size is"},
		{"locks", func(h *Hello) { h.Shape.Locks /= 2 }, nil, nil, "its lock table is"},
		{"slots", func(h *Hello) { h.Shape.Slots++ }, nil, nil, "its number of superblock slots is"},
		{"an older layout", func(h *Hello) { h.Shape.Layout-- }, nil, nil, "its memory has format version 2, this copy's program has 3"},
		{"a later layout", func(h *Hello) { h.Shape.Layout++ }, nil, nil, "its memory has format version 4, this copy's program has 3"},
		{"a later ledger", func(h *Hello) { h.Shape.Ledger++ }, nil, nil, "ledger in format version 8, this copy's program reads none above 7"},
		{"process", func(h *Hello) { h.To.Process = 9 }, nil, nil, "this is the process copy#1, and not copy#9"},
		{"nobody", func(h *Hello) { h.From = volumes.Proc{} }, nil, nil, "take changes of nobody"},
		{"name", func(h *Hello) { h.From.Pod = strings.Repeat("x", MaxName+1) }, nil, nil, "at most 256"},
		{"in the clear", func(*Hello) {}, files.ServerConfig(Protocol), nil, ""},
		{"stranger", func(*Hello) {}, files.ServerConfig(Protocol), stranger, ""},
		{"another port's TLS", func(*Hello) {}, files.ServerConfig("h2"), files.ClientConfig("localhost"), ""},
		{"copy without TLS", func(*Hello) {}, nil, files.ClientConfig("localhost"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			copy := newCopy(t, c.server)
			h := hello()
			c.change(&h)
			conn, err := Dial(copy.address, c.client, patience)
			if err == nil {
				_, _, err = NewSource(env.Real(), conn, h, patience)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
			if copy.Applied() != 0 || copy.member.Report().Source != (volumes.Proc{}) {
				t.Error("the copy takes part in what it refuses")
			}
		})
	}
}

// TestOtherVersion: a source of another version, and what is no source, are told so.
func TestOtherVersion(t *testing.T) {
	h := hello()
	h.Kind = Stream
	other := h.append(nil)
	binary.LittleEndian.PutUint32(other[8:], helloVersion+1)
	for want, sent := range map[string][]byte{
		"version 3, this program knows 2": other,
		"no stream of a memory server":    bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), helloHead/16+1),
	} {
		copy := newCopy(t, nil)
		c, err := Dial(copy.address, nil, patience)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(sent); err != nil {
			t.Fatal(err)
		}
		if _, err := readAnswer(env.Real(), c, env.Deadline(env.Real(), patience)); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestPermissions: a copy permits the primary whose changes it takes, over a connection of its own,
// and each turn once.
func TestPermissions(t *testing.T) {
	files := testFiles(t)
	copy, m := newCopy(t, files.ServerConfig(Protocol)), newMirrored(t)
	c, err := Dial(copy.address, files.ClientConfig("localhost"), patience)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAsker(env.Real(), c, hello(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ask := func(turn uint64, want bool) {
		t.Helper()
		if got, err := a.Ask(turn, patience); err != nil || got != want {
			t.Errorf("turn %d is granted: %v, %v", turn, got, err)
		}
	}
	ask(1, false)
	m.dial(t, copy.address, files.ClientConfig("localhost"))
	ask(1, true)
	ask(1, false)
	ask(2, true)
	if err := a.Return(5, patience); err != nil {
		t.Error(err)
	}
	ask(4, false)
	ask(6, true)
}

// bytesConn is a connection from which bytes come.
type bytesConn struct{ *bytes.Reader }

func (bytesConn) Write(p []byte) (int, error) { return len(p), nil }
func (bytesConn) Close() error                { return nil }

// FuzzHello: a hello that is read says what was said; whatever else comes is refused.
func FuzzHello(f *testing.F) {
	h := hello()
	h.Kind = Permission
	f.Add(h.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		h, err := readHello(env.Real(), bytesConn{r}, 0)
		if err == nil && !bytes.Equal(h.append(nil), b[:len(b)-r.Len()]) {
			t.Fatalf("%+v of % x", h, b)
		}
		if errors.Is(err, io.EOF) && len(b) >= helloHead+2*MaxName {
			t.Fatal(err)
		}
	})
}
