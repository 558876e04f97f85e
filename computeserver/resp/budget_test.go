package resp

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/computeserver/script"
)

// TestBudgetOfSentReplies: what replies took of the budget is back when they are sent, even while
// half of the next command is here.
func TestBudgetOfSentReplies(t *testing.T) {
	const share = 2 << 20 // of the user
	c := newCluster(t, config.RoutingOwner, func(cfg *limits) { cfg.MaxBuffers, cfg.MaxReply = share*4/3, 1<<20 }, 1)
	c.split([]uint32{1})
	r := c.raw(1)
	const keys = 300
	var names []string
	for i := range keys {
		names = append(names, fmt.Sprintf("k%03d", i))
		r.Send(computeservertest.Command("SET", names[i], strings.Repeat("v", 2000)))
		r.Expect("+OK\r\n")
	}
	budget := &c.servers[1].resp.budget
	for _, command := range []string{computeservertest.Command("RANGE", "", ""), computeservertest.Command(append([]string{"MGET"}, names...)...), computeservertest.Command("ECHO", strings.Repeat("x", 600<<10))} {
		r.Send(strings.Repeat(command, 12) + command[:5])
		for i := range 12 {
			if head := r.SkipReply(); head[0] == '-' {
				t.Errorf("%.20q: reply %d of a pipeline: %q", command, i, head)
			}
		}
		for i := range 12 { // request by request
			r.Send(command[5:] + command[:5])
			if head := r.SkipReply(); head[0] == '-' {
				t.Errorf("%.20q: request %d: %q", command, i, head)
			}
			computeservertest.Await(t, "what the reply took is back", func() bool { return budget.used.Load() <= 2*respKeep })
		}
		r.Send(command[5:])
		r.SkipReply()
	}
	_ = r.NC.Close()
	computeservertest.Await(t, "the budget is whole", func() bool { return budget.used.Load() == 0 })
}

// TestBudgetRefusesReplies: replies that the budget has no room for are refused, whole, and the
// connection goes on.
func TestBudgetRefusesReplies(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, func(cfg *limits) { cfg.MaxBuffers = 1 << 20 }, 1)
	c.split([]uint32{1})
	r := c.raw(1)
	for i := range 600 {
		r.Send(computeservertest.Command("SET", fmt.Sprintf("k%03d", i), strings.Repeat("v", 2000)))
		r.Expect("+OK\r\n")
	}
	const full = "-UNAVAILABLE the buffers of all connections, or of those of this user, are full; send less at once, or ask for less with LIMIT\r\n"
	many := []string{"MGET"}
	for range 700 {
		many = append(many, "k000")
	}
	for range 3 {
		r.Send(computeservertest.Command("RANGE", "", "") + computeservertest.Command(many...) + computeservertest.Command("GET", "no") + computeservertest.Command("SCAN", "0", "COUNT", "3"))
		r.Expect(full + full + "$-1\r\n*2\r\n$")
		r.Line()
		r.Line()
		r.Expect("*3\r\n$4\r\nk000\r\n$4\r\nk001\r\n$4\r\nk002\r\n")
	}
	_ = r.NC.Close()
	computeservertest.Await(t, "the budget is whole", func() bool { return c.servers[1].resp.budget.used.Load() == 0 })
}

// TestManyKeysTakeLittle asks for one key so often that the reply would be larger than a reply may
// be: it is refused before most of it was made.
func TestManyKeysTakeLittle(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1)
	c.split([]uint32{1})
	conn := c.quiet(1)
	if out, err := conn.feed([]byte(computeservertest.Command("SET", "key", strings.Repeat("v", 2048)))); err != nil || string(out) != "+OK\r\n" {
		t.Fatalf("SET gave %q, %v", out, err)
	}
	args := make([]string, maxArgs)
	for i := range args {
		args[i] = "key"
	}
	for command, want := range map[string]string{
		"MGET":   "-ERR the reply would be larger than 16777216 bytes; ask for fewer keys\r\n",
		"EXISTS": fmt.Sprintf(":%d\r\n", maxArgs-1),
	} {
		args[0] = command
		pipeline := []byte(computeservertest.Command(args...))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, err := conn.feed(pipeline)
		runtime.ReadMemStats(&after)
		if err != nil || string(out) != want {
			t.Errorf("%s of %d keys gave %.100q, %v; want %q", command, maxArgs-1, out, err, want)
		}
		most := conn.s.maxReply * 5 // values, and the reply while it grows
		if command == "EXISTS" {
			most = maxArgs * (2048 + 1024) // one value after the other: garbage
		}
		if got := int(after.TotalAlloc - before.TotalAlloc); got > most {
			t.Errorf("%s of %d keys allocates %d bytes, want %d at most", command, maxArgs-1, got, most)
		}
		conn.trim()
		if used := conn.s.budget.used.Load(); used != 0 {
			t.Errorf("%s leaves %d bytes of the budget taken", command, used)
		}
	}
}

