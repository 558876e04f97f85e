package memserver

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Config says what a memory server is. Zero fields have the default that their comment names.
type Config struct {
	// ID is the server's number in global addresses, 1 to 32767. It is used in logs and metrics
	// only; 0 = not said.
	ID uint16

	// DataDir holds the region. On a hugetlbfs it lies in huge pages, in a tmpfs in memory,
	// elsewhere in the page cache of a disk (then a restart of the machine loses the content all
	// the same, and the server knows it). One process at a time. Empty = anonymous memory: nothing
	// survives the process.
	DataDir string

	// StateDir holds the ledger, and is kept and lost together with DataDir. It must be able to
	// hold ordinary files, so a DataDir on a hugetlbfs needs one. Empty = DataDir.
	StateDir string

	// LedgerBytes is how large the ledger may become: the volume of StateDir must have room for
	// two. From five eighths on no index is admitted, and from seven eighths on nothing else is let
	// in that would make it larger, so that fences can be stored. 0 = DefaultLedgerBytes.
	LedgerBytes uint64

	// MemoryBytes is the size of the data region. It is rounded down to whole chunks (and huge
	// pages). The first chunk's room is header, superblocks, repair records and intent slots, of 28
	// times LockTableBytes in all; where chunks are small and locks many, more chunks' room is. At
	// least one chunk must be left.
	MemoryBytes uint64

	// ChunkBytes is what is handed out at once: a power of two from MinChunkBytes to MaxChunkBytes.
	// 0 = DefaultChunkBytes.
	ChunkBytes uint64

	// LockTableBytes is the size of the lock region, a multiple of 8; two bytes a lock. 0 =
	// DefaultLockTableBytes.
	LockTableBytes uint64

	// Lease is how long a client may go without renewing; then it is fenced. In whole milliseconds,
	// from MinLease to MaxLease. 0 = DefaultLease. It may be changed with a restart: leases of the
	// former length are waited out.
	Lease time.Duration

	// Reserve takes all memory at the start, so that a lack of it is an error then and not the end
	// of the process later. On a hugetlbfs the kernel reserves in any case.
	Reserve bool

	// Executor answers two-sided calls of clients of Fabric and RDMA: what designs let the memory
	// server do beside its memory. nil = there are none. It trusts nobody: a client may ask for any
	// bytes of the region, as it may READ them.
	Executor verbs.Executor
	// CallThreads is how many calls are executed at once; a client that finds as many is told so at
	// once. 0 = verbs.DefaultCallThreads.
	CallThreads int

	// Control is the host:port of the gRPC service. Required; port 0 = any free one (see
	// Server.Addresses).
	Control string
	// Fabric is the host:port of the tcp provider. Empty = it is not offered. One of Fabric, Shm
	// and RDMA is required.
	Fabric string
	// FabricTLS lets clients of Fabric come under TLS only, of whatever index. Otherwise those of
	// indexes that identity.FabricFile of TLSDir names must, and others choose.
	FabricTLS bool
	// Shm is the path of the shm provider's socket. Empty = it is not offered.
	Shm string
	// RDMA is the host:port at which clients of the ibv provider connect their queue pairs. Empty =
	// it is not offered. It is offered alone: what a NIC does atomically is not atomic for the CPU,
	// which executes the requests of the others.
	RDMA string
	// RDMADevice names the RDMA device for RDMA. Empty = the first one with an active port.
	RDMADevice string
	// OnChip puts the lock region into the RDMA device's own memory, if that has as much; else it
	// stays in host memory.
	OnChip bool
	// Metrics is the host:port of /metrics, /healthz and /readyz over plain HTTP. Empty = not
	// served.
	Metrics string

	// TLSDir holds tls.crt, tls.key, ca.crt and, where several authorities sign certificates,
	// identity.AuthoritiesFile. They are read again when they change. Required unless Insecure.
	TLSDir string
	// Insecure serves control calls without TLS and lets everybody make every call. Control,
	// Fabric, RDMA and Metrics must then be loopback addresses.
	Insecure bool

	// Pod is the name by which views of its volume name the server's pod: its UID. A server with it
	// serves nothing of a new memory before a view names it, or it has become a copy. Empty = the
	// server is the only one that has the volume, until a first view says its name. The processes
	// of a pod are counted in DataDir, or in PersistDir, where Pod names what has the directory;
	// without one each needs a name of its own.
	Pod string

	// Mirror is the host:port at which memory servers of the same pool connect that send this one
	// their changes, so that it can be a copy of their volume. Only with Fabric alone: clients of
	// the other providers change the memory by themselves. Empty = this server is never a copy; it
	// may still have one.
	Mirror string

	// PersistDir keeps memory and ledger in files of a directory on a disk, so that both are there
	// again after the process has ended, or the machine has. One process at a time; another one
	// waits for it 10 s, since it may be dying. It needs room for four times MemoryBytes, and 256
	// MiB. Only with Fabric alone, and without DataDir: the directory is all that counts. With Pod
	// it is of that copy of the volume alone, so Pod names what has the directory for as long as
	// that is there. Empty = no.
	PersistDir string
	// PersistSync says when what is acknowledged is on disk: what a loss of power may take.
	PersistSync persist.Sync
	// PersistExisting refuses a PersistDir that no server has used, in place of making a new memory
	// there: another disk may be mounted.
	PersistExisting bool
	// PersistAcceptLoss opens a directory that may lack what was acknowledged last: of another
	// PersistSync than Always, after the machine stopped. All clients of before are fenced, since
	// their caches may have what is missing here. An index on several memory servers may not fit
	// together any more.
	PersistAcceptLoss bool

	// Version of the program, for Describe and metrics. Empty = "unknown".
	Version string
	// Pprof serves the runtime's profiles beside the metrics.
	Pprof bool
	// Logger; nil = nothing is logged.
	Logger *slog.Logger

	env          env.Env       // nil = the real one
	firstProcess uint64        // of a pod; 0 = by the time (numberByClock)
	replyLimit   time.Duration // 0 = the limit of package admission
	maxAge       time.Duration // of control connections; 0 = that of package admission
	checkpoint   uint64        // persist.Options.CheckpointBytes
	lockLimit    time.Duration // 0 = lockLimit
}

