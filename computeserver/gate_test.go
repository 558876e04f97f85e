package computeserver

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/api/config"
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/accept"
)

// withPassword is a server whose password is "secret".
func withPassword(t *testing.T, adjust func(*Config)) *cluster {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	return newCluster(t, config.RoutingAny, func(cfg *Config) {
		cfg.Users.PasswordFile, cfg.AllowNoPassword = file, false
		if adjust != nil {
			adjust(cfg)
		}
	}, 1)
}

// shows is the password that calls show.
type shows string

func (p shows) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(p)}, nil
}

func (shows) RequireTransportSecurity() bool { return false }

var _ credentials.PerRPCCredentials = shows("")

// program is a connection of a program of its own.
func (c *cluster) program(options ...grpc.DialOption) *grpc.ClientConn {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.servers[1].addresses.RPC, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// served calls the server as a program that knows the password, within a minute.
func (c *cluster) served(conn *grpc.ClientConn) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := rpcv1.NewComputeClient(conn).GetMap(ctx, &rpcv1.GetComputeMapRequest{}, grpc.PerRPCCredentials(shows("secret"))); err != nil {
		c.t.Errorf("a program with the password: %v", err)
	}
}

// sharedCodec sends the same bytes with every call and copies none.
type sharedCodec struct{ b []byte }

func (c sharedCodec) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(c.b)}, nil
}
func (c sharedCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (c sharedCodec) Name() string                         { return "proto" }

var _ encoding.CodecV2 = sharedCodec{}

// peak runs f and returns by how many bytes the heap grew meanwhile, at most.
func peak(f func()) uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, m.HeapAlloc
	ended := make(chan struct{})
	go func() { f(); close(ended) }()
	for look := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-ended:
			return most - before
		case <-look.C:
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
}

// TestCallsWithoutCredentials: large calls of callers without the password end before the server
// takes memory for what they send, and whoever has the password is served beside them.
func TestCallsWithoutCredentials(t *testing.T) {
	const calls, size, bound = 400, 8<<20 - 100, 64 << 20
	c := withPassword(t, nil)
	// a field that nobody knows, again and again
	body := sharedCodec{bytes.Repeat([]byte{0x9a, 0x06, 0x04, 1, 2, 3, 4}, size/7)}
	grew := peak(func() {
		var all sync.WaitGroup
		for range 8 {
			conn := c.program(grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30), grpc.ForceCodecV2(body)))
			for range calls / 8 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					err := conn.Invoke(ctx, rpcv1.Compute_GetMap_FullMethodName, &rpcv1.GetComputeMapRequest{}, &rpcv1.ComputeMapReply{})
					if code := status.Code(err); code != codes.Unauthenticated && code != codes.Unavailable {
						t.Errorf("a call without password: %v", err)
					}
				})
			}
		}
		c.served(c.program())
		all.Wait()
	})
	t.Logf("the heap grew by %d MiB", grew>>20)
	if grew > bound {
		t.Errorf("%d calls of %d bytes without password took %d MiB, want at most %d", calls, size, grew>>20, bound>>20)
	}
}

// TestStrangersTakeNoPlaces: however many connections say nothing, a program with the password is
// served, and they end when the limit is over.
func TestStrangersTakeNoPlaces(t *testing.T) {
	c := withPassword(t, func(cfg *Config) { cfg.AuthLimit = time.Second })
	var silent []net.Conn
	for range 3 * maxStrangers {
		nc, err := net.Dial("tcp", c.servers[1].addresses.RPC)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		silent = append(silent, nc)
	}
	conn := c.program()
	began := time.Now()
	c.served(conn)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a program was served after %v", took)
	}
	for i, nc := range silent {
		_ = nc.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, nc); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("silent connection %d was not ended", i)
		}
	}
	gate := c.servers[1].gate
	computeservertest.Await(t, "the connections are forgotten", func() bool { return len(c.servers[1].callers.openConns()) == 1 })
	// gRPC ends some of the last ones: its limit of the preface is the same
	if n := gate.lobby.Open(); n != 0 || gate.open.Load() != 1 || gate.lobby.Ended() < 2*maxStrangers {
		t.Errorf("%d wait, %d are admitted and %d were ended, want 0, 1 and at least %d", n, gate.open.Load(), gate.lobby.Ended(), 2*maxStrangers)
	}
	c.served(conn) // by the connection that it has
	if gate.open.Load() != 1 {
		t.Error("the connection of the program did not last longer than the limit")
	}
	_ = conn.Close()
	computeservertest.Await(t, "the program's connection counts no more", func() bool { return gate.open.Load() == 0 })
	if (Config{}).withDefaults().AuthLimit != 10*time.Second {
		t.Error("the limit is not 10 s where the configuration has none")
	}
}

// attacker writes frames as it likes, and reads nothing.
type attacker struct {
	*http2.Framer
	nc      net.Conn
	headers bytes.Buffer
	encoder *hpack.Encoder
}

func (c *cluster) attacker() *attacker {
	c.t.Helper()
	nc, err := net.Dial("tcp", c.servers[1].addresses.RPC)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		c.t.Fatal(err)
	}
	a := &attacker{Framer: http2.NewFramer(nc, nil), nc: nc}
	a.encoder = hpack.NewEncoder(&a.headers)
	if err := a.WriteSettings(); err != nil {
		c.t.Fatal(err)
	}
	return a
}

// call sends the headers of a call.
func (a *attacker) call(stream uint32, more ...string) error {
	a.headers.Reset()
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", rpcv1.Compute_GetMap_FullMethodName, ":authority", "x",
		"content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = a.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return a.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: a.headers.Bytes(), EndHeaders: true})
}

