package deviceplugin

import (
	"fmt"
	"net/http"
	"time"

	"github.com/dmindex/dmindex/pkg/profile"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const namespace = "dmindex_device_plugin_"

// metrics are what the plugin counts. What it has is read at each scrape.
type metrics struct {
	registry      *prometheus.Registry
	allocations   *prometheus.CounterVec
	registrations *prometheus.CounterVec
	settings      *prometheus.CounterVec
	rounds        prometheus.Histogram
}

func newMetrics(version string, now func() view) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, labels)
	}
	m := &metrics{
		registry:      prometheus.NewRegistry(),
		allocations:   counter("allocations_total", "Allocations to containers that the kubelet asked for, by outcome: given, refused.", "resource", "outcome"),
		registrations: counter("registrations_total", "Registrations with the kubelet; each start of it needs another one.", "resource"),
		settings:      counter("settings_reads_total", "Times that changed settings were read, by outcome: used, wrong.", "outcome"),
		rounds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: namespace + "round_seconds", Help: "Time that it took to look at the machine and act on it.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
	}
	m.registry.MustRegister(m.allocations, m.registrations, m.settings, m.rounds, collector{now, version},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+name, help, labels, nil)
}

var (
	descSlots      = describe("slots", "Slots that are advertised, by health.", "resource", "health")
	descRegistered = describe("registered", "1 while the kubelet knows the resource and watches it.", "resource")
	descHealthy    = describe("hca_healthy", "1 while programs can use the HCA. Of all HCAs, also of those that are not advertised.", "device", "pci", "resource")
	descRefused    = describe("hca_refused", "1: the HCA is left to somebody else.", "device", "pci", "owner")
	descWrong      = describe("settings_wrong", "1 while the settings cannot be used and older ones are in force.")
	descLabelled   = describe("labels_failed", "1 while the node's labels could not be set.")
	descProblems   = describe("problems", "HCAs that cannot be read; the log says why.")
	descBuild      = describe("build_info", "1; the label says what is running.", "version")
)

// collector reads the view at each scrape.
type collector struct {
	now     func() view
	version string
}

// Describe implements prometheus.Collector. Which metrics there are depends on the machine, so none
// is promised.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	v := c.now()
	for _, r := range v.resources {
		gauge(descSlots, float64(r.healthy), r.name, "healthy")
		gauge(descSlots, float64(r.slots-r.healthy), r.name, "unhealthy")
		gauge(descRegistered, number(r.registered), r.name)
	}
	for _, h := range v.hcas {
		gauge(descHealthy, number(h.Healthy() == nil), h.Name, h.PCI, v.given[h.Name])
	}
	for _, r := range v.refused {
		gauge(descRefused, 1, r.HCA.Name, r.HCA.PCI, r.Reason)
	}
	gauge(descWrong, number(v.settingsWrong != nil))
	gauge(descLabelled, number(v.labelsWrong != nil))
	gauge(descProblems, float64(v.problems))
	gauge(descBuild, 1, c.version)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// handler serves /metrics, /healthz (the loop goes round) and /readyz (the kubelet has what there
// is to advertise).
func (m *metrics) handler(now func() view, clock func() time.Time, stuck time.Duration, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	answer := func(w http.ResponseWriter, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // who asked may be gone
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		var err error
		if since := clock().Sub(now().at); since > stuck {
			err = fmt.Errorf("the last look at the machine was %v ago", since.Round(time.Second))
		}
		answer(w, err)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, now().ready()) })
	if profiles {
		mux.Handle(profile.Path, profile.Handler())
	}
	return mux
}
