//env:real a web page, and calls of other servers for it

package computeserver

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/internal/statuspage"
	"github.com/dmindex/dmindex/computeserver/resp"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Anybody who reaches the port of the metrics may ask for the page. So it has no keys, it is drawn
// once in pageAge for all who ask, and what it asks other servers for is bounded.
const (
	pageAge   = 2 * time.Second
	pageWait  = 2 * time.Second // for all other servers
	pageAsked = 8               // servers at a time
)

// pages draws the page at / of the port of the metrics. Safe for concurrent use.
type pages struct {
	core     *engine.Engine
	metrics  *metrics
	peers    *grpcPeers
	slow     func(n int) []resp.SlowPipeline
	describe func() *rpcv1.DescribeComputeReply
	hider    func() keyrange.Hider
	history  statuspage.History

	mu    sync.Mutex // held while a page is drawn
	drawn []byte
	at    time.Time
}

// ServeHTTP implements http.Handler.
func (p *pages) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	text, err := p.newest()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(text) // who asked may be gone
}

// newest is a page that is at most pageAge old.
func (p *pages) newest() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) < pageAge && p.drawn != nil {
		return p.drawn, nil
	}
	var b bytes.Buffer
	if err := statuspage.Write(&b, p.page()); err != nil {
		return nil, err
	}
	p.drawn, p.at = b.Bytes(), time.Now()
	return p.drawn, nil
}

// page is what there is to show.
func (p *pages) page() *statuspage.Page {
	own, hider, m := p.describe(), p.hider(), p.core.View.Current()
	page := &statuspage.Page{
		Index: own.Index, Design: own.Design, Version: own.Version, Server: own.Id, Generation: own.MapGeneration,
		Now: time.Now(), History: p.history.Samples(), Commands: p.metrics.commands(),
	}
	if err := p.core.Ready(); err != nil {
		page.Trouble = hider.Texts(err.Error())
	}
	servers := []partition.Server{{ID: own.Id}}
	if m != nil {
		servers = m.Servers[:min(len(m.Servers), statuspage.MaxServers)]
	}
	for _, s := range p.slow(statuspage.MaxSlow) {
		page.Slow = append(page.Slow, statuspage.Slow(s))
	}
	said, failed := p.describeAll(servers, own)
	for i, s := range servers {
		page.Servers = append(page.Servers, row(s, said[i], failed[i], hider))
	}
	page.Ranges = rangesOf(m, servers, said, hider)
	return page
}

// describeAll has all servers describe themselves. Of each there is a description or an error. It
// goes on where who asked for the page is gone: others wait for the page, too.
func (p *pages) describeAll(servers []partition.Server, own *rpcv1.DescribeComputeReply) ([]*rpcv1.DescribeComputeReply, []error) {
	ctx, cancel := context.WithTimeout(context.Background(), pageWait)
	defer cancel()
	said, failed := make([]*rpcv1.DescribeComputeReply, len(servers)), make([]error, len(servers))
	var group errgroup.Group
	group.SetLimit(pageAsked)
	for i, s := range servers {
		if s.ID == own.Id {
			said[i] = own
			continue
		}
		group.Go(func() error {
			said[i], failed[i] = p.peers.Describe(ctx, s)
			return nil
		})
	}
	_ = group.Wait() // each error has its place
	return said, failed
}

func row(s partition.Server, d *rpcv1.DescribeComputeReply, err error, hider keyrange.Hider) statuspage.Server {
	r := statuspage.Server{ID: s.ID, Name: s.Name}
	if err != nil {
		r.Trouble = hider.Texts(err.Error())
		return r
	}
	r.Answered = true
	r.Operations, r.HitRatio, r.Reads = d.GetLoad().GetOperationsPerSecond(), d.GetLoad().GetHitRatio(), d.GetLoad().GetReadsPerOperation()
	r.Connections, r.Total, r.Forwarded, r.Errors = d.Connections, d.Operations, d.Forwarded, d.Errors
	r.CacheBytes, r.Ranges, r.Version = d.CacheBytes, len(d.Ranges), d.Version
	switch {
	case d.DataLost != "":
		r.Trouble = hider.Texts(d.DataLost)
	case d.Draining:
		r.Trouble = "drains: it ends soon"
	}
	return r
}

