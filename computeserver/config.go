package computeserver

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/computeserver/resp"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/settings"
)

// Config of a compute server. Zero values mean the default, where one is named.
type Config struct {
	// ID is the server's in partition maps; never used again for another server of the index.
	ID uint32
	// Version of the program, for people.
	Version string
	// Index is what the server serves.
	Index *config.Index
	// Open opens the index. It is called again, after a pause, when it fails, and when the open
	// index can be used no more. An error that wraps index.ErrDataLost blocks the server for good:
	// only a restart lets it look again.
	Open func() (ownership.Opened, error)
	// SharesAll is index.Design.SharesAll. Without it every request must go to the owner of its
	// range, whatever Index.Routing says.
	SharesAll    bool
	divideAlways bool // engine.Options.DivideAlways, for tests
	stays        bool // what has expired stays until somebody meets it, for tests
	trustsClock  bool // engine.Options.TrustsClock, for tests
	// Maps is where the partition map comes from.
	Maps engine.MapSource
	// OnNews, unless nil, is told what to call when Open may succeed that could not before, or the
	// open index can be used no more: a memory server is elsewhere.
	OnNews func(news func())
	// Paths returns those to the memory servers by now, for people. It may be called at any time;
	// nil = none are shown.
	Paths func() []MemoryPath

	// Addresses to listen on, "host:port"; port 0 picks one ([Server.Addresses]). An empty one
	// turns that front end off.
	ListenRESP, ListenRPC, ListenMetrics string

	// TLS secures rpc.Compute and the connections to other servers. Nil goes without, which is for
	// one machine and tests.
	TLS *identity.Files
	// RESPTLS secures RESP, apart from TLS. Nil goes without.
	RESPTLS *resp.TLS
	// Users says what AUTH and the SDK must show. The files may change at any time.
	Users users.Config
	// AllowNoPassword lets everybody in if Users names no file; otherwise New refuses that.
	AllowNoPassword bool

	// Settings, unless nil, is a file that may change some of the bounds below while the server
	// runs: MaxConnections, Idle and SlowAfter. What it does not have is as it is here.
	Settings *settings.File

	// MaxConnections bounds the connections of programs that have authenticated: over RESP, and as
	// many over rpc.Compute. Default 10,000.
	MaxConnections int
	// AuthLimit is how long a connection may take to authenticate. Default 10 s.
	AuthLimit time.Duration
	// ConnectionAge is after how long, give or take a tenth, a connection of rpc.Compute is
	// replaced by a new one, and nobody notices. Default 10 min.
	ConnectionAge time.Duration
	// MaxSessions bounds the requests that use the index at once, and with them queue pairs.
	// Default 64.
	MaxSessions int
	// MaxWaiting bounds the pipelines and batches that wait for a session. Default 4,096.
	MaxWaiting int
	// MaxReply bounds one RESP reply in bytes. Default 16 MiB.
	MaxReply int
	// MaxBuffers bounds the bytes of all RESP connections' buffers together, beyond the first 32
	// KiB of each. Default 256 MiB.
	MaxBuffers int64
	// Limit bounds each request, and each piece of a scan. Default 5 s.
	Limit time.Duration
	// Idle is after how long a silent RESP connection is closed, or a sixteenth later. Default 1 h.
	Idle time.Duration
	// SlowAfter is from which duration on SLOWLOG has a pipeline. Default 10 ms.
	SlowAfter time.Duration
	// WriteLimit is how long a RESP client may take to take its replies, or to send the rest of a
	// command; of the replies, up to a sixteenth longer. Default 30 s.
	WriteLimit time.Duration
	// DrainLimit bounds the shutdown when Run's context ends. Default 20 s.
	DrainLimit time.Duration

	// KeySalt reads what digests of keys are salted with, where no keys may be shown: /describe,
	// probes, and answers to users that may not read every key. Nil, or nothing read: a random one
	// of this process, so nobody recognizes a key.
	KeySalt func() []byte

	// Pprof serves the runtime's profiles beside the metrics.
	Pprof bool
	// Logger; nil = nothing is logged.
	Logger *slog.Logger
	// Clock is the machine's, by which pairs expire: milliseconds since 1970. Default: time.Now.
	Clock func() int64
	// Env is the world to run in. Default: the real one.
	Env env.Env
}

// MemoryPath is by what a memory server is reached.
type MemoryPath struct {
	Server   uint16 // the memory server
	Provider string // of the fabric
	Device   string // RDMA device of this side; empty = none
}

// withDefaults fills in what is not set.
func (c Config) withDefaults() Config {
	c.MaxConnections = cmp.Or(c.MaxConnections, 10_000)
	c.AuthLimit = cmp.Or(c.AuthLimit, 10*time.Second)
	c.ConnectionAge = cmp.Or(c.ConnectionAge, 10*time.Minute)
	c.MaxSessions = cmp.Or(c.MaxSessions, 64)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 4096)
	c.MaxReply = cmp.Or(c.MaxReply, 16<<20)
	c.MaxBuffers = cmp.Or(c.MaxBuffers, 256<<20)
	c.Limit = cmp.Or(c.Limit, 5*time.Second)
	c.Idle = cmp.Or(c.Idle, time.Hour)
	c.SlowAfter = cmp.Or(c.SlowAfter, 10*time.Millisecond)
	c.WriteLimit = cmp.Or(c.WriteLimit, 30*time.Second)
	c.DrainLimit = cmp.Or(c.DrainLimit, 20*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = func() int64 { return time.Now().UnixMilli() } //env:real deadlines outlive the process
	}
	if c.Env == nil {
		c.Env = env.Real()
	}
	return c
}

func (c *Config) validate() error {
	if c.Index == nil || c.Open == nil || c.Maps == nil {
		return errors.New("compute server: Index, Open and Maps must be set")
	}
	if err := c.Index.Validate(); err != nil {
		return fmt.Errorf("compute server: index: %w", err)
	}
	if min(c.MaxConnections, c.MaxSessions, c.MaxWaiting, c.MaxReply) < 0 || c.MaxBuffers < 0 ||
		min(c.Limit, c.Idle, c.SlowAfter, c.WriteLimit, c.DrainLimit, c.AuthLimit, c.ConnectionAge) < 0 {
		return errors.New("compute server: a bound is negative")
	}
	return nil
}