// TestBudgetIsWhole runs any mixture of commands on connections that break off anywhere, some of
// which read nothing: when all have ended nothing of the budget is taken.
func TestBudgetIsWhole(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	c := newCluster(t, config.RoutingOwner, func(cfg *limits) {
		cfg.MaxBuffers, cfg.MaxReply, cfg.WriteLimit = 1<<20, 256<<10, 20*time.Millisecond
	}, 1, 2)
	c.split([]uint32{1, 2}, "m")
	budget := &c.servers[1].resp.budget
	taken := int64(0)
	for round := range 16 {
		conns := make([]*computeservertest.Conn, 1+rnd.IntN(6))
		for i := range conns {
			conns[i] = c.raw(1)
		}
		for range 4 {
			for _, r := range conns {
				b := disorder(rnd)
				_, _ = r.NC.Write(b) // the server may have ended the connection
				if rnd.IntN(3) == 0 {
					_ = r.NC.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
					_, _ = r.NC.Read(make([]byte, rnd.IntN(1<<20)+1))
				}
			}
			taken = max(taken, budget.used.Load())
		}
		for _, r := range conns {
			_ = r.NC.Close()
		}
		computeservertest.Await(t, "all connections are forgotten", func() bool { return c.servers[1].core.Count.Connections.Load() == 0 })
		if used := budget.used.Load(); used != 0 {
			t.Fatalf("after round %d, %d bytes of the budget are taken and there is no connection", round, used)
		}
	}
	if taken == 0 {
		t.Error("nothing was ever taken of the budget")
	}
}

// disorder is some commands, large ones among them, that may break off or be none.
func disorder(rnd *rand.Rand) []byte {
	var b []byte
	key := func() string { return string(rune('a'+rnd.IntN(26))) + fmt.Sprint(rnd.IntN(30)) }
	for range rnd.IntN(30) {
		args := []string{[]string{"MGET", "DEL", "EXISTS"}[rnd.IntN(3)]}
		switch rnd.IntN(12) {
		case 0:
			args = []string{"RANGE", "", ""}
		case 1:
			args = []string{"SCAN", "0", "COUNT", fmt.Sprint(1 + rnd.IntN(100)), "MATCH", strings.Repeat("*a", rnd.IntN(20_000))}
		case 2:
			args = []string{"ECHO", strings.Repeat("x", rnd.IntN(300<<10))}
		case 3:
			args = []string{"RANGE", key(), key(), "REV", "LIMIT", fmt.Sprint(rnd.IntN(20))}
		case 4:
			args = []string{"CLIENT", "LIST"}
		case 5:
			for range rnd.IntN(5_000) {
				args = append(args, key())
			}
		case 6:
			args = []string{"MSET"}
			for range 1 + rnd.IntN(100) {
				args = append(args, key(), strings.Repeat("v", rnd.IntN(2500)))
			}
		case 7, 8:
			args = []string{"GET", key()}
		case 9:
			args = []string{"SET", key(), strings.Repeat("v", rnd.IntN(2049))}
		case 10:
			args = []string{"RESET"}
		default:
			args = append(args, key(), key())
		}
		b = append(b, computeservertest.Command(args...)...)
	}
	switch rnd.IntN(4) {
	case 0:
		b = b[:rnd.IntN(len(b)+1)]
	case 1:
		b = append(b, []string{"*1\r\n:1\r\n", "*x\r\n", "QUIT\r\n", "*2\r\n$3\r\nGET\r\n$1048576\r\n", strings.Repeat("y", 10_000)}[rnd.IntN(5)]...)
	}
	return b
}

// TestForwardsKeepTheirOrderWithoutRoom: what is set aside is sent earlier, or refused, where the
// buffers have no room for more of it. On one key the replies still follow from the commands in
// their order, and the budget is back in the end.
func TestForwardsKeepTheirOrderWithoutRoom(t *testing.T) {
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	rnd := computeservertest.Seeded(t)
	budget := &c.servers[1].resp.budget
	refused := 0
	now := "$-1\r\n" // what is there; empty if that is not known
	for round := range 60 {
		conn, all := c.quiet(1), &sink{}
		conn.nc = all
		budget.limit = int64(rnd.IntN(4)) * accountStep
		var want []string
		var pipeline strings.Builder
		for i := range 150 {
			value := fmt.Sprintf("%d-%d-%s", round, i, strings.Repeat("x", rnd.IntN(1800)))
			switch rnd.IntN(3) {
			case 0:
				pipeline.WriteString(computeservertest.Command("SET", "z", value))
				want = append(want, "="+fmt.Sprintf("$%d\r\n%s\r\n", len(value), value))
			case 1:
				pipeline.WriteString(computeservertest.Command("GET", "z"))
				want = append(want, "")
			default: // of this server
				pipeline.WriteString(computeservertest.Command("SET", "a", value))
				want = append(want, "+OK\r\n")
			}
		}
		if _, err := conn.feed([]byte(pipeline.String())); err != nil {
			t.Fatal(err)
		}
		_ = conn.flush() // a sink takes everything
		out := string(all.got)
		for i, w := range want {
			line, rest, _ := strings.Cut(out, "\r\n")
			reply := line + "\r\n"
			if line[0] == '$' && line != "$-1" {
				var n int
				_, _ = fmt.Sscanf(line, "$%d", &n)
				reply, rest = reply+rest[:n+2], rest[n+2:]
			}
			out = rest
			switch {
			case line[0] == '-':
				if refused++; line != "-UNAVAILABLE "+errBudget.Error() {
					t.Fatalf("round %d, reply %d is %q", round, i, line)
				}
			case strings.HasPrefix(w, "="):
				now = w[1:]
				fallthrough
			case w != "":
				if reply != "+OK\r\n" {
					t.Fatalf("round %d, reply %d is %q", round, i, reply)
				}
			case now != "" && reply != now:
				t.Fatalf("round %d, reply %d is %.60q, the key is %.60q", round, i, reply, now)
			default:
				now = reply
			}
		}
		if len(out) != 0 {
			t.Fatalf("round %d: %.60q was replied beyond", round, out)
		}
		conn.account.close()
		if used := budget.used.Load(); used != 0 {
			t.Fatalf("round %d: %d bytes are still taken", round, used)
		}
	}
	if refused == 0 {
		t.Error("the budget refused nothing")
	}
}