// rangesOf are the ranges that servers say they hold, and those of the map of which no owner says
// anything, in the order of keys.
func rangesOf(m *partition.Map, servers []partition.Server, said []*rpcv1.DescribeComputeReply, hider keyrange.Hider) []statuspage.Range {
	type held struct {
		start []byte
		row   statuspage.Range
	}
	var all []held
	told := map[uint32]bool{}
	for i, s := range servers {
		for _, r := range said[i].GetRanges() {
			told[s.ID] = true
			all = append(all, held{r.Start, statuspage.Range{
				Keys: hider.Format(r.Start, r.End), Owner: s.ID, Operations: r.OperationsPerSecond, State: r.State, Reason: hider.Texts(r.Reason),
			}})
		}
	}
	if m != nil {
		for i, r := range m.Ranges {
			if !told[r.Owner] {
				span := m.Span(i)
				all = append(all, held{span.Start, statuspage.Range{Keys: hider.Format(span.Start, span.End), Owner: r.Owner, Operations: -1, State: "as the map says"}})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b held) int { return bytes.Compare(a.start, b.start) })
	rows := make([]statuspage.Range, len(all))
	for i := range all {
		rows[i] = all[i].row
	}
	return rows
}

// totals are what a sample is the difference of.
type totals struct {
	at                               time.Time
	operations, errors, hits, misses uint64
	latencies                        [count.HistogramBuckets]uint64
}

func (p *pages) totals() (t totals) {
	c := p.core.Count
	stats := p.core.Sessions.Stats()
	t = totals{at: time.Now(), operations: c.Operations.Load(), errors: c.Errors.Load(), hits: stats.CacheHits, misses: stats.CacheMisses}
	for i := range t.latencies {
		t.latencies[i] = p.metrics.resp.Latency.Buckets[i].Load() + p.metrics.rpc.Latency.Buckets[i].Load()
	}
	return t
}

// since is what happened between two totals.
func (t *totals) since(before *totals) statuspage.Sample {
	seconds := t.at.Sub(before.at).Seconds()
	s := statuspage.Sample{
		At: t.at, Operations: float64(t.operations-before.operations) / seconds, Errors: float64(t.errors-before.errors) / seconds,
		HitRatio: -1,
	}
	// An index that was opened anew counts from nothing.
	if hits, all := t.hits-before.hits, t.hits+t.misses-before.hits-before.misses; t.hits >= before.hits && t.misses >= before.misses && all > 0 {
		s.HitRatio = float64(hits) / float64(all)
	}
	all := uint64(0)
	for i := range t.latencies {
		all += t.latencies[i] - before.latencies[i]
	}
	slower := all / 100 // requests above the 99th percentile
	for i := count.HistogramBuckets - 1; i >= 0 && all > 0; i-- {
		n := t.latencies[i] - before.latencies[i]
		if n > slower {
			s.P99 = (time.Microsecond << i).Seconds()
			break
		}
		slower -= n
	}
	return s
}

// sample takes samples until ctx ends.
func (p *pages) sample(ctx context.Context) {
	ticks := time.NewTicker(statuspage.Every)
	defer ticks.Stop()
	for last := p.totals(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		now := p.totals()
		p.history.Add(now.since(&last))
		last = now
	}
}

// commands are what this server was sent, most frequent first.
func (m *metrics) commands() (rows []statuspage.Command) {
	of := func(frontEnd string, f *count.Front, slots []string) {
		for slot, name := range slots {
			n := &f.N[slot]
			c := statuspage.Command{FrontEnd: frontEnd, Name: name, OK: n[count.OK].Load(), Missed: n[count.Miss].Load(), Error: n[count.Error].Load()}
			if c.OK+c.Missed+c.Error > 0 {
				rows = append(rows, c)
			}
		}
	}
	of("resp", &m.resp, resp.CommandNames)
	of("rpc", &m.rpc, rpcSlots)
	slices.SortStableFunc(rows, func(a, b statuspage.Command) int {
		return cmp.Compare(b.OK+b.Missed+b.Error, a.OK+a.Missed+a.Error)
	})
	return rows
}
