//go:build ibv

package ibv

import (
	"os"
	"testing"
)

// TestDeviceThatIsGone: whoever reads the completion events of a device that is gone does not spin.
// Each read fails, and the descriptor is always ready.
func TestDeviceThatIsGone(t *testing.T) {
	ready, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	write.Close()
	raw, err := ready.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	h := &hca{channel: &_Ctype_struct_ibv_comp_channel{fd: -1}, waiters: map[uint64]chan struct{}{}}
	h.dispatch(raw)
}
