package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	apiconfig "github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/preflight"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/version"
	"github.com/dmindex/dmindex/memserver"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/logs"
	"github.com/dmindex/dmindex/pkg/profile"
	"github.com/dmindex/dmindex/pkg/settings"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Texts of flags that dmindex local has as well.
const (
	persistSyncUsage = "when a change is on disk. Always: before it is acknowledged. 5ms: some 5 ms later, so that a loss of power may take as much, and the death of a process nothing. Off: when the system writes it, within 30 s or so"
	persistLossUsage = "open what --persist has although the machine stopped and the last that was acknowledged may be missing, with another --persist-sync than Always; stop all compute servers first"
)

func memserverCommand() *cobra.Command {
	config := memserver.Config{Version: version.String(), Executor: index.Executor()}
	var memory, chunk, locks, room sizeFlag
	log := logs.FromEnv(logs.Text)
	cmd := &cobra.Command{
		Use:     "memserver",
		GroupID: "serve",
		Short:   "Serve memory: regions, chunks, lock tables",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config.MemoryBytes, config.ChunkBytes, config.LockTableBytes = uint64(memory), uint64(chunk), uint64(locks)
			config.LedgerBytes = uint64(room)
			var err error
			var level *slog.LevelVar
			if config.Logger, level, err = leveled(log); err != nil {
				return err
			}
			if config.RDMA != "" && !cmd.Flags().Changed("fabric") {
				config.Fabric = "" // RDMA is offered alone
			}
			if config.RDMA != "" && config.RDMADevice == "" {
				config.RDMADevice = givenDevice()
			}
			if config.TLSDir != "" {
				ctx, stop := context.WithCancel(cmd.Context())
				defer stop()
				go settings.Open(filepath.Join(config.TLSDir, settings.FileName), level).Follow(ctx, config.Logger, nil)
			}
			return runMemserver(cmd.Context(), config)
		},
	}
	f := cmd.Flags()
	log.Add(f)
	f.Uint16Var(&config.ID, "id", 0, "number of this server in global addresses, 1 to 32767")
	f.StringVar(&config.DataDir, "data-dir", "", "directory of the region, on a tmpfs or hugetlbfs; empty = memory that is lost with the process")
	f.StringVar(&config.StateDir, "state-dir", "", "directory of the ledger; empty = the data directory")
	f.StringVar(&config.Pod, "pod", "", "name by which views of its volume name this copy, the UID of the server's pod, or with --persist that of what has the directory: a new memory serves nothing before; empty = it serves at once")
	f.Var(&memory, "memory", "size of the region, such as 1Gi")
	f.Var(&chunk, "chunk-size", "unit in which memory is granted to clients; a power of two (default 8Mi)")
	f.Var(&room, "ledger-limit", "size that the ledger may reach; the state directory must have room for two (default 31Mi)")
	f.Var(&locks, "lock-table", "size of the lock table, two bytes a lock (default 256Ki)")
	f.DurationVar(&config.Lease, "lease", 0, "time after which a silent client is fenced (default 10s)")
	f.BoolVar(&config.Reserve, "reserve", false, "allocate all memory at the start")
	f.StringVar(&config.Control, "control", ":7471", "address of the control service (gRPC)")
	f.StringVar(&config.Fabric, "fabric", ":7470", "address of the tcp fabric; empty = not offered")
	f.StringVar(&config.Mirror, "mirror", os.Getenv(apiconfig.EnvMirror), "address at which memory servers of the same pool send this one their changes, so that it can be a copy of their volume, with --fabric alone (or "+apiconfig.EnvMirror+"); empty = never")
	f.StringVar(&config.PersistDir, "persist", "", "directory on a disk that keeps memory and ledger, with --fabric alone and without --data-dir: a server that starts with it again has its content; with room for four times --memory. Empty = the content is lost with the process")
	f.Var(&config.PersistSync, "persist-sync", persistSyncUsage)
	f.BoolVar(&config.PersistExisting, "persist-existing", os.Getenv(apiconfig.EnvPersistExisting) != "", "refuse a directory for --persist that no server has used: another disk may be mounted there (or "+apiconfig.EnvPersistExisting+" that is not empty)")
	f.BoolVar(&config.PersistAcceptLoss, "persist-accept-loss", os.Getenv(apiconfig.EnvPersistAcceptLoss) != "", persistLossUsage+" (or "+apiconfig.EnvPersistAcceptLoss+" that is not empty)")
	f.BoolVar(&config.FabricTLS, "fabric-tls", false, "let clients use --fabric under TLS only, whatever index they are of")
	f.IntVar(&config.CallThreads, "call-threads", verbs.DefaultCallThreads, "number of two-sided calls executed at the same time")
	f.StringVar(&config.Shm, "shm", "", "Unix socket of the shm fabric; empty = not offered")
	f.StringVar(&config.RDMA, "rdma", "", "address at which clients connect RDMA queue pairs; excludes the other fabrics. Empty = no RDMA")
	f.StringVar(&config.RDMADevice, "rdma-device", "", "RDMA device for --rdma; empty = the one assigned by the device plugin ($DMINDEX_RDMA_DEVICE), or the first with an active port")
	f.BoolVar(&config.Pprof, profile.Flag, profile.FromEnv(), profile.Usage)
	f.BoolVar(&config.OnChip, "on-chip", false, "place the lock table in the RDMA device's on-chip memory if it fits")
	f.StringVar(&config.Metrics, "metrics", ":9090", "address of /metrics, /healthz and /readyz; empty = not served")
	f.StringVar(&config.TLSDir, "tls-dir", "", "directory with tls.crt, tls.key, ca.crt and perhaps authorities.crt, read again when they change")
	f.BoolVar(&config.Insecure, "insecure", false, "serve without TLS, on loopback addresses only")
	return cmd
}

