package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/dmindex/dmindex/pkg/accept"
	"github.com/dmindex/dmindex/pkg/profile"
)

// The operator's ports let everybody in who reaches them. The manager's own servers bound neither
// connections nor, for longer than half a minute, a request that does not end. So these two have
// the bounds of the ports of metrics and probes of memory and compute servers.

// maxPort is how many connections a port has. A new one takes the place of another one, so probes
// and Prometheus are answered, whoever holds connections open.
const maxPort = 64

// shutDown is how long a port waits for answers under way when the operator ends.
var shutDown = 5 * time.Second

// openPorts listens on the ports. The operator is ready once ready says so.
func openPorts(o *RunOptions, registry prometheus.Gatherer, ready healthz.Checker) (opened ports, err error) {
	for _, p := range []struct {
		name, address string
		handler       http.Handler
	}{
		{"metrics", o.MetricsAddr, metricsHandler(registry, o.Pprof)},
		{"health", o.HealthAddr, healthHandler(ready)},
	} {
		if p.address == "0" || p.address == "" {
			continue
		}
		l, err := net.Listen("tcp", p.address)
		if err != nil {
			err = fmt.Errorf("serve %s: %w", p.name, err)
			for _, before := range opened {
				err = errors.Join(err, before.Listener.Close())
			}
			return nil, err
		}
		opened = append(opened, portServer(p.name, l, p.handler))
	}
	return opened, nil
}

// ports are served by the process, not by its manager: there is none before the API server answers,
// and the kubelet would end an operator that only waits for it.
type ports []*manager.Server

// serve answers until ctx is done or stop is called, which waits for answers under way.
func (p ports) serve(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var served sync.WaitGroup
	for _, s := range p {
		served.Go(func() {
			if err := s.Start(ctx); err != nil {
				ctrl.Log.WithName("operator").Error(err, "a port is not served any more", "port", s.Name)
			}
		})
	}
	return func() {
		cancel()
		served.Wait()
	}
}

// portServer serves one port.
func portServer(name string, l net.Listener, h http.Handler) *manager.Server {
	return &manager.Server{
		Name: name, Listener: accept.AtMost(accept.Patiently(l, nil), maxPort), ShutdownTimeout: &shutDown,
		Server: &http.Server{
			Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		},
	}
}

func metricsHandler(registry prometheus.Gatherer, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	}))
	if profiles {
		mux.Handle(profile.Path, profile.Handler())
	}
	return mux
}

// healthHandler says that the process answers, and whether it is ready. One without the lead is,
// too.
func healthHandler(ready healthz.Checker) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping}, "/readyz": {"ping": healthz.Ping, "rights": ready},
	} {
		h := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, h)
		mux.Handle(path+"/", h)
	}
	return mux
}
