//env:real Prometheus collects over channels

package memserver

import (
	"context"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/profile"
)

// metrics are what a server shows to Prometheus. Everything about memory is read from the ledger at
// each scrape.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	rdma     *prometheus.CounterVec // what the RDMA device reports, by event
}

const namespace = "dmindex_memserver_"

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+name, help, labels, nil)
}

var (
	descRegion       = describe("region_bytes", "Size of the memory regions.", "region")
	descChunkBytes   = describe("chunk_bytes", "Size of a chunk.")
	descChunks       = describe("chunks", "Chunks by state: total, granted (sum of the quotas), used, dirty (freed, not zeroed yet), adoptable (used, of fenced clients).", "state")
	descLocks        = describe("locks", "16-bit locks by state: total, granted, on_chip (of all, in the NIC's memory).", "state")
	descLedger       = describe("ledger_bytes", "Size of the ledger by state: stored, limit. From five eighths of the limit on no index is admitted, from seven eighths on no client comes and no chunk is allocated.", "state")
	descDraining     = describe("draining", "1 while no index is admitted and no chunk handed out.")
	descIndexQuota   = describe("index_chunks_quota", "Chunks that an index may own.", "index")
	descIndexUsed    = describe("index_chunks_used", "Chunks that an index owns.", "index")
	descIndexLocks   = describe("index_locks", "16-bit locks of an index.", "index")
	descIndexClients = describe("index_clients", "Clients of an index that are known here and not fenced.", "index")
	descIndexFenced  = describe("index_fenced_clients", "Clients of an index that are fenced here and not forgotten: their ids are given to no other client.", "index")
	descUnfinished   = describe("unfinished_fences", "Fenced clients of which something may still take effect, or that locks still name.")
	descExpired      = describe("expired_leases_total", "Leases that ended because nobody renewed them.")
	descTurned       = describe("repair_locks_total", "Locks of fenced clients that were turned to REPAIR.")
	descPanics       = describe("connection_panics_total", "Connections to the memory that ended by a fault of the program; its log has the stack of the first.")
	descRefused      = describe("refused_tokens_total", "Connections to the memory that showed a token which is unknown, used, older than a minute or of another provider.")
	descIndexConns   = describe("index_connections", "Connections of an index to this server's memory.", "index")
	descView         = describe("volume_view", "Number of the view of its volume that this server acts by; 0 = it was told none. The labels say what this server is in it.", "role")
	descLag          = describe("mirror_lag_bytes", "Bytes of changes that the copy which joined this server last is not known to have.")
	descMirrorWait   = describe("mirror_wait_seconds", "Answers that waited for a copy, and how long all of them did. Most wait for a hop; those of unchanged memory wait for nothing and are not counted.")
	descFailovers    = describe("failovers_total", "Times that a copy in this process took its volume over, on a failure or by a move.")
	descCopied       = describe("copied_bytes_total", "Bytes of memory that this server has sent to copies that joined it.")
	descDifferences  = describe("differences_total", "Pieces of memory that this process, as a copy, found to differ from those of its primary. Each ends the copy, and another one joins.")
	descLogBytes     = describe("persist_log_bytes", "Bytes of changes in files that no checkpoint has yet.")
	descSyncs        = describe("persist_sync_seconds", "Times that changes were put on disk (fdatasync), and how long all of them took.")
	descDiskWaits    = describe("persist_waiting", "1 while changes wait for room in the files: the disk is full, or its checkpoints are slower than changes come.")
	descIndexMap     = describe("index_map_generation", "Generation of the partition map that is kept here; 0 = none.", "index")
	descTLSFailed    = describe("tls_reload_failed", "1 while the newest TLS files cannot be used and older ones are in force.")
	descTLSUntil     = describe("tls_not_after_timestamp_seconds", "When the certificate in force ends.")
	descBuild        = describe("build_info", "1; the labels say what is running.", "version", "go", "server", "incarnation")
)

func newMetrics(c *service, v *volume, id uint16, files *identity.Files) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: namespace + "control_calls_total", Help: "Control calls by method and gRPC code.",
		}, []string{"method", "code"}),
		rdma: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: namespace + "rdma_events_total", Help: "Asynchronous events of the RDMA device by their name in libibverbs: PORT_ERR, PORT_ACTIVE, DEVICE_FATAL.",
		}, []string{"event"}),
	}
	m.registry.MustRegister(m.calls, m.rdma, collector{c, v, id, files},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// count counts calls by their outcome.
func (m *metrics) count(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	reply, err := next(ctx, request)
	m.calls.WithLabelValues(info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:], status.Code(err).String()).Inc()
	return reply, err
}

