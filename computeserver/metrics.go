package computeserver

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/computeserver/resp"
	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// metrics is what /metrics shows. It is collected when it is asked for; requests only add to
// counters.
type metrics struct {
	core *engine.Engine
	resp count.Front
	rpc  count.Front

	logins *accept.Logins
	files  *identity.Files // nil = without TLS
	// Of a front end: connections that have not authenticated, and how many of those were ended.
	ofRESP, ofRPC func() (open int, ended uint64)
}

// rpcSlots are what rpc.Compute counts, in the place of commands: kinds of operations, and scans.
var rpcSlots = func() (names []string) {
	for kind := range rpcv1.Kinds {
		names = append(names, kind.Label())
	}
	return append(names, "scan")
}()

const rpcScanSlot = int(rpcv1.Kinds)

var (
	descRequests = prometheus.NewDesc("dmindex_compute_requests_total",
		"Requests of programs by front end, operation and outcome: ok, miss (not found, exists, or another value), error.", []string{"front_end", "operation", "outcome"}, nil)
	descLatency = prometheus.NewDesc("dmindex_compute_request_seconds",
		"From the arrival of a pipeline or batch until all of it was answered, once for each of its requests.", []string{"front_end"}, nil)
	descSizes = prometheus.NewDesc("dmindex_compute_pipeline_requests",
		"Pipelines (RESP) and batches (SDK and other servers) by how many requests they had. Small ones cost most for each request: clients that send without waiting are faster.", []string{"front_end"}, nil)
	descLogWaits = prometheus.NewDesc("dmindex_compute_log_waits_total",
		"Times that answers waited for the redo log: once for a pipeline or batch, or a part of up to 1,024 of its requests.", nil, nil)
	descLogWaited = prometheus.NewDesc("dmindex_compute_log_wait_seconds_total",
		"How long answers waited for the redo log, summed over these waits.", nil, nil)
	descLogTrips = prometheus.NewDesc("dmindex_compute_log_round_trips_total",
		"Round trips to a memory server that wrote the redo log. One of them serves all that wait at that moment.", nil, nil)
	descForwarded = prometheus.NewDesc("dmindex_compute_forwarded_total",
		"Operations and scans that were sent on to the server in charge.", nil, nil)
	descDivided = prometheus.NewDesc("dmindex_compute_divided_total",
		"Pipelines and batches whose changes were divided among several sessions.", nil, nil)
	descSwept = prometheus.NewDesc("dmindex_compute_swept_pairs_total",
		"Pairs that had expired and that no request had met: the server removed them on its rounds.", nil, nil)
	descClockOff = prometheus.NewDesc("dmindex_compute_clock_off_seconds",
		"How far the clock of the machine is ahead of the one by which pairs expire. That follows it slowly, so another value than 0 says that it was set. Of indexes with expiry.", nil, nil)
	descConnections = prometheus.NewDesc("dmindex_compute_resp_connections",
		"RESP connections at this moment.", nil, nil)
	descRefused = prometheus.NewDesc("dmindex_compute_resp_connections_refused_total",
		"RESP connections that were refused because there were too many.", nil, nil)
	descPublished = prometheus.NewDesc("dmindex_compute_published_messages_total",
		"Messages on channels that programs published at this server.", nil, nil)
	descDelivered = prometheus.NewDesc("dmindex_compute_delivered_messages_total",
		"Messages on channels that were given to subscribers of this server, once for each subscription.", nil, nil)
	descUndelivered = prometheus.NewDesc("dmindex_compute_undelivered_messages_total",
		"Messages on channels that another server did not get, or may not have got, as it was away or slow, once for each such server. Its subscribers are not told.", nil, nil)
	descSubscribersCut = prometheus.NewDesc("dmindex_compute_subscribers_cut_total",
		"RESP connections that were closed because they did not take the messages of their channels.", nil, nil)
	descFailedLogins = prometheus.NewDesc("dmindex_compute_failed_logins_total",
		"Logins over RESP and calls of programs with a wrong password, or calls without one.", nil, nil)
	descStrangers = prometheus.NewDesc("dmindex_compute_unauthenticated_connections",
		"Connections at this moment that have not authenticated, by front end.", []string{"front_end"}, nil)
	descStrangersEnded = prometheus.NewDesc("dmindex_compute_unauthenticated_connections_ended_total",
		"Connections that were closed because they did not authenticate in time, or gave their place to another one.", []string{"front_end"}, nil)
	descGeneration = prometheus.NewDesc("dmindex_compute_map_generation",
		"Generation of the partition map that the server acts on; 0 = it has none.", nil, nil)
	descReady = prometheus.NewDesc("dmindex_compute_ready",
		"1 while /readyz says yes.", nil, nil)
	descVerbs = prometheus.NewDesc("dmindex_compute_verbs_total",
		"Work requests to memory servers by kind.", []string{"verb"}, nil)
	descVerbBytes = prometheus.NewDesc("dmindex_compute_verb_bytes_total",
		"Payload of work requests by kind.", []string{"verb"}, nil)
	descRoundTrips = prometheus.NewDesc("dmindex_compute_round_trips_total",
		"Times that an operation waited for memory servers.", nil, nil)
	descIndexOps = prometheus.NewDesc("dmindex_compute_index_operations_total",
		"Operations of the index, those for other servers included.", nil, nil)
	descRetries = prometheus.NewDesc("dmindex_compute_index_retries_total",
		"Times that a torn or stale node was read again.", nil, nil)
	descConflicts = prometheus.NewDesc("dmindex_compute_lock_conflicts_total",
		"Times that a lock was held by another server.", nil, nil)
	descHandovers = prometheus.NewDesc("dmindex_compute_lock_handovers_total",
		"Locks that were passed on within this server.", nil, nil)
	descCombined = prometheus.NewDesc("dmindex_compute_combined_changes_total",
		"Changes that were carried out together with that of another session, which had the lock.", nil, nil)
	descDelegated = prometheus.NewDesc("dmindex_compute_delegated_reads_total",
		"READs of nodes that a session did not make, because another one made them for both.", nil, nil)
	descMerges = prometheus.NewDesc("dmindex_compute_merged_nodes_total",
		"Nodes that became underfull and were merged with a neighbour.", nil, nil)
	descReclaimed = prometheus.NewDesc("dmindex_compute_reclaimed_nodes_total",
		"Merged nodes that this server, their owner, has made free to be used again.", nil, nil)
	descMisled = prometheus.NewDesc("dmindex_compute_misled_total",
		"Leaves that began above the key that led there: memory was used again too early. The operation began anew; any is a fault.", nil, nil)
	descRanges = prometheus.NewDesc("dmindex_compute_ranges",
		"Ranges of keys that this server holds or is to hold, by state; of designs whose ranges have owners.", []string{"state"}, nil)
	descTLSFailed = prometheus.NewDesc("dmindex_compute_tls_reload_failed",
		"1 while the newest TLS files cannot be used and older ones are in force.", nil, nil)
	descTLSUntil = prometheus.NewDesc("dmindex_compute_tls_not_after_timestamp_seconds",
		"When the certificate in force ends.", nil, nil)
	descCache = prometheus.NewDesc("dmindex_compute_cache_bytes",
		"Memory of the index cache.", nil, nil)
	descCacheHits = prometheus.NewDesc("dmindex_compute_cache_hits_total",
		"Descents that went from the cache straight to the leaf.", nil, nil)
	descCacheMisses = prometheus.NewDesc("dmindex_compute_cache_misses_total",
		"Inner nodes that had to be read.", nil, nil)
)

