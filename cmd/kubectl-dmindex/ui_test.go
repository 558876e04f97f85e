package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestUI asks as a browser does: / leads to a server that answers, and nothing is passed on but the
// pages of the index's own pods, to whoever asks by a loopback address.
func TestUI(t *testing.T) {
	pods, hangs := []string{"demo-compute-0", "demo-compute-1"}, false
	u := &ui{
		address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080},
		pods:    func(context.Context) ([]string, error) { return pods, nil },
		get: func(ctx context.Context, pod, path string) ([]byte, error) {
			if hangs && pod == "demo-compute-0" {
				<-ctx.Done()
			}
			if ctx.Err() != nil || pod == "demo-compute-0" {
				return nil, errors.New("dial tcp: timed out")
			}
			return []byte(pod + " says " + path), nil
		},
	}
	ask := func(method, host, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, path, nil)
		r.Host = host
		u.ServeHTTP(w, r)
		return w
	}
	for _, c := range []struct {
		method, host, path string
		code               int
		says               string
	}{
		{"GET", "127.0.0.1:8080", "/demo-compute-1/", http.StatusOK, "demo-compute-1 says "},
		{"GET", "localhost:8080", "/demo-compute-1/metrics", http.StatusOK, "demo-compute-1 says metrics"},
		{"GET", "127.0.0.1:8080", "/demo-compute-0/", http.StatusBadGateway, "timed out"},
		{"GET", "127.0.0.1:8080", "/demo-compute-1/debug/pprof/heap", http.StatusNotFound, "demo-compute-0, demo-compute-1"},
		{"GET", "127.0.0.1:8080", "/other-compute-1/", http.StatusNotFound, "no such page"},
		{"GET", "127.0.0.1:8080", "/demo-compute-1/../x/", http.StatusNotFound, "no such page"},
		{"GET", "evil.example:8080", "/demo-compute-1/", http.StatusMisdirectedRequest, "ask for http://127.0.0.1:8080/"},
		{"GET", "127.0.0.1:9999", "/demo-compute-1/", http.StatusMisdirectedRequest, "ask for"},
		{"GET", "", "/demo-compute-1/", http.StatusMisdirectedRequest, "ask for"},
		{"POST", "127.0.0.1:8080", "/demo-compute-1/", http.StatusMethodNotAllowed, "GET"},
	} {
		if w := ask(c.method, c.host, c.path); w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s at %q: %d %s", c.method, c.path, c.host, w.Code, w.Body)
		}
	}
	if w := ask("GET", "127.0.0.1:8080", "/"); w.Code != http.StatusFound || w.Header().Get("Location") != "/demo-compute-1/" {
		t.Errorf("/: %d to %s", w.Code, w.Header().Get("Location"))
	}
	hangs = true
	if w := ask("GET", "127.0.0.1:8080", "/"); w.Code != http.StatusFound || w.Header().Get("Location") != "/demo-compute-1/" {
		t.Errorf("/ while the first pod hangs: %d to %s", w.Code, w.Header().Get("Location"))
	}
	hangs, pods = false, pods[:1]
	if w := ask("GET", "127.0.0.1:8080", "/"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "timed out") {
		t.Errorf("no server answers: %d %s", w.Code, w.Body)
	}
	pods = nil
	if w := ask("GET", "127.0.0.1:8080", "/"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "no compute server yet") {
		t.Errorf("there is no server: %d %s", w.Code, w.Body)
	}
}
