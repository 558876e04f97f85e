package computeserver

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// Answers within MULTI and EXEC where a design does not change several keys in one step.
const (
	notInMulti = "-ERR in an index of this design every server changes every key, so commands on several keys are not done in one step, and nothing was done; send one transaction for each key, or use an index of design dex\r\n"
	queued     = "+QUEUED\r\n"
	execAbort  = "-EXECABORT Transaction discarded because of previous errors.\r\n"
)

// TestMultiOfOneKey: in a design without groups commands on one key are done in one step. One on
// another key is refused when it comes; the dialogue around it is that of Redis about commands that
// cannot be queued.
func TestMultiOfOneKey(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	r := c.raw(1)
	const ok = "+OK\r\n"
	command := func(words string) (all string) {
		for _, one := range strings.Split(words, "; ") {
			all += computeservertest.Command(strings.Fields(one)...)
		}
		return all
	}
	for _, turn := range []struct{ send, want string }{
		{"MULTI; SET a 1; GET b; EXEC", ok + queued + notInMulti + execAbort},
		{"GET a", "$-1\r\n"},
		{"MULTI; MSET a 1 b 2; SET b 1; SET a 1; EXEC", ok + notInMulti + queued + notInMulti + execAbort},
		{"EXEC; DISCARD", "-ERR EXEC without MULTI\r\n-ERR DISCARD without MULTI\r\n"},
		{"MULTI; EXEC", ok + "*0\r\n"},
		{"MULTI; MULTI; WATCH a; EXEC", ok + "-ERR MULTI calls can not be nested\r\n-ERR WATCH inside MULTI is not allowed\r\n*0\r\n"},
		{"MULTI; NOPE; SET a 1; EXEC", ok + "-ERR unknown command 'NOPE', with args beginning with: \r\n" + queued + execAbort},
		{"MULTI; SET a; EXEC", ok + "-ERR wrong number of arguments for 'set' command\r\n" + execAbort},
		{"MULTI; SET a 1; EXEC x; EXEC", ok + queued + "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n-ERR EXEC without MULTI\r\n"},
		{"MULTI; SET a 1; DISCARD; PING", ok + queued + ok + "+PONG\r\n"},
		{"MULTI; SET a 1; RESET; EXEC", ok + queued + "+RESET\r\n-ERR EXEC without MULTI\r\n"},
		{"WATCH a b; WATCH a; WATCH b; UNWATCH; WATCH", notInMulti + ok + notInMulti + ok + "-ERR wrong number of arguments for 'watch' command\r\n"},
		{"MULTI; UNWATCH; PING; SELECT 0; HELLO 3; EXEC", ok + queued + queued + cannotStand("select") + cannotStand("hello") + execAbort},
		{"GET a; DBSIZE", "$-1\r\n:0\r\n"}, // RESP2 still, and nothing was done so far
		{"MULTI; SETNX a 5; INCRBY a 2; APPEND a x; INCR a; GET a; EXEC", ok + queued + queued + queued + queued + queued + "*5\r\n:1\r\n:7\r\n:2\r\n-ERR value is not an integer or out of range\r\n$2\r\n7x\r\n"},
		{"WATCH a; SET a 1; MULTI; DEL a; EXEC; WATCH a; MULTI; DEL a; EXEC; GET a", ok + ok + ok + queued + "*-1\r\n" + ok + ok + queued + "*1\r\n:1\r\n$-1\r\n"},
	} {
		r.Send(command(turn.send))
		r.Expect(turn.want)
	}
	r.Send("MULTI\r\nSET a 1\r\nDISCARD\r\n")
	r.Expect(ok + queued + ok)
	r.Send(computeservertest.Command("MULTI") + computeservertest.Command("SET", "a", "1") + computeservertest.Command("QUIT"))
	if rest := r.ExpectEnd(); rest != ok+queued+ok {
		t.Errorf("QUIT within MULTI gave %q", rest)
	}
	half := c.raw(1)
	half.Send(computeservertest.Command("MULTI") + computeservertest.Command("SET", "a", "1"))
	half.Expect(ok + queued)
	_ = half.NC.Close()
	computeservertest.Await(t, "the connections are forgotten", func() bool { return c.servers[1].core.Count.Connections.Load() == 0 })
	if n := c.store.Len(); n != 0 {
		t.Errorf("%d keys were stored", n)
	}
}

