package computeserver

import (
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// TestDialogue compares replies byte by byte with what Redis says.
func TestDialogue(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1)
	r := c.raw(1)
	long := strings.Repeat("k", 700)
	for _, turn := range []struct{ send, want string }{
		{"PING\r\n", "+PONG\r\n"},
		{"ping hello\r\n", "$5\r\nhello\r\n"},
		{"\r\n  \r\nPING\n", "+PONG\r\n"},
		{computeservertest.Command("ECHO", "a\r\nb"), "$4\r\na\r\nb\r\n"},
		{computeservertest.Command("GET", "a"), "$-1\r\n"},
		{computeservertest.Command("SET", "a", "1"), "+OK\r\n"},
		{computeservertest.Command("get", "a"), "$1\r\n1\r\n"},
		{computeservertest.Command("SET", "", ""), "+OK\r\n"},
		{computeservertest.Command("GET", ""), "$0\r\n\r\n"},
		{computeservertest.Command("DEL", ""), ":1\r\n"},
		{computeservertest.Command("SET", "a", "2", "NX"), "$-1\r\n"},
		{computeservertest.Command("SET", "b", "2", "xx"), "$-1\r\n"},
		{computeservertest.Command("SET", "b", "2", "NX"), "+OK\r\n"},
		{computeservertest.Command("SET", "b", "3", "XX", "KEEPTTL"), "+OK\r\n"},
		{computeservertest.Command("SET", "b", "3", "NX", "XX"), "-ERR syntax error\r\n"},
		{computeservertest.Command("SET", "b", "3", "EX", "10"), "-ERR pairs of this index do not expire, and nothing was done: its spec.expiry is Disabled, for good; use an index with spec.expiry: Enabled\r\n"},
		{computeservertest.Command("SETNX", "b", "x"), ":0\r\n"},
		{computeservertest.Command("SETNX", "c", "x"), ":1\r\n"},
		{computeservertest.Command("EXISTS", "a", "b", "a", "nope"), ":3\r\n"},
		{computeservertest.Command("MGET", "a", "nope", "c"), "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\nx\r\n"},
		{computeservertest.Command("MSET", "d", "4", "e", "5"), "+OK\r\n"},
		{computeservertest.Command("MSET", "d", "4", "e"), "-ERR wrong number of arguments for 'mset' command\r\n"},
		{computeservertest.Command("RANGE", "b", "e"), "*6\r\n$1\r\nb\r\n$1\r\n3\r\n$1\r\nc\r\n$1\r\nx\r\n$1\r\nd\r\n$1\r\n4\r\n"},
		{computeservertest.Command("RANGE", "", "", "LIMIT", "1"), "*2\r\n$1\r\na\r\n$1\r\n1\r\n"},
		{computeservertest.Command("RANGE", "b", "", "REV", "LIMIT", "2"), "*4\r\n$1\r\ne\r\n$1\r\n5\r\n$1\r\nd\r\n$1\r\n4\r\n"},
		{computeservertest.Command("RANGE", "b", "d", "REV"), "*4\r\n$1\r\nc\r\n$1\r\nx\r\n$1\r\nb\r\n$1\r\n3\r\n"},
		{computeservertest.Command("RANGE", "d", "b"), "*0\r\n"},
		{computeservertest.Command("RANGE", "", "", "LIMIT", "0"), "*0\r\n"},
		{computeservertest.Command("RANGE", "", "", "LIMIT", "-1"), "-ERR value is not an integer or out of range\r\n"},
		{computeservertest.Command("RANGE", "a"), "-ERR wrong number of arguments for 'range' command\r\n"},
		{computeservertest.Command("RANGE", "a", "b", "LIMIT"), "-ERR syntax error; RANGE start end [LIMIT n] [REV]\r\n"},
		{computeservertest.Command("DBSIZE"), ":5\r\n"},
		{computeservertest.Command("SCAN", "0", "COUNT", "100"), "*2\r\n$1\r\n0\r\n*5\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n"},
		{computeservertest.Command("SCAN", "0", "MATCH", "[x", "COUNT", "100"), "*2\r\n$1\r\n0\r\n*0\r\n"},
		{computeservertest.Command("SCAN", "zero"), "-ERR invalid cursor\r\n"},
		{computeservertest.Command("SCAN", "12345"), "-ERR invalid cursor: the server that gave it is gone, or does not know it any more; start again with 0\r\n"},
		{computeservertest.Command("DEL", "a", "nope", "b", "c", "d", "e"), ":5\r\n"},
		{computeservertest.Command("DEL", "a"), ":0\r\n"},
		{computeservertest.Command("GET"), "-ERR wrong number of arguments for 'get' command\r\n"},
		{computeservertest.Command("FLUSHWORLD", "x"), "-ERR unknown command 'FLUSHWORLD', with args beginning with: 'x' \r\n"},
		{computeservertest.Command("GET", long), "-ERR key is 700 bytes; this index takes at most 512\r\n"},
		{computeservertest.Command("SET", "k", strings.Repeat("v", 3000)), "-ERR value is 3000 bytes; this index takes at most 2048\r\n"},
		{computeservertest.Command("MSET", "good", "1", long, "1"), "-ERR key is 700 bytes; this index takes at most 512\r\n"},
		{computeservertest.Command("MGET", "good", long), "-ERR key is 700 bytes; this index takes at most 512\r\n"},
		{computeservertest.Command("RANGE", "a", long), "-ERR key is 700 bytes; this index takes at most 512\r\n"},
		{computeservertest.Command("GET", "good"), "$-1\r\n"},
		{computeservertest.Command("SELECT", "0"), "+OK\r\n"},
		{computeservertest.Command("SELECT", "1"), "-ERR DB index is out of range; an index is one database, 0\r\n"},
		{computeservertest.Command("CLIENT", "GETNAME"), "$-1\r\n"},
		{computeservertest.Command("CLIENT", "SETNAME", "me"), "+OK\r\n"},
		{computeservertest.Command("CLIENT", "GETNAME"), "$2\r\nme\r\n"},
		{computeservertest.Command("CLIENT", "SETINFO", "lib-name", "x"), "+OK\r\n"},
		{computeservertest.Command("CLIENT", "NO-EVICT", "on"), "+OK\r\n"},
		{computeservertest.Command("CONFIG", "GET", "save"), "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"},
		{computeservertest.Command("COMMAND", "DOCS", "nope", "TIME"), "*2\r\n$4\r\ntime\r\n*4\r\n$7\r\nsummary\r\n$36\r\nseconds since 1970, and microseconds\r\n$5\r\ngroup\r\n$6\r\nserver\r\n"},
		{computeservertest.Command("HELLO", "4"), "-NOPROTO unsupported protocol version\r\n"},
		{computeservertest.Command("AUTH", "x"), "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n"},
		{computeservertest.Command("RESET"), "+RESET\r\n"},
	} {
		r.Send(turn.send)
		r.Expect(turn.want)
	}
	r.Send(computeservertest.Command("HELLO", "3") + computeservertest.Command("GET", "nope") + computeservertest.Command("QUIT") + computeservertest.Command("PING"))
	rest := r.ExpectEnd()
	if !strings.HasPrefix(rest, "%7\r\n$6\r\nserver\r\n") || !strings.HasSuffix(rest, "*0\r\n_\r\n+OK\r\n") {
		t.Errorf("HELLO 3, GET, QUIT, PING gave %q", rest)
	}
}

func TestPipelineKeepsItsOrder(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(1)
	var send, want strings.Builder
	for i := range 3000 {
		key := []string{"a", "x", "b", "y"}[i%4]
		send.WriteString(computeservertest.Command("SET", key, key) + computeservertest.Command("GET", key) + computeservertest.Command("DEL", key) + computeservertest.Command("EXISTS", key) + computeservertest.Command("GET", key))
		want.WriteString("+OK\r\n$1\r\n" + key + "\r\n:1\r\n:0\r\n$-1\r\n")
	}
	r.Send(send.String())
	r.Expect(want.String())
	if n := c.servers[1].core.Count.Forwarded.Load(); n < 6000 {
		t.Errorf("%d operations were forwarded; half of 15,000 belong to the other server", n)
	}
}
