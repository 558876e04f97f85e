package clients

import (
	"context"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// TestRedigo is redigo with a pool, as its documentation makes it.
func TestRedigo(t *testing.T) {
	each(t, func(t *testing.T, ctx context.Context, address string) {
		p := &redis.Pool{MaxIdle: 2, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", address) }}
		defer p.Close()
		c := p.Get()
		is(t, "SET", "OK")(c.Do("SET", "rg:a", "1"))
		is(t, "GET", "1")(redis.String(c.Do("GET", "rg:a")))
		is(t, "SETEX", "OK")(c.Do("SETEX", "rg:a", 10, "1"))
		done(t, "Send", c.Send("SET", "rg:b", "1"))
		done(t, "Send", c.Send("GET", "rg:b"))
		done(t, "Flush", c.Flush())
		is(t, "Receive", "OK")(c.Receive())
		is(t, "Receive", "1")(redis.String(c.Receive()))
		done(t, "Send MULTI", c.Send("MULTI"))
		done(t, "Send", c.Send("INCR", "rg:b"))
		is(t, "EXEC", []int{2})(redis.Ints(c.Do("EXEC")))
		values, err := redis.Values(c.Do("SCAN", 0, "MATCH", "rg:*", "COUNT", 1000))
		is(t, "SCAN", 2)(len(values), err)
		is(t, "HSET", int64(2))(c.Do("HSET", redis.Args{}.Add("rg:h").AddFlat(map[string]int{"a": 1, "b": 2})...))
		is(t, "HGETALL", map[string]int{"a": 1, "b": 2})(redis.IntMap(c.Do("HGETALL", "rg:h")))
		is(t, "Script", 3)(redis.Int(redis.NewScript(1, `return redis.call("INCR", KEYS[1])`).Do(c, "rg:b")))
		// A connection that goes back to the pool in a transaction is reset.
		done(t, "Send MULTI", c.Send("MULTI"))
		done(t, "Close", c.Close())
		again := p.Get()
		defer again.Close()
		is(t, "DEL", int64(3))(again.Do("DEL", "rg:a", "rg:b", "rg:h"))
	})
}
