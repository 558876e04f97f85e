package resp

import (
	"strings"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/engine"
)

// TestWholly: a group of which a part failed by itself is not answered as if it was done.
func TestWholly(t *testing.T) {
	changes := []*rpcv1.Operation{{Kind: rpcv1.Operation_DELETE, Key: []byte("a")}, {Kind: rpcv1.Operation_STORE, Key: []byte("b")}}
	if err := wholly(changes, []*rpcv1.Outcome{{Code: rpcv1.Outcome_NOT_FOUND}, {}}); err != nil {
		t.Error(err)
	}
	err := wholly(changes, []*rpcv1.Outcome{{}, {Code: rpcv1.Outcome_WRONG_VALUE, Message: "too long"}})
	if engine.CodeOf(err) != rpcv1.Outcome_UNKNOWN || !strings.Contains(err.Error(), `but for the store of "b": too long`) {
		t.Errorf("a part that failed: %v", err)
	}
}
