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