func TestBuffersAreBounded(t *testing.T) {
	c := newCluster(t, config.RoutingAny, func(cfg *limits) { cfg.MaxBuffers, cfg.MaxReply = 256<<10, 128<<10 }, 1)
	r := c.raw(1)
	for i := range 100 {
		r.Send(computeservertest.Command("SET", fmt.Sprintf("k%02d", i), strings.Repeat("v", 2000)))
		r.Expect("+OK\r\n")
	}
	r.Send(computeservertest.Command("RANGE", "", ""))
	r.Expect("-ERR the reply would be larger than 131072 bytes; use LIMIT, then go on after the last key\r\n")
	r.Send(computeservertest.Command("RANGE", "k98", "", "LIMIT", "1"))
	r.Expect("*2\r\n$3\r\nk98\r\n$2000\r\n")
	big := c.raw(1)
	// the server may close before it has all
	_, _ = big.NC.Write([]byte("*1\r\n$1000000\r\n" + strings.Repeat("x", 600<<10)))
	if got := big.ExpectEnd(); got != "" && !strings.HasPrefix(got, "-UNAVAILABLE the buffers of all connections, or of those of this user, are full") {
		t.Errorf("half a megabyte got %q", got)
	}
	computeservertest.Await(t, "the bytes are given back", func() bool { return c.servers[1].resp.budget.used.Load() == 0 })
}

// TestBudgetOfScriptsInTransactions: scripts without keys in one transaction return no more
// together than the budget has room for. The others are refused, each in its place.
func TestBudgetOfScriptsInTransactions(t *testing.T) {
	const scripts = 60
	c := newCluster(t, config.RoutingOwner, func(cfg *limits) { cfg.MaxBuffers = 4 << 20 }, 1)
	c.split([]uint32{1})
	r := c.raw(1)
	r.Send(computeservertest.Command("MULTI"))
	r.Expect("+OK\r\n")
	for range scripts {
		r.Send(computeservertest.Command("EVAL", "return string.rep('x', 130000)", "0"))
		r.Expect("+QUEUED\r\n")
	}
	r.Send(computeservertest.Command("EXEC"))
	r.Expect(fmt.Sprintf("*%d\r\n", scripts))
	done := 0
	for i := range scripts {
		switch head := r.SkipReply(); {
		case head == "$130000\r\n":
			done++
		case !strings.HasPrefix(head, "-UNAVAILABLE the buffers of all connections"):
			t.Fatalf("script %d of the transaction: %.200q", i, head)
		}
	}
	if most := 4 << 20 / 130000; done == 0 || done > most {
		t.Errorf("%d replies of 130,000 bytes are sent at once, at most %d have room", done, most)
	}
	_ = r.NC.Close()
	computeservertest.Await(t, "the budget is whole", func() bool { return c.servers[1].resp.budget.used.Load() == 0 })
}

// TestCompiledBytes: no script takes more while it is compiled than the budget was asked for.
func TestCompiledBytes(t *testing.T) {
	for _, piece := range []string{"(", "a[", "a..", "f{", "do ", "f'' ", "a={} "} {
		text := []byte("return " + strings.Repeat(piece, 20_000/len(piece)))
		if piece[len(piece)-1] == ' ' {
			text = text[len("return "):]
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := script.Compile(text)
		runtime.ReadMemStats(&after)
		// The parser's stack doubles when it grows: at its end a quarter of all of it is garbage.
		if took, most := int(after.TotalAlloc-before.TotalAlloc)*3/4, compiledBytes*len(text); took > most {
			t.Errorf("%d bytes of %q took %d bytes, want %d at most: %.80v", len(text), piece, took, most, err)
		}
	}
}
