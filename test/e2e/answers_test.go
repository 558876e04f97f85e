//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAnswers asks an index by redis-cli and by the SDK, from within the cluster.
func TestAnswers(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")

	s.is(s.redis("set", "fruit:apple", "red"), "OK")
	s.is(s.dmindex("get", "fruit:apple"), "red")
	s.dmindex("put", "fruit:banana", "yellow")
	s.is(s.redis("get", "fruit:banana"), "yellow")
	s.is(s.redis("setnx", "fruit:banana", "green"), "0")
	s.is(s.redis("mset", "fruit:cherry", "red", "veg:leek", "green"), "OK")
	s.is(s.redis("mget", "fruit:cherry", "none", "veg:leek"), "red\n\ngreen")
	s.is(s.redis("range", "fruit:", "fruit:~", "limit", "2"), "fruit:apple\nred\nfruit:banana\nyellow")
	s.is(s.redis("range", "", "", "limit", "1", "rev"), "veg:leek\ngreen")
	s.is(s.dmindex("scan", "--prefix", "fruit:", "--keys"), "fruit:apple\nfruit:banana\nfruit:cherry")
	s.is(s.redis("dbsize"), "4")
	s.is(s.redis("del", "veg:leek", "none"), "1")
	s.is(s.redis("exists", "veg:leek", "fruit:apple"), "1")
	s.is(s.redis("get", "veg:leek"), "")
	s.contains(s.redis("lpush", "fruit", "fig"), "ERR unknown command")
	for _, pod := range s.computePods() {
		s.is(s.redisAt(pod+".x-compute", "get", "fruit:apple"), "red")
	}
	s.is(s.redis("flushall"), "OK")
	s.is(s.redis("dbsize"), "0")

	t.Run("lengths", func(t *testing.T) {
		s := &space{t, s.namespace}
		key, value := strings.Repeat("k", 64), strings.Repeat("v", 128)
		s.is(s.redis("set", key, value), "OK")
		s.is(s.redis("get", key), value)
		s.contains(s.redis("set", key+"k", "v"), "ERR key")
		s.contains(s.redis("get", key+"k"), "ERR key")
		s.contains(s.redis("set", "k", value+"v"), "ERR value")
		out, err := s.tryDmindex("put", key+"k", "v")
		s.fails(out, err, "65")
		out, err = s.tryDmindex("put", "k", value+"v")
		s.fails(out, err, "129")
		s.is(s.redis("get", "k"), "")
	})
	t.Run("passwords", func(t *testing.T) {
		s := &space{t, s.namespace}
		for _, c := range []struct{ password, want string }{{"", "NOAUTH"}, {"wrong", "WRONGPASS"}} {
			out, _ := s.tools("sh", "-c", "REDISCLI_AUTH="+c.password+" redis-cli -h x get fruit:apple")
			s.contains(out, c.want)
			if slices.Contains(strings.Split(out, "\n"), "red") {
				t.Errorf("answered in spite of password %q: %s", c.password, out)
			}
			out, err := s.tools("sh", "-c", fmt.Sprintf("printf '%%s' '%s' >/tmp/password && dmindex get --endpoint x.%s.svc:7480 --ca /conn/ca.crt --password /tmp/password fruit:apple",
				c.password, s.namespace))
			s.fails(out, err, "password")
		}
	})
}

// TestFullPool fills an index. Writes then fail with an error that says so; reads and deletes go
// on. A memory server that is added joins the index: writes go on without a new compute server, and
// whoever replaces a compute server that dies reaches all keys.
func TestFullPool(t *testing.T) {
	s := newSpace(t)
	// Load moves no range here: on a slow machine it would, and the division of a leaf in a full
	// pool would have to wait for memory.
	s.newIndex(strings.Replace(indexManifest, "{servers: 2, memory: 128Mi}", "{servers: 1, memory: 16Mi, chunkSize: 1Mi}", 1)+
		"  partitioning: {rebalance: {policy: Never}}\n", "1/1", "2/2")

	s.dmindex("put", "first", "1")
	lines := "i=0; while [ $i -lt 400000 ]; do printf 'key/%08d\\t%0100d\\n' $i $i; i=$((i+1)); done"
	out, err := s.tools("sh", "-c", lines+" | dmindex load --secret /conn -")
	s.fails(out, err, "full")
	// Leaves still have some room, and the other server some of its last chunk: so not every single
	// write needs memory.
	more := func() (string, error) {
		return s.tools("sh", "-c", "i=0; while [ $i -lt 20000 ]; do printf 'set more/%05d %0100d\n' $i $i; i=$((i+1)); done | REDISCLI_AUTH=$(cat /conn/password) redis-cli -h x")
	}
	out, err = more()
	if err != nil || !strings.Contains(out, "POOLFULL") {
		t.Errorf("20000 more writes: %v, %s", err, tail(out, 5))
	}
	s.is(s.redis("get", "first"), "1")
	s.is(s.redis("get", "key/00000000"), strings.Repeat("0", 100))
	s.is(s.redis("del", "key/00000000"), "1")
	s.is(s.redis("get", "key/00000000"), "")
	s.is(s.redis("set", "first", "2"), "OK") // changes in place still have room
	s.settled("1/1", "2/2")

	served := s.computePods()
	begin := time.Now()
	s.kubectl("patch", "dmi", "x", "--type=json", "-p", `[{"op": "replace", "path": "/spec/memoryPools/0/template/servers", "value": 2}]`)
	s.settled("2/2", "2/2")
	t.Logf("the server has joined after %s", time.Since(begin).Round(time.Millisecond))
	if out, err = more(); err != nil || strings.Contains(out, "POOLFULL") || strings.Count(out, "OK") != 20000 {
		t.Errorf("20000 writes after a server has joined: %v, %s", err, tail(out, 5))
	}
	if now := s.computePods(); !slices.Equal(now, served) {
		t.Errorf("compute pods %v, then %v", served, now)
	}
	s.replaced(served[0], "2/2", func(pod string) { s.kubectl("delete", "pod", pod, "--force", "--grace-period=0") })
	for _, key := range []string{"more/00000", "more/09999", "more/19999", "key/00000001"} {
		s.is(s.redis("exists", key), "1")
	}
	s.is(s.dmindex("get", "first"), "2")
}
