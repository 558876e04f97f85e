package local

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
)

// TestLocalKeepsGroups: of three servers the first two meet at UUUUUUUU. A transaction on keys at
// both sides of that is refused, unless these keys are one group.
func TestLocalKeepsGroups(t *testing.T) {
	for _, prefix := range []string{"", "U"} {
		c := small("shm")
		c.Design, c.Routing, c.ComputeServers, c.AtomicPrefix = "dex", config.RoutingOwner, 3, prefix
		ctx := context.Background()
		for i, r := range serve(t, c, "") {
			_, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, "UA", i, 0)
				p.Set(ctx, "UZ", i, 0)
				return nil
			})
			switch {
			case prefix != "" && err != nil:
				t.Fatalf("server %d: %v", i+1, err)
			case prefix == "" && (err == nil || !strings.HasPrefix(err.Error(), "EXECABORT")):
				t.Fatalf("server %d: a group of two servers gave %v", i+1, err)
			}
			if got := r.MGet(ctx, "UA", "UZ").Val(); prefix == "" && got[0] != nil || prefix != "" && (got[0] != got[1] || got[0] == nil) {
				t.Errorf("server %d: the keys have %v", i+1, got)
			}
		}
	}
}