// Defaults of Config.
const (
	DefaultChunkBytes     = 8 << 20
	DefaultLockTableBytes = 256 << 10
	DefaultLedgerBytes    = 31 << 20 // the operator's pods have room for two
	DefaultLease          = 10 * time.Second
)

// Bounds of Config.Lease.
const (
	MinLease = 100 * time.Millisecond
	MaxLease = time.Hour
)

const (
	maxLockTableBytes = 1 << 30
	maxCallThreads    = 1024
	minLedgerBytes    = 8 * 2 * ledger.MaxMap // see core.Accounts: a change is less than an eighth
	maxLedgerBytes    = 1 << 40
	maxMemoryBytes    = 1 << 47 // offsets in global addresses have 48 bits
)

// withDefaults is c with its zero fields filled in, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if c.ChunkBytes == 0 {
		c.ChunkBytes = DefaultChunkBytes
	}
	if c.LockTableBytes == 0 {
		c.LockTableBytes = DefaultLockTableBytes
	}
	if c.LedgerBytes == 0 {
		c.LedgerBytes = DefaultLedgerBytes
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Version == "" {
		c.Version = "unknown"
	}
	if c.firstProcess == 0 {
		c.firstProcess = numberByClock()
	}
	if c.lockLimit == 0 {
		c.lockLimit = lockLimit
	}
	if c.env == nil {
		c.env = env.Real()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ID > 1<<15-1 {
		bad("ID is %d; 1 to 32767 are possible", c.ID)
	}
	if c.ChunkBytes&(c.ChunkBytes-1) != 0 || c.ChunkBytes < MinChunkBytes || c.ChunkBytes > MaxChunkBytes {
		bad("ChunkBytes is %d; powers of two from %d to %d are possible", c.ChunkBytes, MinChunkBytes, MaxChunkBytes)
	} else if least := leastMemory(c.ChunkBytes, c.LockTableBytes); c.MemoryBytes < least || c.MemoryBytes > maxMemoryBytes {
		bad("MemoryBytes is %d; from %d chunks (%d) to %d are possible, the first %d of them for header, superblocks, and repair records and intent slots of "+
			"%d locks", c.MemoryBytes, least/c.ChunkBytes, least, uint64(maxMemoryBytes), least/c.ChunkBytes-1, c.LockTableBytes/2)
	}
	if c.Lease < MinLease || c.Lease > MaxLease || c.Lease%time.Millisecond != 0 {
		bad("Lease is %v; whole milliseconds from %v to %v are possible", c.Lease, MinLease, MaxLease)
	}
	if c.CallThreads < 0 || c.CallThreads > maxCallThreads {
		bad("CallThreads is %d; 0 to %d are possible", c.CallThreads, maxCallThreads)
	}
	if c.LockTableBytes%8 != 0 || c.LockTableBytes > maxLockTableBytes {
		bad("LockTableBytes is %d; multiples of 8 up to %d are possible", c.LockTableBytes, maxLockTableBytes)
	}
	if c.LedgerBytes < minLedgerBytes || c.LedgerBytes > maxLedgerBytes {
		bad("LedgerBytes is %d; %d to %d are possible", c.LedgerBytes, minLedgerBytes, uint64(maxLedgerBytes))
	}
	if c.StateDir != "" && c.DataDir == "" {
		bad("StateDir is set without DataDir: anonymous memory does not survive, so its ledger must not either")
	}
	if len(c.Pod) > control.MaxPod {
		bad("Pod has %d bytes; at most %d are possible", len(c.Pod), control.MaxPod)
	}
	if c.Control == "" {
		bad("Control is empty; write host:port, with port 0 for any")
	}
	if c.Fabric == "" && c.Shm == "" && c.RDMA == "" {
		bad("neither Fabric nor Shm nor RDMA is set: nobody could reach the memory")
	}
	if c.RDMA != "" && (c.Fabric != "" || c.Shm != "") {
		bad("RDMA is set together with Fabric or Shm: a NIC's atomics are not atomic against the CPU's, so a server offers RDMA alone")
	}
	if c.RDMADevice != "" && c.RDMA == "" {
		bad("RDMADevice is set without RDMA: write host:port of the listener too")
	}
	if c.Mirror != "" && (c.Fabric == "" || c.Shm != "" || c.RDMA != "") {
		bad("Mirror is set, which needs Fabric alone: clients of the other providers change the memory by themselves")
	}
	if c.PersistDir != "" && (c.Fabric == "" || c.Shm != "" || c.RDMA != "") {
		bad("PersistDir is set, which needs Fabric alone: clients of the other providers change the memory by themselves")
	}
	if c.PersistDir != "" && (c.DataDir != "" || c.StateDir != "") {
		bad("PersistDir is set together with DataDir or StateDir: the memory is read from PersistDir whenever the server starts, so leave those out")
	}
	if c.PersistDir == "" && (c.PersistSync != persist.Always || c.PersistExisting || c.PersistAcceptLoss) {
		bad("PersistSync, PersistExisting or PersistAcceptLoss is set without PersistDir: name a directory on a disk")
	}
	if c.FabricTLS && (c.Fabric == "" || c.Insecure || c.Shm != "") {
		bad("FabricTLS is set, which needs Fabric and TLSDir, and no Shm")
	}
	if c.OnChip && c.RDMA == "" {
		bad("OnChip is set without RDMA: only an RDMA device has memory of its own")
	}
	switch {
	case c.Insecure && c.TLSDir != "":
		bad("both Insecure and TLSDir are set; choose one")
	case !c.Insecure && c.TLSDir == "":
		bad("TLSDir is empty; name a directory with tls.crt, tls.key and ca.crt, or set Insecure on loopback addresses")
	case c.Insecure:
		for name, address := range map[string]string{"Control": c.Control, "Fabric": c.Fabric, "RDMA": c.RDMA, "Metrics": c.Metrics, "Mirror": c.Mirror} { //env:real messages in any order
			if address != "" && !accept.Loopback(address) {
				bad("%s is %q; without TLS only loopback addresses are possible", name, address)
			}
		}
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("memory server configuration: %w", errors.Join(errs...))
	}
	return c, nil
}

// RegionFile is the name of the data region in a data directory.
const RegionFile = region.DataFile

// MinChunkBytes and MaxChunkBytes bound Config.ChunkBytes.
const (
	MinChunkBytes = 1 << 20
	MaxChunkBytes = 1 << 30
)

// shape is the header of the region that c asks for, in a file system of that page size.
func (c *Config) shape(pageSize uint64) (region.Header, error) {
	unit := max(c.ChunkBytes, pageSize)
	h := region.Header{DataBytes: c.MemoryBytes / unit * unit, ChunkBytes: c.ChunkBytes, LockBytes: c.LockTableBytes, Slots: region.SuperblockSlots, Boot: region.BootID()}
	if least := leastMemory(c.ChunkBytes, c.LockTableBytes); h.DataBytes < least {
		return region.Header{}, fmt.Errorf("MemoryBytes %d is less than %d chunks in whole pages of %d", c.MemoryBytes, least/c.ChunkBytes, pageSize)
	}
	return h, nil
}

// leastMemory is a data region with one chunk to hand out.
func leastMemory(chunkBytes, lockBytes uint64) uint64 {
	return region.ChunksStart(chunkBytes, min(lockBytes, maxLockTableBytes)) + chunkBytes
}
