//env:real an HTTP server

package computeserver

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"time"

	"github.com/dmindex/dmindex/pkg/profile"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/encoding/protojson"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
	"github.com/dmindex/dmindex/pkg/keyrange"
)

// maxMetrics is how many connections the port of metrics and probes has: anybody who reaches it may
// open them. The oldest ends for a new one.
const maxMetrics = 64

// newHTTP serves the page at /, /metrics, /describe (rpc.Compute's Describe as JSON, without keys),
// /healthz and /readyz; and profiles.
func newHTTP(c *engine.Engine, m *metrics, page http.Handler, describe func() *rpcv1.DescribeComputeReply, hider func() keyrange.Hider, profiles bool) *http.Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /describe", func(w http.ResponseWriter, _ *http.Request) {
		text, err := protojson.Marshal(withoutKeys(describe(), hider()))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // who asked may be gone
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok") // who asked may be gone
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := c.Ready(); err != nil {
			http.Error(w, hider().Text(err.Error()), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok") // who asked may be gone
	})
	if profiles {
		mux.Handle(profile.Path, profile.Handler())
	}
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// newHider hides keys by the salt that is read, and where there is none by one of its own, so that
// nobody can recognize them.
func newHider(read func() []byte) func() keyrange.Hider {
	var own [32]byte
	_, _ = rand.Read(own[:]) // never fails
	return func() keyrange.Hider {
		if read != nil {
			if salt := read(); len(salt) > 0 {
				return keyrange.Hider{Salt: salt}
			}
		}
		return keyrange.Hider{Salt: own[:]}
	}
}
