package computeserver

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
)

// TestConnectionsOfMetrics: connections that say nothing are bounded, and keep no probe out.
func TestConnectionsOfMetrics(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	c.split([]uint32{1})
	var first net.Conn
	for range maxMetrics + 1 {
		conn, err := net.Dial("tcp", c.servers[1].Addresses().Metrics)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if first == nil {
			first = conn
		}
	}
	if code, body := c.servers[1].get(t, "/healthz"); code != 200 {
		t.Errorf("/healthz: %d %s", code, body)
	}
	first.SetReadDeadline(time.Now().Add(time.Second)) // before the server tires of it
	if _, err := first.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest connection goes on")
	}
}
