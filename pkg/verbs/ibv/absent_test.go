//go:build !ibv

package ibv

import (
	"errors"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestBuiltWithout: a program without the tag says what to do.
func TestBuiltWithout(t *testing.T) {
	_, device := NewDevice(Options{})
	_, server := NewServer(Options{}, verbs.ServerOptions{})
	for _, err := range []error{device, server} {
		if !errors.Is(err, ErrNotBuilt) || !strings.Contains(err.Error(), "-tags ibv") || !strings.Contains(err.Error(), "make image-rdma") {
			t.Errorf("%v", err)
		}
	}
}
