package clients

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestGoRedis is go-redis, in the protocol that it takes by itself and in RESP2.
func TestGoRedis(t *testing.T) {
	for _, protocol := range []int{0, 2} {
		t.Run(fmt.Sprint("protocol ", protocol), func(t *testing.T) {
			each(t, func(t *testing.T, ctx context.Context, address string) {
				r := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol})
				defer r.Close()
				goRedisStrings(t, ctx, r)
				goRedisTypes(t, ctx, r)
				goRedisSteps(t, ctx, r)
				goRedisServer(t, ctx, r)
			})
		})
	}
}

func goRedisStrings(t *testing.T, ctx context.Context, r *redis.Client) {
	is(t, "Ping", "PONG")(r.Ping(ctx).Result())
	is(t, "Set", "OK")(r.Set(ctx, "gr:a", "1", 0).Result())
	is(t, "Get", "1")(r.Get(ctx, "gr:a").Result())
	if err := r.Get(ctx, "gr:nope").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("Get of a missing key: %v", err)
	}
	is(t, "Set with expiry", "OK")(r.Set(ctx, "gr:t", "1", time.Minute).Result())
	is(t, "TTL", time.Minute)(r.TTL(ctx, "gr:t").Result())
	is(t, "SetNX", true)(r.SetNX(ctx, "gr:nx", "1", 0).Result())
	is(t, "SetNX with expiry", true)(r.SetNX(ctx, "gr:nx2", "1", time.Minute).Result())
	is(t, "SetNX of a key that is there", false)(r.SetNX(ctx, "gr:nx2", "2", time.Minute).Result())
	is(t, "Incr", int64(2))(r.Incr(ctx, "gr:a").Result())
	is(t, "IncrBy", int64(12))(r.IncrBy(ctx, "gr:a", 10).Result())
	is(t, "MSet", "OK")(r.MSet(ctx, "gr:x", 1, "gr:y", 2).Result())
	is(t, "MGet", []any{"1", "2", nil})(r.MGet(ctx, "gr:x", "gr:y", "gr:nope").Result())
	is(t, "Expire", true)(r.Expire(ctx, "gr:x", time.Minute).Result())
	is(t, "Persist", true)(r.Persist(ctx, "gr:x").Result())
	is(t, "GetDel", "1")(r.GetDel(ctx, "gr:x").Result())
	is(t, "Exists", int64(1))(r.Exists(ctx, "gr:x", "gr:y").Result())
	is(t, "Del", int64(4))(r.Del(ctx, "gr:a", "gr:y", "gr:nx", "gr:nx2").Result())
}

func goRedisTypes(t *testing.T, ctx context.Context, r *redis.Client) {
	is(t, "HSet", int64(2))(r.HSet(ctx, "gr:h", "a", 1, "b", 2).Result())
	is(t, "HGetAll", map[string]string{"a": "1", "b": "2"})(r.HGetAll(ctx, "gr:h").Result())
	var fields struct {
		A int `redis:"a"`
	}
	done(t, "HGetAll.Scan", r.HGetAll(ctx, "gr:h").Scan(&fields))
	is(t, "HIncrBy", int64(3))(r.HIncrBy(ctx, "gr:h", "b", 1).Result())
	is(t, "ZAdd", int64(3))(r.ZAdd(ctx, "gr:z", redis.Z{Score: 3, Member: "c"}, redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 2, Member: "b"}).Result())
	is(t, "ZRangeWithScores", []redis.Z{{Score: 1, Member: "a"}, {Score: 2, Member: "b"}})(r.ZRangeWithScores(ctx, "gr:z", 0, 1).Result())
	is(t, "ZRevRange", []string{"c"})(r.ZRevRange(ctx, "gr:z", 0, 0).Result())
	is(t, "ZRangeByScore", []string{"b", "c"})(r.ZRangeByScore(ctx, "gr:z", &redis.ZRangeBy{Min: "(1", Max: "+inf"}).Result())
	is(t, "ZRank", int64(1))(r.ZRank(ctx, "gr:z", "b").Result())
	is(t, "ZIncrBy", 11.0)(r.ZIncrBy(ctx, "gr:z", 10, "a").Result())
	is(t, "Type", "zset")(r.Type(ctx, "gr:z").Result())
	is(t, "Del of a sorted set", int64(2))(r.Del(ctx, "gr:h", "gr:z").Result())
}