// TestFloodsOfStrangers: whatever frames a connection without credentials sends, it ends after a
// few of them, also when it reads nothing.
func TestFloodsOfStrangers(t *testing.T) {
	var many []http2.Setting
	for range 2000 {
		many = append(many, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
	}
	for name, send := range map[string]func(a *attacker, i uint32) error{
		"settings":        func(a *attacker, _ uint32) error { return a.WriteSettings(many...) },
		"pings":           func(a *attacker, _ uint32) error { return a.WritePing(false, [8]byte{}) },
		"windows":         func(a *attacker, _ uint32) error { return a.WriteWindowUpdate(0, 1) },
		"calls":           func(a *attacker, i uint32) error { return a.call(2*i + 1) },
		"calls that last": func(a *attacker, i uint32) error { return a.call(2*i+1, "grpc-timeout", "99999999H") },
		"wrong passwords": func(a *attacker, i uint32) error {
			return a.call(2*i+1, "authorization", "Bearer "+strings.Repeat("x", 4000))
		},
		"large headers": func(a *attacker, i uint32) error { return a.call(2*i+1, "x", strings.Repeat("x", 15<<10)) },
		"rapid reset": func(a *attacker, i uint32) error {
			if err := a.call(2*i + 1); err != nil {
				return err
			}
			return a.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		},
		"headers without end": func(a *attacker, i uint32) error {
			if i == 0 {
				return a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			}
			return a.WriteContinuation(1, false, bytes.Repeat([]byte{0x82}, 16<<10))
		},
		"data": func(a *attacker, i uint32) error {
			if i == 0 {
				return a.call(1)
			}
			return a.WriteData(1, false, make([]byte, 16<<10))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := withPassword(t, func(cfg *Config) { cfg.AuthLimit = time.Hour })
			a := c.attacker()
			sent := 0
			grew := peak(func() {
				for i := uint32(0); send(a, i) == nil; i++ { // until the server ends it
					if sent++; sent > 1<<20 {
						t.Errorf("the server reads on after %d frames", sent)
						return
					}
				}
			})
			t.Logf("%d frames were sent; the heap grew by %d KiB", sent, grew>>10)
			if most := uint64(8 << 20); grew > most {
				t.Errorf("the heap grew by %d bytes, want at most %d", grew, most)
			}
			computeservertest.Await(t, "the connection is closed", func() bool { return len(c.servers[1].callers.openConns()) == 0 })
			c.served(c.program())
		})
	}
}

// TestContextsOfConnectionsEnd: a timer of a call that was refused ends with its connection.
func TestContextsOfConnectionsEnd(t *testing.T) {
	g := &gate{}
	ctx := g.TagConn(context.Background(), &stats.ConnTagInfo{})
	call, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	g.HandleConn(ctx, &stats.ConnBegin{})
	if call.Err() != nil {
		t.Error("the call ended at the beginning of its connection")
	}
	g.HandleConn(ctx, &stats.ConnEnd{})
	if call.Err() == nil {
		t.Error("the call goes on after its connection")
	}
}

// TestFailedCalls: wrong passwords are counted, and slow down the next connections of their host:
// also those with the password, so that nobody learns from the time which is right.
func TestFailedCalls(t *testing.T) {
	c := withPassword(t, nil)
	before := c.program()
	c.served(before)
	wrong := rpcv1.NewComputeClient(c.program())
	for range 10 {
		if _, err := wrong.GetMap(context.Background(), &rpcv1.GetComputeMapRequest{}, grpc.PerRPCCredentials(shows("wrong"))); status.Code(err) != codes.Unauthenticated {
			t.Fatalf("a wrong password: %v", err)
		}
	}
	if n := c.servers[1].gate.logins.Total(); n != 10 {
		t.Errorf("%d failed logins are counted, want 10", n)
	}
	began := time.Now()
	c.served(c.program())
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("the next login took %v", took)
	}
	c.served(before)
}

// TestWrongPasswordsEndTheConnection: a connection may guess a few times, whether or not it has
// shown the password. The next guesses need another connection, which waits first.
func TestWrongPasswordsEndTheConnection(t *testing.T) {
	c := withPassword(t, nil)
	for _, first := range []bool{true, false} {
		var opened atomic.Int32
		conn := c.program(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			opened.Add(1)
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}), grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, MinConnectTimeout: time.Minute}))
		if first {
			c.served(conn)
		}
		before := c.servers[1].gate.logins.Total()
		for range 3 * accept.MostWrong {
			_, err := rpcv1.NewComputeClient(conn).GetMap(context.Background(), &rpcv1.GetComputeMapRequest{},
				grpc.PerRPCCredentials(shows("wrong")), grpc.WaitForReady(true))
			if err == nil {
				t.Fatal("a wrong password is right")
			}
		}
		most := uint64(opened.Load()) * accept.MostWrong
		if guesses := c.servers[1].gate.logins.Total() - before; guesses > most || opened.Load() < 2 {
			t.Errorf("logged in first: %v: %d guesses on %d connections", first, guesses, opened.Load())
		}
		c.served(conn)
	}
}

// TestUnaryCallsAreSmall: a call that is no batch has a small request.
func TestUnaryCallsAreSmall(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	calls := rpcv1.NewComputeClient(c.program())
	_, err := calls.Block(context.Background(), &rpcv1.BlockComputeRequest{Reason: strings.Repeat("x", rpcMaxRequest)})
	if err == nil || !strings.Contains(err.Error(), "at most 65536 are possible") {
		t.Errorf("a large request: %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x", strings.Repeat("x", rpcMaxHeaders))
	if _, err := calls.GetMap(ctx, &rpcv1.GetComputeMapRequest{}); err == nil {
		t.Error("a call with large headers is answered")
	}
}
