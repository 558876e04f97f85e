package clients

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// eachPair runs f against two compute servers of each index: one to listen at, one to publish at.
func eachPair(t *testing.T, f func(t *testing.T, ctx context.Context, listen, publish string)) {
	eachIndex(t, func(t *testing.T, ctx context.Context, addresses []string, _ string) {
		f(t, ctx, addresses[0], addresses[len(addresses)-1])
	})
}

// fromScript publishes ARGV[2] on ARGV[1].
const fromScript = `return redis.call("PUBLISH", ARGV[1], ARGV[2])`

// TestGoRedisMessages is go-redis' subscriptions, as its documentation makes them.
func TestGoRedisMessages(t *testing.T) {
	for _, protocol := range []int{0, 2} {
		t.Run(fmt.Sprint("protocol ", protocol), func(t *testing.T) {
			eachPair(t, func(t *testing.T, ctx context.Context, listen, publish string) {
				r := redis.NewClient(&redis.Options{Addr: listen, Protocol: protocol})
				defer r.Close()
				other := redis.NewClient(&redis.Options{Addr: publish, Protocol: protocol})
				defer other.Close()
				sub := r.Subscribe(ctx, "gr:news")
				defer sub.Close()
				confirmed, err := sub.Receive(ctx)
				is(t, "Subscribe", &redis.Subscription{Kind: "subscribe", Channel: "gr:news", Count: 1})(confirmed, err)
				done(t, "Publish", other.Publish(ctx, "gr:news", "hello").Err())
				got, err := sub.ReceiveMessage(ctx)
				is(t, "ReceiveMessage", &redis.Message{Channel: "gr:news", Payload: "hello"})(got, err)
				done(t, "PSubscribe", sub.PSubscribe(ctx, "gr:n*"))
				confirmed, err = sub.Receive(ctx)
				is(t, "PSubscribe's confirmation", &redis.Subscription{Kind: "psubscribe", Channel: "gr:n*", Count: 2})(confirmed, err)
				done(t, "Unsubscribe", sub.Unsubscribe(ctx, "gr:news"))
				confirmed, err = sub.Receive(ctx)
				is(t, "Unsubscribe's confirmation", &redis.Subscription{Kind: "unsubscribe", Channel: "gr:news", Count: 1})(confirmed, err)
				done(t, "Ping", sub.Ping(ctx))
				pong, err := sub.Receive(ctx)
				_, isPong := pong.(*redis.Pong) // with another text in each protocol, as of Redis
				is(t, "Pong", true)(isPong, err)
				done(t, "Publish of a script", other.Eval(ctx, fromScript, nil, "gr:new", "from Lua").Err())
				select {
				case got := <-sub.Channel():
					is(t, "Channel", &redis.Message{Channel: "gr:new", Pattern: "gr:n*", Payload: "from Lua"})(got, nil)
				case <-ctx.Done():
					t.Error("Channel: no message came")
				}
				is(t, "PubSubNumPat", int64(1))(other.PubSubNumPat(ctx).Result())
			})
		})
	}
}

// TestRedigoMessages is redigo's PubSubConn.
func TestRedigoMessages(t *testing.T) {
	eachPair(t, func(t *testing.T, _ context.Context, listen, publish string) {
		c, err := redigo.Dial("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		sub := redigo.PubSubConn{Conn: c}
		defer sub.Close()
		other, err := redigo.Dial("tcp", publish)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		next := func() (any, error) {
			got := sub.ReceiveWithTimeout(time.Minute)
			err, _ := got.(error)
			return got, err
		}
		done(t, "Subscribe", sub.Subscribe("rg:news"))
		is(t, "Subscription", any(redigo.Subscription{Kind: "subscribe", Channel: "rg:news", Count: 1}))(next())
		_, err = other.Do("PUBLISH", "rg:news", "hello")
		done(t, "PUBLISH", err)
		is(t, "Message", any(redigo.Message{Channel: "rg:news", Data: []byte("hello")}))(next())
		done(t, "PSubscribe", sub.PSubscribe("rg:n*"))
		is(t, "Subscription", any(redigo.Subscription{Kind: "psubscribe", Channel: "rg:n*", Count: 2}))(next())
		_, err = other.Do("EVAL", fromScript, 0, "rg:new", "from Lua")
		done(t, "EVAL", err)
		is(t, "Message by a pattern", any(redigo.Message{Channel: "rg:new", Pattern: "rg:n*", Data: []byte("from Lua")}))(next())
		done(t, "Ping", sub.Ping("x"))
		is(t, "Pong", any(redigo.Pong{Data: "x"}))(next())
	})
}

// TestRueidisMessages is rueidis' Receive, which ends with the subscription.
func TestRueidisMessages(t *testing.T) {
	eachPair(t, func(t *testing.T, ctx context.Context, listen, publish string) {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{listen}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{publish}})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		begun := make(chan struct{})
		confirmed := func(s rueidis.PubSubSubscription) {
			if s.Kind == "subscribe" {
				close(begun)
			}
		}
		var publisher sync.WaitGroup
		defer publisher.Wait()
		publisher.Go(func() {
			select {
			case <-begun:
			case <-ctx.Done():
			}
			for _, text := range []string{"hello", "again"} {
				done(t, "PUBLISH", other.Do(ctx, other.B().Publish().Channel("ru:news").Message(text).Build()).Error())
			}
		})
		var heard []string
		err = c.Receive(rueidis.WithOnSubscriptionHook(ctx, confirmed), c.B().Subscribe().Channel("ru:news").Build(), func(m rueidis.PubSubMessage) {
			if heard = append(heard, m.Channel+" "+m.Message); len(heard) == 2 {
				go c.Do(ctx, c.B().Unsubscribe().Channel("ru:news").Build())
			}
		})
		is(t, "Receive", []string{"ru:news hello", "ru:news again"})(heard, err)
	})
}