// runMemserver runs servers one after the other: where another process was named for the volume,
// the next one begins with an empty memory, and can become a copy.
func runMemserver(ctx context.Context, c memserver.Config) error {
	for {
		server, err := startMemserver(ctx, c)
		if err != nil {
			return withoutCanceled(ctx, err)
		}
		if err := server.Run(ctx); !errors.Is(err, memserver.ErrReplaced) {
			return err
		}
	}
}

// startMemserver makes the server. One with RDMA waits for its node to be fit, and says meanwhile
// what is wrong with it.
func startMemserver(ctx context.Context, c memserver.Config) (*memserver.Server, error) {
	start := func() (*memserver.Server, error) { return memserver.New(c) }
	if c.RDMA == "" {
		return start()
	}
	ports := preflight.Ports{GRPC: c.Control, Metrics: c.Metrics}
	if !c.Insecure {
		var err error
		if ports.TLS, err = identity.Open(c.TLSDir); err != nil {
			return nil, err
		}
	}
	needs := preflight.Needs{Device: c.RDMADevice, LockBytes: c.MemoryBytes + c.LockTableBytes}
	if c.StateDir != "" { // the data directory may be on huge pages
		needs.HugeDir, needs.HugeBytes, needs.Found = c.DataDir, c.MemoryBytes, filepath.Join(c.DataDir, memserver.RegionFile)
	}
	return preflight.Start(ctx, needs.Check, start, ports, preflight.Again, c.Logger)
}

// withoutCanceled is nil if err only says that the program was asked to end.
func withoutCanceled(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// sizeFlag is a number of bytes in Kubernetes' notation.
type sizeFlag uint64

var _ pflag.Value = (*sizeFlag)(nil)

func (s *sizeFlag) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return err
	}
	if n, exact := q.AsInt64(); exact && n >= 0 {
		*s = sizeFlag(n)
		return nil
	}
	return resource.ErrFormatWrong
}

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return resource.NewQuantity(int64(*s), resource.BinarySI).String()
}

func (s *sizeFlag) Type() string { return "size" }
