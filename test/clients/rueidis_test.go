package clients

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

// TestRueidis is rueidis, whose client caches by itself: what it caches is the server's present
// value whatever others store.
func TestRueidis(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, address string) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		done(t, "SET", c.Do(ctx, c.B().Set().Key("ru:a").Value("1").Build()).Error())
		is(t, "GET", "1")(c.Do(ctx, c.B().Get().Key("ru:a").Build()).ToString())
		done(t, "SET EX", c.Do(ctx, c.B().Set().Key("ru:e").Value("1").ExSeconds(60).Build()).Error())
		is(t, "DoCache", "1")(c.DoCache(ctx, c.B().Get().Key("ru:a").Cache(), time.Minute).ToString())
		other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		done(t, "SET by another client", other.Do(ctx, other.B().Set().Key("ru:a").Value("2").Build()).Error())
		is(t, "DoCache after it", "2")(c.DoCache(ctx, c.B().Get().Key("ru:a").Cache(), time.Minute).ToString())
		for _, reply := range c.DoMulti(ctx, c.B().Set().Key("ru:b").Value("1").Build(), c.B().Get().Key("ru:b").Build()) {
			done(t, "DoMulti", reply.Error())
		}
		values, err := rueidis.MGet(c, ctx, []string{"ru:a", "ru:b"})
		is(t, "MGet", 2)(len(values), err)
		values, err = rueidis.MGetCache(c, ctx, time.Minute, []string{"ru:a", "ru:b"})
		is(t, "MGetCache", 2)(len(values), err)
		done(t, "Dedicated", c.Dedicated(func(d rueidis.DedicatedClient) error {
			for _, reply := range d.DoMulti(ctx, d.B().Watch().Key("ru:b").Build(), d.B().Multi().Build(), d.B().Set().Key("ru:b").Value("3").Build(), d.B().Exec().Build()) {
				if err := reply.Error(); err != nil {
					return err
				}
			}
			return nil
		}))
		double := rueidis.NewLuaScript(`return redis.call("GET", KEYS[1]) * ARGV[1]`)
		is(t, "LuaScript", int64(6))(double.Exec(ctx, c, []string{"ru:b"}, []string{"2"}).AsInt64())
		compat := rueidiscompat.NewAdapter(c)
		is(t, "Adapter.ZAdd", int64(1))(compat.ZAdd(ctx, "ru:z", rueidiscompat.Z{Score: 1, Member: "a"}).Result())
		keys, _, err := compat.Scan(ctx, 0, "ru:*", 1000).Result()
		is(t, "Adapter.Scan", 4)(len(keys), err)
		is(t, "DEL", int64(4))(c.Do(ctx, c.B().Del().Key("ru:a", "ru:b", "ru:e", "ru:z").Build()).AsInt64())
	})
}
