package resp

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestDividedPipelines: commands of a pipeline whose changes are divided keep their order for each
// key, also if the buffers have no room for all of them, or there are more than travel together.
func TestDividedPipelines(t *testing.T) {
	for _, share := range []int64{64 << 10, 192 << 20} { // of the user
		buffers := (share*4 + 2) / 3
		for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
			c := newCluster(t, routing, func(cfg *limits) { cfg.MaxBuffers, cfg.DivideAlways = buffers, true }, 1)
			c.split([]uint32{1})
			r := c.raw(1)
			for _, pairs := range []int{20, 30, 2000} {
				var send, want strings.Builder
				for i := range pairs {
					key := fmt.Sprint(i % 3)
					send.WriteString(computeservertest.Command("SET", key, fmt.Sprint(i)) + computeservertest.Command("GET", key))
					fmt.Fprintf(&want, "+OK\r\n$%d\r\n%d\r\n", len(fmt.Sprint(i)), i)
				}
				r.Send(send.String())
				got := make([]byte, want.Len())
				if n, err := io.ReadFull(r.NC, got); err != nil || string(got) != want.String() {
					t.Fatalf("%d bytes of buffers, %s, %d pairs: %v: %q; want %q", buffers, routing, pairs, err, got[:n], want.String())
				}
			}
			if c.servers[1].core.Count.Divided.Load() == 0 {
				t.Error("nothing was divided")
			}
		}
	}
}
