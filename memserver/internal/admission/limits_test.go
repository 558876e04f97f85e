package admission

import (
	"testing"

	"github.com/dmindex/dmindex/api/config"
)

// TestControlBudget: it gives room for all replies that nobody reads and for all requests that
// nobody ends.
func TestControlBudget(t *testing.T) {
	if budget := maxOwed + maxOwedAll + maxRequestsOper + maxRequestsAll; budget > config.MemoryServerControl {
		t.Errorf("calls take up to %d bytes, the operator counts on %d", budget, config.MemoryServerControl)
	}
}
