package memserver

import (
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/tcp"
)

// TestFabricBudget: the operator gives a memory server's pod room for the buffers of as many
// connections as it admits.
func TestFabricBudget(t *testing.T) {
	if budget := tcp.Budget(verbs.DefaultMaxConns); budget > config.MemoryServerFabric {
		t.Errorf("connections take up to %d bytes, the operator counts on %d", budget, config.MemoryServerFabric)
	}
}

// TestControlBudget: it gives room for all replies that nobody reads and for all requests that
// nobody ends.
func TestControlBudget(t *testing.T) {
	if budget := maxOwed + maxOwedAll + maxRequestsOper + maxRequestsAll; budget > config.MemoryServerControl {
		t.Errorf("calls take up to %d bytes, the operator counts on %d", budget, config.MemoryServerControl)
	}
}
