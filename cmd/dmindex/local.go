package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/memory"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/version"
	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/logs"
)

func localCommand() *cobra.Command {
	c := local.Config{Version: version.String()}
	size, cache := sizeFlag(1<<30), sizeFlag(0)
	key := keyFlag{config.KeyBytes, 256}
	var kept memory.Persist
	var verbose bool
	cmd := &cobra.Command{
		Use:     "local",
		GroupID: "try",
		Short:   "Run a whole index in this process, on loopback",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, address := range []string{c.Listen, c.ListenRPC} {
				if !accept.Loopback(address) && c.Users.PasswordFile == "" {
					return fmt.Errorf("listen on %s: beyond loopback everybody could read and write the index; give --password FILE", address)
				}
			}
			if kept.Dir == "" && (kept.Sync != persist.Always || kept.AcceptLoss) {
				return errors.New("--persist-sync and --persist-accept-loss need --persist: name a directory on a disk")
			}
			if kept.Dir != "" && c.Copies > 1 {
				return errors.New("--persist keeps content in files of one process, and --copies 2 in two: give one of them")
			}
			// Over other transports nobody waits for the disk, or for another process.
			if (kept.Dir != "" || c.Copies > 1) && !cmd.Flags().Changed("transport") {
				c.Transport = config.TransportTCP
			}
			if kept.Dir != "" {
				c.Persist = &kept
			}
			if !accept.Loopback(c.ListenMetrics) {
				return fmt.Errorf("listen on %s: beyond loopback everybody could read the metrics; give --listen-metrics an address such as 127.0.0.1:9090", c.ListenMetrics)
			}
			out := newTold(cmd.OutOrStdout())
			defer out.end()
			c.Changed = out.say
			c.MemoryBytes, c.KeyType, c.MaxKeyBytes = uint64(size), key.kind, key.bytes
			var err error
			if c.CacheBytes, err = localCache(&c, uint64(cache)); err != nil {
				return err
			}
			c.Logger = slog.New(slog.DiscardHandler)
			if verbose {
				if c.Logger, err = logger(logs.Config{}); err != nil {
					return err
				}
				c.Stderr = os.Stderr
			}
			l, err := local.Start(c)
			if errors.Is(err, syscall.EADDRINUSE) {
				return fmt.Errorf("%w: another program listens there, such as a second dmindex local; give --listen and --listen-rpc other ports, and --listen-metrics if it has one", err)
			}
			if err != nil {
				return err
			}
			return l.Run(cmd.Context(), func() { out.begin(func(out io.Writer) { announce(out, &c, l) }) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", "127.0.0.1:6380", "RESP address of the first compute server; the others use the following ports")
	f.StringVar(&c.ListenRPC, "listen-rpc", defaultEndpoint, "SDK address of the first compute server; the others use the following ports")
	f.StringVar(&c.ListenMetrics, "listen-metrics", "127.0.0.1:0", "address of the page with figures and curves of the first compute server, and of its /metrics; the others use the following ports. Port 0 = any that are free")
	f.StringVar(&c.Transport, "transport", "shm", "fabric between compute and memory servers: shm, tcp or ibv (RDMA). --copies 2 needs tcp, and takes it unless told otherwise")
	f.StringVar(&c.Design, "design", "dex", "design of the index: "+strings.Join(index.Names(), ", "))
	f.IntVar(&c.MemoryServers, "memory-servers", 2, "how many")
	f.IntVar(&c.ComputeServers, "compute-servers", 2, "how many")
	f.IntVar(&c.Copies, "copies", 1, "how many processes keep the content of each memory server. With 2, one of them may be killed at any time, and nothing that was acknowledged is lost")
	f.Var(&size, "memory", "memory of each memory server")
	f.Var(&cache, "cache", "memory of each compute server that caches the index; 0 = all of them together a quarter of --memory of all memory servers, and 64Mi each at least")
	f.Var(&key, "key", "uint64, or bytes:N for keys of at most N bytes")
	f.IntVar(&c.MaxValueBytes, "value", 2048, "longest value, in bytes")
	f.StringVar(&c.Routing, "routing", config.RoutingAny, "which server executes a request: Any server that receives it, or the Owner of its key range")
	f.BoolVar(&c.Expires, "expiry", true, "pairs may expire, as SET with EX asks for; each takes a byte more, and 8 if it does")
	f.StringVar(&c.AtomicPrefix, "atomic-prefix", "", "keys that are equal up to and including the first occurrence of this text stay with one compute server, so that a transaction may have them: with } {user:7}:cart and {user:7}:name. Empty = any two keys may be divided")
	f.StringVar(&c.Users.PasswordFile, "password", "", "file with the password that clients must show; empty = none")
	f.StringVar(&c.Users.UsersFile, "users", "", "ACL file of Redis with further users, who reach the keys of some prefixes only; it needs --password")
	f.StringVar(&kept.Dir, "persist", "", "directory on a disk that keeps the content, over tcp: started with it again, the index has it; with room for four times the memory. Empty = the content is lost with the process")
	f.Var(&kept.Sync, "persist-sync", persistSyncUsage)
	f.BoolVar(&kept.AcceptLoss, "persist-accept-loss", false, persistLossUsage)
	f.BoolVarP(&verbose, "verbose", "v", false, "write the log of the servers to stderr")
	return cmd
}

// localCache is the cache of each compute server of a local index, of which asked bytes were asked
// for; 0 = the design's default. Where nothing was asked for, it follows the index's memory, which
// all of it shares one machine with.
func localCache(c *local.Config, asked uint64) (int, error) {
	const least, standard, share = 1 << 20, 64 << 20, 4
	if c.MemoryServers < 1 || c.ComputeServers < 1 {
		return 0, nil // they are refused
	}
	whole := c.MemoryBytes * uint64(c.MemoryServers)
	switch {
	case asked > 0 && asked < least:
		return 0, fmt.Errorf("--cache of %d bytes: no index works with so little; give 1Mi at least, such as --cache 256Mi", asked)
	case asked > max(whole, standard):
		return 0, fmt.Errorf("--cache of %d bytes: the memory servers have %d together, and a cache holds no more than that; give at most so much, or a larger --memory", asked, whole)
	case asked > 0:
		return int(asked), nil
	}
	if bytes := whole / share / uint64(c.ComputeServers); bytes > standard {
		return int(bytes), nil
	}
	return 0, nil
}

// announce says where the servers are and what to type next.
func announce(out io.Writer, c *local.Config, l *local.Local) {
	fmt.Fprintf(out, "%s over %s: %d memory servers, %d compute servers; keys of at most %d bytes, values of %d\n",
		c.Design, c.Transport, c.MemoryServers, c.ComputeServers, c.MaxKeyBytes, c.MaxValueBytes)
	fmt.Fprintf(out, "  RESP  %s\n  SDK   %s\n  page  http://%s/\n", strings.Join(l.RESP, " "), strings.Join(l.RPC, " "), l.Pages[0])
	host, port, _ := net.SplitHostPort(l.RESP[0])
	fmt.Fprintf(out, "try:  redis-cli -h %s -p %s set fruit:apple red\n", host, port)
	if l.RPC[0] != defaultEndpoint {
		fmt.Fprintf(out, "or:   dmindex put --endpoint %s fruit:apple red\n", l.RPC[0])
	}
	if m := l.Copies(); m != nil {
		fmt.Fprintf(out, "  %s\nthen: kill -9 %d\n", strings.Join(m.State(), "\n  "), m.Primary(1))
	}
	end := "its content with it"
	if c.Persist != nil {
		end = "its content stays in " + c.Persist.Dir
	}
	fmt.Fprintf(out, "it ends with Ctrl-C, and %s\n", end)
}

// told is what is said of an index while it runs, once it is announced. Who says something does not
// wait until it is read: a terminal that stands still would hold fail-overs up.
type told struct {
	out     io.Writer
	begun   atomic.Bool
	texts   chan string
	written chan struct{} // closed when all texts are
}

const (
	mostTold = 100         // texts that wait to be written; further ones are left out
	toldWait = time.Second // for the last ones
)

func newTold(out io.Writer) *told {
	return &told{out: out, texts: make(chan string, mostTold), written: make(chan struct{})}
}

func (l *told) begin(announce func(io.Writer)) {
	l.begun.Store(true) // before announce looks at what there is: a later change is said
	announce(l.out)
	go func() {
		defer close(l.written)
		for text := range l.texts {
			fmt.Fprintln(l.out, text)
		}
	}()
}

func (l *told) say(text string) {
	if !l.begun.Load() {
		return
	}
	select {
	case l.texts <- text:
	default:
	}
}

// end is called when nobody says anything any more.
func (l *told) end() {
	if !l.begun.Load() {
		return
	}
	close(l.texts)
	select {
	case <-l.written:
	case <-time.After(toldWait):
	}
}

// keyFlag is a key type with its length.
type keyFlag struct {
	kind  string
	bytes int
}

func (k *keyFlag) Set(text string) error {
	if strings.EqualFold(text, config.KeyUint64) {
		*k = keyFlag{config.KeyUint64, 8}
		return nil
	}
	kind, n, ok := strings.Cut(text, ":")
	bytes, err := strconv.Atoi(n)
	if !ok || !strings.EqualFold(kind, config.KeyBytes) || err != nil || bytes < 1 {
		return fmt.Errorf("%q: write uint64, or bytes:N with the length of the longest key", text)
	}
	*k = keyFlag{config.KeyBytes, bytes}
	return nil
}

func (k *keyFlag) String() string {
	if k.kind == config.KeyUint64 {
		return "uint64"
	}
	return "bytes:" + strconv.Itoa(k.bytes)
}

func (k *keyFlag) Type() string { return "type" }
