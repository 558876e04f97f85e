package backup

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/client"
)

// TestMessage: what everybody may read of an error of the client names the server, and no key.
func TestMessage(t *testing.T) {
	put := &client.Error{Op: "put", Key: []byte("customer-4711"), Range: `["customer-4", "d")`, Server: "server 3, demo-compute-2, 10.0.0.3:7480",
		Message: `range ["customer-4", "d") waits for memory`, Err: client.ErrPoolFull}
	scan := &client.Error{Op: "scan", Range: `["customer-4", end)`, Server: "server 1", Err: client.ErrUnavailable}
	for _, err := range []error{
		put, scan, fmt.Errorf("write a.dump: %w", scan),
		fmt.Errorf("%d pairs were put, then: %w", 7, errors.Join(put, errors.New("the artifact was cut"), fmt.Errorf("besides: %w", scan))),
	} {
		got := Message(err)
		if strings.Contains(got, "customer") || !strings.Contains(got, "at server ") || !strings.Contains(got, client.ErrPoolFull.Error()) && !strings.Contains(got, client.ErrUnavailable.Error()) {
			t.Errorf("%s", got)
		}
	}
	if got := Message(errors.New("no space left on device")); got != "no space left on device" {
		t.Errorf("%q", got)
	}
}
