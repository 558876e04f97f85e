package local

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestLocalExpires: pairs of each design expire and are hashes, the longest that an index may have
// and those of 8 bytes each.
func TestLocalExpires(t *testing.T) {
	for _, design := range index.Names() {
		for _, longest := range []bool{true, false} {
			c := small("shm")
			c.Design, c.Expires, c.MaxKeyBytes, c.MaxValueBytes = design, true, 1024, 4096
			key, value := strings.Repeat("k", 1024), strings.Repeat("v", 4096)
			if !longest {
				c.KeyType, c.MaxKeyBytes, c.MaxValueBytes = config.KeyUint64, 8, 8
				key, value = key[:8], value[:8]
			}
			t.Run(design+"/"+c.KeyType, func(t *testing.T) {
				clients, ctx := serve(t, c, ""), context.Background()
				one, two := clients[0], clients[1]
				if err := one.Set(ctx, key, value, time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
				got, err := two.Get(ctx, key).Result()
				left, err2 := two.PTTL(ctx, key).Result()
				// Another server may read the deadline, by its own clock.
				if err != nil || err2 != nil || got != value || left <= 59*time.Minute || left > time.Hour+time.Second {
					t.Errorf("%d bytes for %v, %v, %v", len(got), left, err, err2)
				}
				if err := two.Set(ctx, key, value, redis.KeepTTL).Err(); err != nil {
					t.Error(err)
				}
				if was, err := one.GetEx(ctx, key, -1).Result(); err != nil || was != value {
					t.Errorf("%d bytes, %v", len(was), err)
				}
				for _, at := range []int64{33_000_000_000_000, 1} {
					if done, err := one.PExpireAt(ctx, key, time.UnixMilli(at)).Result(); err != nil || !done {
						t.Errorf("expire at %d: %v, %v", at, done, err)
					}
				}
				if n, err := two.Exists(ctx, key).Result(); err != nil || n != 0 {
					t.Errorf("%d pairs are left, %v", n, err)
				}
				field := value[:5] // 8 bytes with its name and both lengths
				if longest {
					field = value[:4096-4]
				}
				if n, err := one.HSet(ctx, key, "f", field).Result(); n != 1 || err != nil {
					t.Errorf("a field of %d bytes: %d, %v", len(field), n, err)
				}
				if err := two.HSet(ctx, key, "g", "").Err(); err == nil || !strings.Contains(err.Error(), "the hash would be ") {
					t.Errorf("a field more: %v", err)
				}
				if got, err := two.HGetAll(ctx, key).Result(); err != nil || len(got) != 1 || got["f"] != field {
					t.Errorf("%d fields, the first of %d bytes, %v", len(got), len(got["f"]), err)
				}
				if err := one.Get(ctx, key).Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE ") {
					t.Errorf("GET of a hash: %v", err)
				}
				if n, err := one.HDel(ctx, key, "f").Result(); n != 1 || err != nil {
					t.Errorf("HDEL: %d, %v", n, err)
				}
				if n, err := two.Exists(ctx, key).Result(); err != nil || n != 0 {
					t.Errorf("%d hashes are left, %v", n, err)
				}
			})
		}
	}
}