// goRedisSteps are pipelines, transactions and scripts.
func goRedisSteps(t *testing.T, ctx context.Context, r *redis.Client) {
	both := func(p redis.Pipeliner) error {
		p.Set(ctx, "gr:p", "1", 0)
		p.Get(ctx, "gr:p")
		return nil
	}
	second := func(c []redis.Cmder, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		return c[1].(*redis.StringCmd).Val(), nil
	}
	is(t, "Pipelined", "1")(second(r.Pipelined(ctx, both)))
	is(t, "TxPipelined", "1")(second(r.TxPipelined(ctx, both)))
	var all sync.WaitGroup
	for range 4 { // as the documentation's example of an increment that several programs do
		all.Go(func() {
			for {
				err := r.Watch(ctx, func(tx *redis.Tx) error {
					n, err := tx.Get(ctx, "gr:p").Int()
					if err != nil {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, "gr:p", n+1, 0); return nil })
					return err
				}, "gr:p")
				if !errors.Is(err, redis.TxFailedErr) {
					done(t, "Watch", err)
					return
				}
			}
		})
	}
	all.Wait()
	is(t, "Get of what Watch added", "5")(r.Get(ctx, "gr:p").Result())
	incr := redis.NewScript(`local n = redis.call("GET", KEYS[1]) or 0; n = n + ARGV[1]; redis.call("SET", KEYS[1], n); return n`)
	is(t, "Script.Run", int64(12))(incr.Run(ctx, r, []string{"gr:p"}, 7).Result())
	is(t, "Script.Run again", int64(19))(incr.Run(ctx, r, []string{"gr:p"}, 7).Result())
	done(t, "Del", r.Del(ctx, "gr:p").Err())
}

func goRedisServer(t *testing.T, ctx context.Context, r *redis.Client) {
	for i := range 100 {
		if err := r.Set(ctx, fmt.Sprintf("gr:scan:%02d", i), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	// The iterator asks another connection of the pool for each step, beside requests of others.
	var others sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.Get(ctx, "gr:scan:01")
				}
			}
		})
	}
	var keys []string
	all := r.Scan(ctx, 0, "gr:scan:*", 0).Iterator()
	for all.Next(ctx) {
		keys = append(keys, all.Val())
	}
	close(stop)
	others.Wait()
	slices.Sort(keys)
	is(t, "Scan.Iterator", 100)(len(slices.Compact(keys)), all.Err())
	found, err := r.Keys(ctx, "gr:scan:*").Result()
	is(t, "Keys", 100)(len(found), err)
	is(t, "Del of many keys", int64(100))(r.Del(ctx, keys...).Result())
	done(t, "Info", r.InfoMap(ctx).Err())
	done(t, "Command", r.Command(ctx).Err())
	done(t, "ClientInfo", r.ClientInfo(ctx).Err())
	done(t, "ConfigGet", r.ConfigGet(ctx, "*").Err())
	done(t, "DBSize", r.DBSize(ctx).Err())
	address := r.Options().Addr
	other := redis.NewClient(&redis.Options{Addr: address, DB: 1})
	defer other.Close()
	fails(t, "another database", "an index is one database", other.Set(ctx, "gr:a", "1", 0).Err())
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}, MaxRedirects: 1})
	defer cluster.Close()
	fails(t, "ClusterClient", "unknown command 'cluster'", cluster.Ping(ctx).Err())
}