func newMetrics(c *engine.Engine, logins *accept.Logins, files *identity.Files) *metrics {
	m := &metrics{core: c, logins: logins, files: files}
	m.resp.Sum, m.rpc.Sum = c.Count, c.Count
	return m
}

// Describe leaves the descriptions to Collect.
func (m *metrics) Describe(chan<- *prometheus.Desc) {} //env:real prometheus collects through channels

// Collect reads all counters.
func (m *metrics) Collect(out chan<- prometheus.Metric) { //env:real prometheus collects through channels
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...) //env:real prometheus collects through channels
	}
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) //env:real prometheus collects through channels
	}
	show := func(name string, f *count.Front, slots []string) {
		for slot, operation := range slots {
			for kind := range f.N[slot] {
				if n := f.N[slot][kind].Load(); n > 0 {
					counter(descRequests, n, name, operation, count.Names[kind])
				}
			}
		}
		out <- metricOf(&f.Latency, name) //env:real prometheus collects through channels
		out <- sizesOf(f, name)           //env:real prometheus collects through channels
	}
	show("resp", &m.resp, resp.CommandNames)
	show("rpc", &m.rpc, rpcSlots)
	counter(descForwarded, m.core.Count.Forwarded.Load())
	counter(descDivided, m.core.Count.Divided.Load())
	counter(descSwept, m.core.Count.Swept.Load())
	if off, ok := m.core.Sessions.ClockOff(); ok {
		gauge(descClockOff, off.Seconds())
	}
	counter(descLogWaits, m.core.Count.LogWaits.Load())
	out <- prometheus.MustNewConstMetric(descLogWaited, prometheus.CounterValue, time.Duration(m.core.Count.LogWaited.Load()).Seconds()) //env:real prometheus collects through channels
	gauge(descConnections, float64(m.core.Count.Connections.Load()))
	counter(descRefused, m.core.Count.Refused.Load())
	counter(descPublished, m.core.Count.Published.Load())
	counter(descDelivered, m.core.Count.Delivered.Load())
	counter(descUndelivered, m.core.Count.Undelivered.Load())
	counter(descSubscribersCut, m.core.Count.SubscribersCut.Load())
	counter(descFailedLogins, m.logins.Total())
	for _, f := range []struct {
		name      string
		strangers func() (int, uint64)
	}{{"resp", m.ofRESP}, {"rpc", m.ofRPC}} {
		open, ended := f.strangers()
		out <- prometheus.MustNewConstMetric(descStrangers, prometheus.GaugeValue, float64(open), f.name) //env:real prometheus collects through channels
		counter(descStrangersEnded, ended, f.name)
	}
	gauge(descGeneration, float64(m.core.View.Generation()))
	ready := 0.0
	if m.core.Ready() == nil {
		ready = 1
	}
	gauge(descReady, ready)
	if m.files != nil {
		failed := 0.0
		if m.files.Err() != nil {
			failed = 1
		}
		gauge(descTLSFailed, failed)
		gauge(descTLSUntil, float64(m.files.NotAfter().Unix()))
	}
	if m.core.Sessions.Owned() {
		count := map[ownership.RangeState]int{}
		for _, r := range m.core.Ranges() {
			count[r.State]++
		}
		for _, state := range ownership.RangeStates {
			out <- prometheus.MustNewConstMetric(descRanges, prometheus.GaugeValue, float64(count[state]), string(state)) //env:real prometheus collects through channels
		}
	}

	s := m.core.Sessions.Stats()
	for op := range verbs.NumOps {
		counter(descVerbs, s.Verbs.Requests[op], op.String())
		counter(descVerbBytes, s.Verbs.Bytes[op], op.String())
	}
	counter(descRoundTrips, s.Verbs.RoundTrips)
	counter(descLogTrips, s.Log.RoundTrips)
	counter(descIndexOps, s.Operations)
	counter(descRetries, s.Retries)
	counter(descConflicts, s.LockConflicts)
	counter(descHandovers, s.Handovers)
	counter(descCombined, s.Combined)
	counter(descDelegated, s.Delegated)
	counter(descMerges, s.Merges)
	counter(descReclaimed, s.Reclaimed)
	counter(descMisled, s.Misled)
	gauge(descCache, float64(s.CacheBytes))
	counter(descCacheHits, s.CacheHits)
	counter(descCacheMisses, s.CacheMisses)
}

// metricOf is h as Prometheus has it: cumulative, in seconds.
func metricOf(h *count.Histogram, frontEnd string) prometheus.Metric {
	cumulative := make(map[float64]uint64, count.HistogramBuckets)
	total := uint64(0)
	for i := range h.Buckets {
		total += h.Buckets[i].Load()
		if i < count.HistogramBuckets-1 {
			cumulative[(time.Microsecond << i).Seconds()] = total
		}
	}
	return prometheus.MustNewConstHistogram(descLatency, total, time.Duration(h.Sum.Load()).Seconds(), cumulative, frontEnd)
}

// sizesOf is how many requests the pipelines or batches of a front end had, as Prometheus has it.
func sizesOf(f *count.Front, frontEnd string) prometheus.Metric {
	cumulative := make(map[float64]uint64, count.SizeBuckets)
	total := uint64(0)
	for i := range f.Sizes.Buckets {
		total += f.Sizes.Buckets[i].Load()
		if i < count.SizeBuckets-1 {
			cumulative[float64(uint64(1)<<i)] = total
		}
	}
	_, requests := f.Pipelines()
	return prometheus.MustNewConstHistogram(descSizes, total, float64(requests), cumulative, frontEnd)
}
