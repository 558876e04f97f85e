package computeserver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/partition"
)

// scanStep asks for one step of a scan, and returns its keys and the next cursor, or the error.
func scanStep(t *testing.T, k *talk, cursor string, options ...string) (keys []string, next, failed string) {
	t.Helper()
	k.Send(computeservertest.Command(append([]string{"SCAN", cursor}, options...)...))
	reply := wholeReply(t, k.from)
	if reply[0] == '-' {
		return nil, "", reply
	}
	lines := strings.Split(reply, "\r\n") // *2, $n, cursor, *n, then $n and key by turns
	for i := 5; i < len(lines)-1; i += 2 {
		keys = append(keys, lines[i])
	}
	return keys, lines[2], ""
}

// TestCursorsOfEveryServer: each server goes on with a scan that another one began, whichever
// serves the keys. A cursor that nobody gave, of a server that is there or not, is refused.
func TestCursorsOfEveryServer(t *testing.T) {
	for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
		c := newCluster(t, routing, nil, 1, 2, 3)
		c.split([]uint32{1, 2, 3}, "k000200", "k000400")
		c.fill(600, 8)
		var talks []*talk
		for id := uint32(1); id <= 3; id++ {
			talks = append(talks, newTalk(c, id))
		}
		var all []string
		cursor, steps := "0", 0
		for ; steps == 0 || cursor != "0"; steps++ {
			keys, next, failed := scanStep(t, talks[steps%3], cursor, "COUNT", "50")
			if failed != "" {
				t.Fatalf("%s: step %d: %s", routing, steps, failed)
			}
			if again, _, _ := scanStep(t, talks[(steps+1)%3], cursor, "COUNT", "50"); !slices.Equal(again, keys) {
				t.Errorf("%s: step %d at another server: %q, want %q", routing, steps, again, keys)
			}
			all, cursor = append(all, keys...), next
		}
		if len(all) != 600 || !slices.IsSorted(all) || len(slices.Compact(all)) != 600 {
			t.Errorf("%s: %d keys in %d steps", routing, len(all), steps)
		}
		for _, made := range []uint64{1, 1<<37 | 5, 2<<37 | 5, 9<<37 | 5, 1<<64 - 1} {
			if _, _, failed := scanStep(t, talks[0], fmt.Sprint(made)); !strings.HasPrefix(failed, "-ERR invalid cursor: ") {
				t.Errorf("%s: cursor %d: %q", routing, made, failed)
			}
		}
	}
}

// letters are keys whose bounds no position fits: they vary in many bytes, and each in little.
func letters(i int) string {
	return strings.NewReplacer("0", "X", "1", "Y").Replace(fmt.Sprintf("%024b", i*0x9e3779&0xffffff))
}

