package memserver

import (
	"strconv"
	"strings"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/internal/region"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// metric is what a server tells Prometheus of one series.
func (p *copied) metric(series string) float64 {
	p.t.Helper()
	_, text := get(p.t, p.Addresses().Metrics, "/metrics")
	for line := range strings.Lines(text) {
		if value, is := strings.CutPrefix(line, "dmindex_memserver_"+series+" "); is {
			return must(strconv.ParseFloat(strings.TrimSpace(value), 64))
		}
	}
	p.t.Fatalf("there is no series %s: %s", series, text)
	return 0
}

// TestMetricsOfCopies: what a primary and its backup tell of the copy: who they are, how much was
// copied, what the backup lacks, how often an answer waited, and that the backup took over.
func TestMetricsOfCopies(t *testing.T) {
	scraped := func(pod string) *copied {
		c := volumeConfig(t, t.TempDir(), pod)
		c.Metrics = "127.0.0.1:0"
		return startCopyOf(t, c, nil, "")
	}
	a, b := scraped("pod-a"), scraped("pod-b")
	f := func(p *copied, series string, want float64) {
		t.Helper()
		if got := p.metric(series); got != want {
			t.Errorf("%s of %s is %v, want %v", series, p.pod, got, want)
		}
	}
	a.obey(view(1, "pod-a"))
	c := fill(t, a.Server)
	f(a, `volume_view{role="primary"}`, 1)
	f(b, `volume_view{role="joining"}`, 0)
	f(a, "copied_bytes_total", 0)
	f(a, "mirror_lag_bytes", 0)
	f(a, "mirror_wait_seconds_count", 0)

	link := newSlowLink(t, b.Addresses().Mirror)
	must(a.Join(t.Context(), &rpcv1.JoinCopyRequest{View: 1, Copy: b.proc(), Mirror: link.address}))
	a.awaits("a copy in sync", func(r *rpcv1.ReportVolumeReply) bool { return r.InSync })
	v := &rpcv1.VolumeView{Number: 2, Primary: a.proc(), Backup: b.proc()}
	a.obey(v)
	b.obey(v)
	f(a, `volume_view{role="primary"}`, 2)
	f(b, `volume_view{role="backup"}`, 2)
	if got := a.metric("copied_bytes_total"); got < region.PieceBytes || got > float64(a.region.DataBytes) {
		t.Errorf("%v bytes were copied", got)
	}

	changed := c.chunk()
	write := c.session(changed, 4096)
	equal(t, a, b)
	waits, lasted := a.metric("mirror_wait_seconds_count"), a.metric("mirror_wait_seconds_sum")
	link.hold()
	done, seen := make(chan error, 1), a.region.Journal.Seen(changed, 8)
	go func() { done <- write(verbs.Write) }()
	for began := time.Now(); a.region.Journal.Seen(changed, 8) == seen; {
		if time.Since(began) > limit {
			t.Fatal("the change is not made")
		}
	}
	if got := a.metric("mirror_lag_bytes"); got < 4096 {
		t.Errorf("the backup lacks %v bytes, and 4096 were written", got)
	}
	link.release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n, sum := a.metric("mirror_wait_seconds_count"), a.metric("mirror_wait_seconds_sum"); n <= waits || sum <= lasted {
		t.Errorf("%v answers waited for %v s, before one that did %v for %v s", n, sum, waits, lasted)
	}

	before := b.metric("failovers_total")
	a.stop()
	b.obey(&rpcv1.VolumeView{Number: 3, Primary: v.Backup, Earlier: v.Primary})
	b.awaits("the backup that serves", func(r *rpcv1.ReportVolumeReply) bool { return r.Role == rpcv1.ReportVolumeReply_PRIMARY })
	f(b, `volume_view{role="primary"}`, 3)
	f(b, "failovers_total", before+1)
}

// TestPacedJoin: a copy joins no faster than it was told to. Changes do not wait for that.
func TestPacedJoin(t *testing.T) {
	a, b := startCopy(t, t.TempDir(), "pod-a", nil, ""), startCopy(t, t.TempDir(), "pod-b", nil, "")
	a.obey(view(1, "pod-a"))
	c := fill(t, a.Server)
	write := c.session(c.chunk(), 8)
	must(a.Join(t.Context(), &rpcv1.JoinCopyRequest{View: 1, Copy: b.proc(), Mirror: b.Addresses().Mirror, BytesPerSecond: 1}))
	a.awaits("the first piece", func(*rpcv1.ReportVolumeReply) bool { return a.volume.copied.Load() > 0 })
	for range 100 {
		if err := write(verbs.Write); err != nil {
			t.Fatalf("a change beside a copy that joins slowly: %v", err)
		}
	}
	if copied, r := a.volume.copied.Load(), a.report(); copied > region.PieceBytes || r.InSync {
		t.Errorf("%d bytes were copied, in sync: %v; one piece is enough for some hours", copied, r.InSync)
	}
}
