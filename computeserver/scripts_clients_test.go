package computeserver

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
)

// TestScriptsOfClients: what programs do by scripts works from a client library at its defaults,
// which sends EVALSHA, and EVAL where the server does not have the script: a lock, and a limiter.
func TestScriptsOfClients(t *testing.T) {
	var off [3]atomic.Int64
	c := newCluster(t, config.RoutingOwner, expires(&off), 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	release := redis.NewScript("if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0")
	limit := redis.NewScript(`
		local used = redis.call('INCR', KEYS[1])
		if used == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
		local now = redis.call('TIME')
		if used > tonumber(ARGV[1]) then return {0, redis.call('PTTL', KEYS[1]), now[1]} end
		return {1, tonumber(ARGV[1]) - used, now[1]}`)
	for id := uint32(1); id <= 2; id++ {
		r := c.redis(id)
		ctx := t.Context()
		for _, key := range []string{"a:lock", "x:lock"} {
			if err := r.SetArgs(ctx, key, "mine", redis.SetArgs{Mode: "NX", TTL: time.Hour}).Err(); err != nil {
				t.Fatal(err)
			}
			for _, x := range []struct {
				token string
				want  int
			}{{"other", 0}, {"mine", 1}, {"mine", 0}} {
				if n, err := release.Run(ctx, r, []string{key}, x.token).Int(); n != x.want || err != nil {
					t.Errorf("server %d, %s: %d keys were released by %q, want %d: %v", id, key, n, x.token, x.want, err)
				}
			}
		}
		for _, key := range []string{"a:limit", "x:limit"} {
			for n := range 8 {
				got, err := limit.Run(ctx, r, []string{key}, 5, 3600_000).Slice()
				if err != nil || len(got) != 3 || got[0] != min(int64(1), int64(max(5-n, 0))) {
					t.Fatalf("server %d, %s: request %d: %v, %v", id, key, n, got, err)
				}
			}
			if err := r.Del(ctx, key).Err(); err != nil {
				t.Fatal(err)
			}
		}
		got, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "x:1", "7", 0)
			p.Eval(ctx, "return redis.call('INCRBY', KEYS[1], ARGV[1])", []string{"x:1"}, 3)
			p.Get(ctx, "x:1")
			return nil
		})
		if err != nil || got[1].(*redis.Cmd).Val() != int64(10) || got[2].(*redis.StringCmd).Val() != "10" {
			t.Errorf("server %d: %v, %v", id, got, err)
		}
	}
}
