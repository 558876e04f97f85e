package controllers

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
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

// TestOpenPorts: the ports are served without a manager, and not twice.
func TestOpenPorts(t *testing.T) {
	o := RunOptions{MetricsAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0"}
	opened, err := openPorts(&o, prometheus.NewRegistry(), healthz.Ping)
	if err != nil || len(opened) != 2 {
		t.Fatal(opened, err)
	}
	stop := opened.serve(t.Context())
	ask := "GET /%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	for n, path := range []string{"metrics", "readyz"} {
		if got := askPort(t, opened[n].Listener.Addr().String(), fmt.Sprintf(ask, path)); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("/%s answers %.100q", path, got)
		}
	}
	taken := RunOptions{MetricsAddr: "127.0.0.1:0", HealthAddr: opened[1].Listener.Addr().String()}
	if _, err := openPorts(&taken, prometheus.NewRegistry(), healthz.Ping); err == nil {
		t.Error("a port is served twice")
	}
	stop()
	if none, err := openPorts(&RunOptions{MetricsAddr: "0"}, nil, nil); err != nil || len(none) != 0 {
		t.Errorf("%v, %v without ports", none, err)
	}
	if again, err := openPorts(&RunOptions{HealthAddr: taken.HealthAddr}, nil, healthz.Ping); err != nil || len(again) != 1 {
		t.Errorf("a port is not free after its end: %v", err)
	} else {
		again.serve(t.Context())()
	}
}
