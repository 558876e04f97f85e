package computeserver

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/computeserver/computeservertest"
	"github.com/dmindex/dmindex/pkg/partition"
)

// TestPipelinesAgainstAModel: several connections send random pipelines, in random portions, each
// on keys of its own, while ranges move between the servers. Every byte of every reply is known.
func TestPipelinesAgainstAModel(t *testing.T) {
	t.Run("one design for all keys", func(t *testing.T) { pipelines(t, config.RoutingAny, nil) })
	t.Run("one design, divided", func(t *testing.T) {
		pipelines(t, config.RoutingAny, func(c *Config) { c.divideAlways = true })
	})
	t.Run("routing to owners, divided", func(t *testing.T) {
		pipelines(t, config.RoutingOwner, func(c *Config) { c.divideAlways = true })
	})
	t.Run("routing to owners", func(t *testing.T) { pipelines(t, config.RoutingOwner, nil) })
	t.Run("ranges with owners", func(t *testing.T) { pipelines(t, config.RoutingOwner, owners(t)) })
}

func pipelines(t *testing.T, routing string, adjust func(*Config)) {
	rnd := computeservertest.Seeded(t)
	c := newCluster(t, routing, adjust, 1, 2, 3)
	m := c.split([]uint32{1, 2, 3}, "i", "r")
	const connections, rounds = 6, 60
	var all sync.WaitGroup
	ended := make(chan struct{})
	for id := range connections {
		own := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		r := c.raw(uint32(1 + id%3))
		all.Go(func() {
			k, model := &talker{rnd: own, id: id}, &respModel{pairs: map[string]string{}, resp3: id%2 == 1}
			if model.resp3 { // until the first RESET
				r.Send(computeservertest.Command("HELLO", "3"))
				for r.Line() != "*0\r\n" { // the last value of what it says
				}
			}
			for range rounds {
				if !k.pipeline(t, r, model) {
					return
				}
			}
		})
	}
	go func() { all.Wait(); close(ended) }()
	for moves := 0; ; moves++ {
		select {
		case <-ended:
			t.Logf("%d maps", moves)
			return
		case <-time.After(time.Duration(rnd.IntN(20)) * time.Millisecond):
		}
		var boundaries [][]byte
		for b := byte('a'); b <= 'z'; b++ {
			if rnd.IntN(5) == 0 {
				boundaries = append(boundaries, []byte{b})
			}
		}
		next, err := partition.ByBoundaries(computeservertest.Index, c.members(1, 2, 3), boundaries)
		if err != nil {
			t.Fatal(err)
		}
		next.Generation = m.Generation + 1
		m = next
		for _, maps := range c.maps {
			maps.Set(t, m)
		}
	}
}

// pipeline sends a pipeline and compares what comes with what the model says.
func (k *talker) pipeline(t *testing.T, r *computeservertest.Conn, model *respModel) bool {
	var send, want strings.Builder
	var sent []string
	for range 1 + k.rnd.IntN(40) {
		args := k.command()
		text := computeservertest.Command(args...)
		switch k.rnd.IntN(12) {
		case 0, 1:
			text = inline(k.rnd, args)
		case 2:
			text = []string{"\r\n", "*0\r\n", "  \n"}[k.rnd.IntN(3)] + text
		}
		send.WriteString(text)
		want.WriteString(model.reply(args))
		sent = append(sent, fmt.Sprintf("%.60q -> %.60q", args, want.String()[strings.LastIndex(want.String(), "\r\n"):]))
	}
	write := make(chan error, 1)
	go func() { write <- portions(k.rnd, r, send.String()) }()
	got := make([]byte, want.Len())
	n, err := io.ReadFull(r.NC, got)
	if sendErr := <-write; sendErr != nil || err != nil || string(got) != want.String() {
		t.Errorf("connection %d: pipeline\n%s\ngave  %q (%v, %v)\nwant %q", k.id, strings.Join(sent, "\n"), got[:n], err, sendErr, want.String())
		return false
	}
	return true
}

// portions writes text whole, byte by byte, or in portions of any size.
func portions(rnd *rand.Rand, r *computeservertest.Conn, text string) error {
	most := len(text)
	switch rnd.IntN(4) {
	case 0:
		if len(text) < 2000 {
			most = 1
		}
	case 1:
		most = 1 + rnd.IntN(300)
	}
	for len(text) > 0 {
		n := min(len(text), 1+rnd.IntN(most))
		if _, err := r.NC.Write([]byte(text[:n])); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// readReply reads one reply and returns its bytes, of an error those up to the first space.
func readReply(t testing.TB, in *bufio.Reader) string {
	t.Helper()
	head, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var n int
	switch _, _ = fmt.Sscanf(head[1:], "%d", &n); head[0] {
	case '-':
		return strings.SplitN(head, " ", 2)[0]
	case '$':
		if n >= 0 {
			b := make([]byte, n+2)
			if _, err := io.ReadFull(in, b); err != nil {
				t.Fatal(err)
			}
			return head + string(b)
		}
	case '*':
		for range n {
			head += readReply(t, in)
		}
	}
	return head
}

// TestPipelinesAgainstRedis: a server and a real redis-server answer the same to random pipelines
// of what both know; of errors, the words that clients look at.
func TestPipelinesAgainstRedis(t *testing.T) {
	rnd := computeservertest.Seeded(t)
	c := newCluster(t, config.RoutingOwner, nil, 1, 2)
	c.split([]uint32{1, 2}, "m")
	ours, redis := c.raw(1), computeservertest.NewRedis(t)
	fromOurs, fromRedis := bufio.NewReader(ours.NC), bufio.NewReader(redis.NC)
	k := &talker{rnd: rnd, common: true}
	model := &respModel{pairs: map[string]string{}}
	for range 150 {
		var send strings.Builder
		var sent [][]string
		var unlike []bool // Redis queues the command, and this server refuses it
		for range 1 + rnd.IntN(40) {
			k.multi = model.multi
			args := k.command()
			unlike = append(unlike, model.reply(args) == notInMulti)
			sent = append(sent, args)
			if rnd.IntN(6) == 0 {
				send.WriteString(inline(rnd, args))
			} else {
				send.WriteString(computeservertest.Command(args...))
			}
		}
		for _, r := range []*computeservertest.Conn{ours, redis} {
			if err := portions(rnd, r, send.String()); err != nil {
				t.Fatal(err)
			}
		}
		for i, args := range sent {
			if got, want := readReply(t, fromOurs), readReply(t, fromRedis); got != want && !(unlike[i] && got == "-ERR" && want == "+QUEUED\r\n") {
				t.Fatalf("%q gave %q; Redis says %q\n%q", args, got, want, sent[:i+1])
			}
		}
	}
}
