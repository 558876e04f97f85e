package resp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/env"
)

// scanned are the keys of a whole scan, and how many steps it took.
func scanned(r *computeservertest.Conn, options ...string) (keys []string, steps int) {
	r.T.Helper()
	for cursor := "0"; steps == 0 || cursor != "0"; steps++ {
		r.Send(computeservertest.Command(append([]string{"SCAN", cursor}, options...)...))
		if got := strings.TrimSpace(r.Line()); got != "*2" || steps > 100 {
			r.T.Fatalf("step %d: %s", steps, got)
		}
		r.Line()
		cursor = strings.TrimSpace(r.Line())
		var n int
		if _, err := fmt.Sscanf(r.Line(), "*%d", &n); err != nil {
			r.T.Fatal(err)
		}
		for range n {
			r.Line()
			keys = append(keys, strings.TrimSpace(r.Line()))
		}
	}
	return keys, steps
}

// TestScanEndsWhereReplyIsFull: a step whose keys fill a reply, or what the buffers have, ends
// there, and the scan goes on.
func TestScanEndsWhereReplyIsFull(t *testing.T) {
	for what, adjust := range map[string]func(*limits){
		"the reply":   func(l *limits) { l.MaxReply = 3 << 10 },
		"the buffers": func(l *limits) { l.MaxBuffers = 1 },
	} {
		c := newCluster(t, config.RoutingOwner, adjust, 1)
		c.split([]uint32{1})
		r := c.raw(1)
		var want []string
		for i := range 200 {
			key := fmt.Sprintf("%03d%s", i, strings.Repeat("k", 400))
			want = append(want, key)
			r.Send(computeservertest.Command("SET", key, "v"))
			r.Expect("+OK\r\n")
		}
		keys, steps := scanned(r, "COUNT", "100000")
		if !slices.Equal(keys, want) || steps < 2 {
			t.Errorf("%s: %d keys in %d steps, want %d in some", what, len(keys), steps, len(want))
		}
	}
}

// TestScanOfPatternReadsItsKeysOnly: a scan reads the keys that begin as its pattern does, and
// waits for no server of others.
func TestScanOfPatternReadsItsKeysOnly(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(l *limits) { l.Limit = 200 * time.Millisecond }, 1, 2)
	c.split([]uint32{1, 2}, "m")
	r := c.raw(2)
	for _, prefix := range []string{"a:", "n*", "n:", "z:"} {
		for i := range 20 {
			r.Send(computeservertest.Command("SET", fmt.Sprintf("%s%02d", prefix, i), "v"))
			r.Expect("+OK\r\n")
		}
	}
	c.servers[1].core.Sessions.Block("a memory server of the keys below m is away")
	for pattern, want := range map[string][]int{"n:*": {20, 2}, "n[*]*": {20, 4}, `n\*1?`: {10, 2}, "n:07": {1, 1}, "zz*": {0, 1}} {
		if keys, steps := scanned(r, "COUNT", "15", "MATCH", pattern); len(keys) != want[0] || steps > want[1] {
			t.Errorf("%s: %d keys in %d steps, want %d in %d: %q", pattern, len(keys), steps, want[0], want[1], keys)
		}
	}
}

// TestCursorsOfOthersStay: a connection that makes many steps takes no cursor of another one.
func TestCursorsOfOthersStay(t *testing.T) {
	all := newCursors(env.Real(), 1, 100, time.Minute)
	var slow, fast ownCursors
	theirs := all.put([]byte("slow"), &slow)
	var ids []uint64
	for i := range 3 * cursorsEach {
		ids = append(ids, all.put([]byte{byte(i)}, &fast))
	}
	if key, ok := all.find(theirs); !ok || string(key) != "slow" {
		t.Errorf("the cursor of the other connection is %q, %v", key, ok)
	}
	for i, id := range ids {
		if key, ok := all.find(id); ok != (i >= 2*cursorsEach) || ok && key[0] != byte(i) {
			t.Errorf("cursor %d of %d is %q, %v", i, len(ids), key, ok)
		}
	}
	if all.used.Len() != len(all.byID) || len(all.byID) != cursorsEach+1 {
		t.Errorf("%d cursors are kept, %d of them in order", len(all.byID), all.used.Len())
	}
}
