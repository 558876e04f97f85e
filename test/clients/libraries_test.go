package clients

import (
	"context"
	"testing"
	"time"

	"github.com/go-redis/cache/v9"
	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// eachGoRedis is each with a client of go-redis, which other libraries stand on.
func eachGoRedis(t *testing.T, f func(t *testing.T, ctx context.Context, r *redis.Client)) {
	each(t, func(t *testing.T, ctx context.Context, address string) {
		r := redis.NewClient(&redis.Options{Addr: address})
		defer r.Close()
		f(t, ctx, r)
	})
}

func TestCache(t *testing.T) {
	eachGoRedis(t, func(t *testing.T, ctx context.Context, r *redis.Client) {
		type object struct {
			Text   string
			Number int
		}
		c := cache.New(&cache.Options{Redis: r, LocalCache: cache.NewTinyLFU(1000, time.Minute)})
		done(t, "Set", c.Set(&cache.Item{Ctx: ctx, Key: "ca:a", Value: object{"a", 1}, TTL: time.Hour}))
		var got object
		done(t, "GetSkippingLocalCache", c.GetSkippingLocalCache(ctx, "ca:a", &got))
		is(t, "what was stored", object{"a", 1})(got, nil)
		done(t, "Once", c.Once(&cache.Item{Ctx: ctx, Key: "ca:b", Value: &got, Do: func(*cache.Item) (any, error) { return object{"b", 2}, nil }}))
		is(t, "what was made once", object{"b", 2})(got, nil)
		is(t, "Exists", true)(c.Exists(ctx, "ca:a"), nil)
		done(t, "Delete", c.Delete(ctx, "ca:a"))
		is(t, "Exists after it", false)(c.Exists(ctx, "ca:a"), nil)
		done(t, "Delete", c.Delete(ctx, "ca:b"))
	})
}

func TestRedsync(t *testing.T) {
	eachGoRedis(t, func(t *testing.T, ctx context.Context, r *redis.Client) {
		locks := redsync.New(goredis.NewPool(r))
		m := locks.NewMutex("rs:m")
		done(t, "Lock", m.LockContext(ctx))
		is(t, "Extend", true)(m.ExtendContext(ctx))
		fails(t, "Lock of what is locked", "lock already taken", locks.NewMutex("rs:m", redsync.WithTries(1)).LockContext(ctx))
		is(t, "Unlock", true)(m.UnlockContext(ctx))
		done(t, "TryLock", m.TryLockContext(ctx))
		is(t, "Unlock", true)(m.UnlockContext(ctx))
	})
}

func TestRedisRate(t *testing.T) {
	eachGoRedis(t, func(t *testing.T, ctx context.Context, r *redis.Client) {
		l := redis_rate.NewLimiter(r)
		for i := range 3 {
			res, err := l.Allow(ctx, "project:123", redis_rate.PerHour(2))
			if err != nil {
				t.Fatal(err)
			}
			is(t, "Allow", [2]int{min(1, 2-i), max(0, 1-i)})([2]int{res.Allowed, res.Remaining}, nil)
		}
		done(t, "Reset", l.Reset(ctx, "project:123"))
	})
}

// TestAsynq: its queues are lists and sets, which are not there; the error says so.
func TestAsynq(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, address string) {
		c := asynq.NewClient(asynq.RedisClientOpt{Addr: address})
		defer c.Close()
		_, err := c.EnqueueContext(ctx, asynq.NewTask("email:welcome", []byte("{}")))
		fails(t, "Enqueue", "no sets", err)
	})
}