// collector reads the server at each scrape.
type collector struct {
	control *service
	volume  *volume
	id      uint16
	files   *identity.Files // nil without TLS
}

// Describe implements prometheus.Collector. Which metrics there are depends on the indexes, so none
// is promised.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, n uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n))
	}
	r := c.control.region
	if c.files != nil {
		gauge(descTLSFailed, number(c.files.Err() != nil))
		gauge(descTLSUntil, float64(c.files.NotAfter().Unix()))
	}
	opened, incarnation := c.control.opened.Load(), uint64(0)
	if opened {
		incarnation = r.Incarnation
	}
	gauge(descBuild, 1, c.control.version, runtime.Version(), strconv.Itoa(int(c.id)), strconv.FormatUint(incarnation, 16))
	gauge(descRegion, float64(r.DataBytes), "data")
	gauge(descRegion, float64(r.LockBytes), "locks")
	gauge(descChunkBytes, float64(r.ChunkBytes))
	gauge(descChunks, float64(r.Chunks()), "total")
	gauge(descLocks, float64(r.LockBytes/2), "total")
	v := c.volume
	gauge(descView, float64(v.member.Report().View.Number), v.member.Role().String())
	count(descDifferences, differences.Load())
	gauge(descLag, float64(v.lag()))
	count(descCopied, v.copied.Load())
	count(descFailovers, failovers.Load())
	if j := r.Journal; j != nil {
		answers, all := j.Waited()
		out <- prometheus.MustNewConstSummary(descMirrorWait, answers, all.Seconds(), nil)
	}
	if p := v.server.persisted; p != nil {
		if store := p.store.Load(); store != nil {
			st := store.Stats()
			gauge(descLogBytes, float64(st.LogBytes))
			gauge(descDiskWaits, number(st.Waits))
			out <- prometheus.MustNewConstSummary(descSyncs, st.Syncs, st.SyncTime.Seconds(), nil)
		}
	}
	if !opened { // a copy
		return
	}
	var totals ledger.Totals
	var indexes []ledger.Index
	var unfinished int
	var adoptable uint64
	var stored, most int
	c.control.Accounts.Read(func(l *ledger.Ledger) {
		totals, indexes, unfinished = l.Totals(), l.Indexes(), c.control.Accounts.Unfinished()
		adoptable = l.Adoptable()
		stored, most = c.control.Accounts.Size()
	})
	gauge(descLedger, float64(stored), "stored")
	gauge(descLedger, float64(most), "limit")
	gauge(descUnfinished, float64(unfinished))
	count(descExpired, c.control.Expired.Load())
	count(descTurned, c.control.Turned.Load())
	count(descPanics, c.control.Panics.Load())
	count(descRefused, c.control.RefusedTokens())
	gauge(descChunks, float64(totals.Granted), "granted")
	gauge(descChunks, float64(totals.Used), "used")
	gauge(descChunks, float64(totals.Dirty), "dirty")
	gauge(descChunks, float64(adoptable), "adoptable")
	gauge(descLocks, float64(totals.LocksGranted), "granted")
	gauge(descLocks, float64(c.control.OnChip()), "on_chip")
	gauge(descDraining, number(totals.Draining))
	connections := c.control.Connections()
	for _, i := range indexes {
		gauge(descIndexQuota, float64(i.Quota), i.Identity)
		gauge(descIndexUsed, float64(i.Used), i.Identity)
		gauge(descIndexLocks, float64(i.Locks), i.Identity)
		gauge(descIndexClients, float64(i.Clients), i.Identity)
		gauge(descIndexFenced, float64(i.Fenced), i.Identity)
		gauge(descIndexConns, float64(connections[i.Identity]), i.Identity)
		gauge(descIndexMap, float64(i.Generation), i.Identity)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// handler serves /metrics, /healthz (the process answers) and /readyz (it serves clients).
func (m *metrics) handler(ready func() bool, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "not serving", http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte("ok\n"))
	})
	if profiles {
		mux.Handle(profile.Path, profile.Handler())
	}
	return mux
}
