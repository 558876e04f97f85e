package memserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

func get(t testing.TB, address, path string) (int, string) {
	t.Helper()
	r := must(http.Get("http://" + address + path))
	defer r.Body.Close()
	return r.StatusCode, string(must(io.ReadAll(r.Body)))
}

func TestMetrics(t *testing.T) {
	s, _ := start(t, localConfig(t))
	c := client(t, s.Addresses().Control, "uid/2", "tcp", nil)
	must(c.Admit(2, 8, limit))
	id := must(c.Register(limit))
	grant := must(c.Connect(7, id, limit))
	open(t, grant)
	// one that is used, and one of nobody
	for _, token := range []verbs.Token{grant.Target.Token, {}} {
		target := grant.Target
		target.Token = token
		if _, err := tcp.NewDevice().Connect(target, limit); !errors.Is(err, verbs.ErrRefused) {
			t.Errorf("a connection with token %.4x: %v", token, err)
		}
	}
	must(c.AllocateChunk(7, id, 1024, false, limit))
	must(c.AllocateChunk(7, id, 1024, false, limit))
	if _, err := c.AllocateChunk(7, id, 1024, false, limit); !errors.Is(err, pool.ErrPoolFull) {
		t.Error(err)
	}
	code, text := get(t, s.Addresses().Metrics, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	for _, want := range []string{
		`dmindex_memserver_region_bytes{region="data"} 1.572864e+07`,
		`dmindex_memserver_region_bytes{region="locks"} 262144`,
		`dmindex_memserver_chunks{state="total"} 7`,
		`dmindex_memserver_ledger_bytes{state="limit"} 3.2505856e+07`,
		`dmindex_memserver_chunks{state="granted"} 2`,
		`dmindex_memserver_chunks{state="used"} 2`,
		`dmindex_memserver_chunks{state="dirty"} 0`,
		`dmindex_memserver_chunks{state="adoptable"} 0`,
		`dmindex_memserver_locks{state="granted"} 8`,
		`dmindex_memserver_index_chunks_quota{index="uid/2"} 2`,
		`dmindex_memserver_index_chunks_used{index="uid/2"} 2`,
		`dmindex_memserver_index_clients{index="uid/2"} 1`,
		`dmindex_memserver_index_connections{index="uid/2"} 1`,
		`dmindex_memserver_refused_tokens_total 2`,
		`dmindex_memserver_control_calls_total{code="OK",method="AllocateChunk"} 2`,
		`dmindex_memserver_control_calls_total{code="ResourceExhausted",method="AllocateChunk"} 1`,
		fmt.Sprintf(`incarnation="%x",server="7",version="test"`, s.Incarnation()),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics do not say %s", want)
		}
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 404} {
		if code, _ := get(t, s.Addresses().Metrics, path); code != want {
			t.Errorf("%s answers %d", path, code)
		}
	}
}

// TestNotReady: a server that has memory and listens, but does not serve yet, is not ready.
func TestNotReady(t *testing.T) {
	s := must(New(localConfig(t)))
	defer s.Close()
	go s.http.Serve(s.scraped)
	if code, _ := get(t, s.Addresses().Metrics, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("readyz answers %d", code)
	}
	s.http.Close()
}

// TestConnectionsOfMetrics: connections that say nothing are bounded, and keep no probe out.
func TestConnectionsOfMetrics(t *testing.T) {
	s, _ := start(t, localConfig(t))
	var conns []net.Conn
	for range maxMetrics + 1 {
		conns = append(conns, must(net.Dial("tcp", s.Addresses().Metrics)))
		defer conns[len(conns)-1].Close()
	}
	if code, _ := get(t, s.Addresses().Metrics, "/readyz"); code != http.StatusOK {
		t.Errorf("readyz answers %d", code)
	}
	conns[0].SetReadDeadline(time.Now().Add(time.Second)) // before the server tires of it
	if _, err := conns[0].Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest connection goes on")
	}
}

// TestMetricsTLS: the certificate's end is shown.
func TestMetricsTLS(t *testing.T) {
	ca := identitytest.NewCA(t, "ca")
	c := localConfig(t)
	c.Insecure, c.TLSDir = false, ca.Dir(identitytest.Options{})
	s, _ := start(t, c)
	if _, err := admin(t, s.Addresses().Control, nil).Describe(t.Context(), &rpcv1.DescribeMemoryRequest{}); err == nil {
		t.Error("a call without TLS")
	}
	_, text := get(t, s.Addresses().Metrics, "/metrics")
	for _, want := range []string{"dmindex_memserver_tls_reload_failed 0", "dmindex_memserver_tls_not_after_timestamp_seconds 1."} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics do not say %s", want)
		}
	}
}
