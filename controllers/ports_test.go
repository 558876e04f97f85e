package controllers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// TestPorts: the operator's ports answer, whoever holds connections to them open, and end those
// that send much and say nothing.
func TestPorts(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "dmindex_test", Help: "For the test."}))
	for _, port := range []struct {
		handler http.Handler
		answers map[string]string
	}{
		{metricsHandler(registry, false), map[string]string{"/metrics": "dmindex_test 0", "/debug/pprof/": "404", "/": "404"}},
		{metricsHandler(registry, true), map[string]string{"/debug/pprof/": "goroutine"}},
		{healthHandler(healthz.Ping), map[string]string{"/healthz": "ok", "/readyz": "ok", "/healthz/ping": "ok", "/metrics": "404"}},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := portServer("test", l, port.handler)
		ended := make(chan error, 1)
		go func() { ended <- s.Start(t.Context()) }()
		var silent []net.Conn
		for range maxPort + 1 {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			silent = append(silent, c)
		}
		for path, want := range port.answers {
			if got := askPort(t, l.Addr().String(), "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.Contains(got, want) {
				t.Errorf("%s answers %.200q, want %q", path, got, want)
			}
		}
		much := "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 32<<10) + "\r\n\r\n"
		if got := askPort(t, l.Addr().String(), much); !strings.Contains(got, "431") {
			t.Errorf("much is answered by %.100q", got)
		}
		for n, c := range silent {
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
			if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
				t.Errorf("connection %d, which says nothing, stays: %v", n, err)
				break
			}
		}
	}
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// askPort returns all that is answered to a request.
func askPort(t *testing.T, address, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		t.Logf("%v", err) // it did not want to read all
	}
	all, _ := io.ReadAll(bufio.NewReader(c))
	return string(all)
}

// TestPortsOfManager: a manager serves the ports as soon as it starts, without the lead and without
// an API server that answers.
func TestPortsOfManager(t *testing.T) {
	var o RunOptions
	for _, address := range []*string{&o.MetricsAddr, &o.HealthAddr} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*address = l.Addr().String()
		l.Close()
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:1"}, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := servePorts(mgr, &o, prometheus.NewRegistry(), healthz.Ping); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- mgr.Start(ctx) }()
	ask := "GET /%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for address, path := range map[string]string{o.HealthAddr: "readyz", o.MetricsAddr: "metrics"} {
		if got := askPort(t, address, fmt.Sprintf(ask, path)); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("/%s answers %.100q", path, got)
		}
	}
	if err := servePorts(mgr, &o, prometheus.NewRegistry(), healthz.Ping); err == nil {
		t.Error("a port is served twice")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