// TestCursorOfLostServer: a scan whose server cannot be reached goes on at another one. Where that
// server remembers its place, it may be asked again, and goes on when the server is back, or ends
// when it has left the map.
func TestCursorOfLostServer(t *testing.T) {
	c := newCluster(t, config.RoutingAny, nil, 1, 2)
	c.split([]uint32{1, 2}, "k000050")
	c.fill(100, 8)
	one, two := newTalk(c, 1), newTalk(c, 2)
	for i := range 100 {
		two.Send(computeservertest.Command("SET", letters(i), "v"))
		two.Expect("+OK\r\n")
	}
	begun, position, failed := scanStep(t, two, "0", "COUNT", "10", "MATCH", "k*")
	if failed != "" {
		t.Fatal(failed)
	}
	_, cursor, failed := scanStep(t, two, "0", "COUNT", "50", "MATCH", "[XY]*")
	for n, _ := strconv.ParseUint(cursor, 10, 64); failed == "" && n >= 1<<52; n, _ = strconv.ParseUint(cursor, 10, 64) {
		if _, cursor, failed = scanStep(t, two, cursor, "COUNT", "7", "MATCH", "[XY]*"); cursor == "0" {
			t.Fatal("each bound fits a position")
		}
	}
	if failed != "" {
		t.Fatal(failed)
	}
	c.stop(2)
	if keys, _, failed := scanStep(t, one, position, "COUNT", "10", "MATCH", "k*"); failed != "" || len(keys) != 10 || keys[0] <= begun[9] {
		t.Errorf("behind %q of a server that is away: %q, %q", begun, keys, failed)
	}
	if _, _, failed := scanStep(t, one, cursor); !strings.HasPrefix(failed, "-UNAVAILABLE ") {
		t.Errorf("a server that is away: %q", failed)
	}
	m, err := partition.ByBoundaries(computeservertest.Index, c.members(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Generation = 2
	c.publish(m)
	if _, _, failed := scanStep(t, one, cursor); !strings.HasPrefix(failed, "-ERR invalid cursor: ") {
		t.Errorf("a server that has left the map: %q", failed)
	}
	if keys, _, failed := scanStep(t, one, position, "COUNT", "10", "MATCH", "k*"); failed != "" || len(keys) != 10 {
		t.Errorf("a position when its server has left the map: %q, %q", keys, failed)
	}
}

// TestScanOutlivesItsServers: a scan whose steps are asked of any server returns each key that
// stays, while keys come and go, ranges move, and servers that gave its cursors end.
func TestScanOutlivesItsServers(t *testing.T) {
	for _, routing := range []string{config.RoutingAny, config.RoutingOwner} {
		seed := rand.Uint64()
		t.Logf("%s: seed %d", routing, seed)
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCluster(t, routing, nil, 1, 2, 3)
		c.split([]uint32{1, 2, 3}, "order:00002500", "user:00002500")
		talks := map[uint32]*talk{1: newTalk(c, 1), 2: newTalk(c, 2), 3: newTalk(c, 3)}
		draw := func() string {
			return fmt.Sprintf("%s:%08d:%s", []string{"order", "session", "user"}[r.IntN(3)], r.IntN(5000), []string{"name", "mail"}[r.IntN(2)])
		}
		stay, found := map[string]bool{}, map[string]bool{}
		for range 600 {
			key := draw()
			stay[key] = true
			talks[1].Send(computeservertest.Command("SET", key, "v"))
			talks[1].Expect("+OK\r\n")
		}
		generation := uint64(1)
		move := func(ids []uint32, boundaries ...string) {
			var keys [][]byte
			for _, b := range boundaries {
				keys = append(keys, []byte(b))
			}
			m, err := partition.ByBoundaries(computeservertest.Index, c.members(ids...), keys)
			if err != nil {
				t.Fatal(err)
			}
			generation++
			m.Generation = generation
			c.publish(m)
		}
		live := []uint32{1, 2, 3}
		cursor, steps := "0", 0
		for ; steps == 0 || cursor != "0"; steps++ {
			at := talks[live[r.IntN(len(live))]]
			keys, next, failed := scanStep(t, at, cursor)
			if failed != "" || steps > 1000 {
				t.Fatalf("%s: step %d: %s", routing, steps, failed)
			}
			for _, key := range keys {
				found[key] = true
			}
			cursor = next
			if key := draw(); !stay[key] {
				talks[1].Send(computeservertest.Command("SET", key, "v"))
				talks[1].Expect("+OK\r\n")
			}
			switch steps {
			case 10:
				move(live, "order:00004000", "session:00001000")
			case 20, 30:
				gone := live[len(live)-1]
				live = live[:len(live)-1]
				move(live, []string{"s"}[:len(live)-1]...)
				c.stop(gone)
			}
		}
		for key := range stay {
			if !found[key] {
				t.Errorf("%s: %q was not returned in %d steps", routing, key, steps)
			}
		}
		if len(live) != 1 {
			t.Errorf("%s: the scan ended after %d steps, before the servers did", routing, steps)
		}
	}
}