// cannotStand is the answer to a command that is not queued.
func cannotStand(name string) string {
	return "-ERR '" + name + "' cannot stand between MULTI and EXEC, and nothing of this transaction will be done; send it before or behind it\r\n"
}

// TestGoRedisTransaction drives a usual client's transactional pipeline: one on keys of two servers
// fails, nothing is done, and the connection is good for more.
func TestGoRedisTransaction(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.store.AllowGroups()
	c.split([]uint32{1, 2}, "m")
	r := c.redis(1)
	ctx := context.Background()
	if err := r.Get(ctx, "a").Err(); err != redis.Nil {
		t.Fatal(err)
	}
	for n := range 3 {
		_, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "a", "1", 0)
			p.Set(ctx, "z", "1", 0)
			return nil
		})
		if err == nil || !strings.HasPrefix(err.Error(), "EXECABORT ") {
			t.Errorf("a transaction: %v", err)
		}
		err = r.Watch(ctx, func(tx *redis.Tx) error {
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Incr(ctx, "a").Err() })
			return err
		}, "a")
		if err != nil {
			t.Errorf("a watched transaction: %v", err)
		}
		if got, err := r.Get(ctx, "a").Int(); got != n+1 || err != nil {
			t.Errorf("a is %d, %v, after %d", got, err, n+1)
		}
		if there, err := r.Exists(ctx, "z").Result(); there != 0 || err != nil {
			t.Errorf("EXISTS says %d, %v", there, err)
		}
	}
}

// TestHTTPEndsTheConnection: a request of a browser is not answered, and nothing of its body is
// run.
func TestHTTPEndsTheConnection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, withPassword := range []bool{false, true} {
		c := newCluster(t, config.RoutingAny, func(cfg *Config) {
			if withPassword {
				cfg.Users.PasswordFile, cfg.AllowNoPassword = file, false
			}
		}, 1)
		const body = "SET a 1\r\n*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n2\r\n"
		for request, want := range map[string]string{
			"POST / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\nContent-Length: 100\r\n\r\n" + body: "",
			"post / HTTP/1.1\r\n" + body:                             "",
			computeservertest.Command("POST", "x") + body:            "",
			"hOST: x\r\n" + body:                                     "",
			computeservertest.Command("PING") + "Host: x\r\n" + body: "+PONG\r\n",
			"MULTI\r\nPOST / HTTP/1.1\r\n" + body:                    "+OK\r\n",
			"PUT /a HTTP/1.1\r\nHost: x\r\n\r\n" + body:              "-ERR unknown command 'PUT', with args beginning with: '/a' 'HTTP/1.1' \r\n",
			"GET /a HTTP/1.1\r\nHost: x\r\n\r\n" + body:              "-ERR wrong number of arguments for 'get' command\r\n",
		} {
			r := c.raw(1)
			if withPassword && want != "" {
				r.Send(computeservertest.Command("AUTH", "secret"))
				r.Expect("+OK\r\n")
			}
			r.Send(request)
			if got := r.ExpectEnd(); got != want {
				t.Errorf("%.40q gave %q, want %q", request, got, want)
			}
		}
		if n := c.store.Len(); n != 0 {
			t.Errorf("%d keys were stored", n)
		}
	}
}

// TestLoginWithoutPassword: where no password is configured, logins are answered as Redis answers
// them.
func TestLoginWithoutPassword(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	ours, redis := c.raw(1), computeservertest.NewRedis(t)
	for _, args := range [][]string{
		{"AUTH"}, {"AUTH", "x"}, {"AUTH", ""}, {"AUTH", "default", "x"}, {"AUTH", "default", ""}, {"AUTH", "root", "x"}, {"AUTH", "Default", "x"}, {"AUTH", "a", "b", "c"},
		{"HELLO", "2", "AUTH", "root", "x"}, {"HELLO", "3", "AUTH", "root", "x"}, {"HELLO", "2", "AUTH", "default"}, {"HELLO", "x"}, {"HELLO", "7"}, {"PING"},
	} {
		ours.Send(computeservertest.Command(args...))
		redis.Send(computeservertest.Command(args...))
		if got, want := ours.Line(), redis.Line(); got != want {
			t.Errorf("%q gave %q; Redis says %q", args, got, want)
		}
	}
	ours.Send(computeservertest.Command("HELLO", "3", "AUTH", "default", "any"))
	ours.Expect("%7\r\n")
	r := c.redis(1).Conn()
	defer r.Close()
	if err := r.AuthACL(context.Background(), "default", "any").Err(); err != nil {
		t.Error(err)
	}
}
