package pubsub

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// reader is a subscriber that notes what it gets.
type reader struct {
	mu  sync.Mutex
	got []string
}

func (r *reader) Push(kind Kind, name string, m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, fmt.Sprint(kind, name, string(m.Channel), string(m.Payload)))
}

func startsWith(prefix string) *Pattern {
	return &Pattern{Matches: func(channel []byte) bool { return strings.HasPrefix(string(channel), prefix) }}
}

// TestTableAgainstModel: subscriptions come and go at random, and each message goes to those that a
// list of all subscriptions says, as often as it says.
func TestTableAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d: replay with rand.NewPCG(%d, 1)", seed, seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	type subscription struct {
		kind Kind
		name string
		by   int
	}
	var table Table
	readers := make([]*reader, 5)
	for i := range readers {
		readers[i] = &reader{}
	}
	model := map[subscription]bool{}
	names := []string{"a", "b", "ab", "abc", ""}
	for step := range 5_000 {
		s := subscription{Kind(rnd.IntN(int(Kinds))), names[rnd.IntN(len(names))], rnd.IntN(len(readers))}
		switch rnd.IntN(3) {
		case 0:
			if !table.Subscribe(s.kind, s.name, startsWith(s.name), readers[s.by]) {
				t.Fatal("a subscription was refused")
			}
			model[s] = true
		case 1:
			table.Unsubscribe(s.kind, s.name, readers[s.by])
			delete(model, s)
		case 2:
			m := &Message{Channel: []byte(s.name), Payload: []byte(fmt.Sprint(step)), Sharded: rnd.IntN(3) == 0}
			want := make([][]string, len(readers))
			n := 0
			for s := range model {
				if (s.kind == Channels && !m.Sharded || s.kind == Shards && m.Sharded) && s.name == string(m.Channel) ||
					s.kind == Patterns && !m.Sharded && strings.HasPrefix(string(m.Channel), s.name) {
					n++
					want[s.by] = append(want[s.by], fmt.Sprint(s.kind, s.name, string(m.Channel), string(m.Payload)))
				}
			}
			if got := table.Publish(m); got != n {
				t.Fatalf("step %d: %d receivers, want %d", step, got, n)
			}
			for i, r := range readers {
				slices.Sort(r.got)
				slices.Sort(want[i])
				if !slices.Equal(r.got, want[i]) {
					t.Fatalf("step %d: reader %d got %q, want %q", step, i, r.got, want[i])
				}
				r.got = nil
			}
		}
		counts := map[subscription]int{}
		for s := range model {
			counts[subscription{s.kind, s.name, 0}]++
		}
		for kind := range Kinds {
			all, more := table.List(kind, func([]byte) (is, enough bool) { return true, false }, 1<<10)
			if more || len(all) != table.Names(kind) {
				t.Fatalf("step %d: %d names of kind %d are listed, of %d", step, len(all), kind, table.Names(kind))
			}
			for _, name := range names {
				if got, want := table.Subscribers(kind, []byte(name)), counts[subscription{kind, name, 0}]; got != want {
					t.Fatalf("step %d: %q of kind %d has %d subscribers, want %d", step, name, kind, got, want)
				}
			}
		}
	}
}

// TestOrder: what one publishes on a channel comes in its order, while others come and go, and to
// no subscriber that has left.
func TestOrder(t *testing.T) {
	const publishers, each = 4, 500
	var table Table
	stays := &reader{}
	table.Subscribe(Channels, "c", nil, stays)
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for n := range each {
				table.Publish(&Message{Channel: []byte("c"), Payload: fmt.Appendf(nil, "%d %04d", p, n)})
			}
		})
	}
	all.Go(func() {
		for range each {
			leaves := &reader{}
			table.Subscribe(Channels, "c", nil, leaves)
			table.Unsubscribe(Channels, "c", leaves)
			before := len(leaves.got)
			table.Publish(&Message{Channel: []byte("c"), Payload: []byte("x 0000")})
			if len(leaves.got) != before {
				t.Error("a message came after the subscription had ended")
				return
			}
		}
	})
	all.Wait()
	last := map[byte]string{}
	for _, got := range stays.got {
		text := strings.TrimPrefix(got, fmt.Sprint(Channels, "cc"))
		if by := text[0]; by != 'x' {
			if text <= last[by] {
				t.Fatalf("%q came behind %q", text, last[by])
			}
			last[by] = text
		}
	}
	if len(stays.got) != publishers*each+each {
		t.Errorf("%d messages came, of %d", len(stays.got), publishers*each+each)
	}
}

// TestBounds: a server has a bounded number of different patterns, and a list one of bytes.
func TestBounds(t *testing.T) {
	var table, hard Table
	r := &reader{}
	of := func(user string, work int) *Pattern { return &Pattern{startsWith("x").Matches, work, user} }
	fill := func(t *Table, user string, work int) (n int) {
		for t.Subscribe(Patterns, fmt.Sprint(user, n), of(user, work), r) {
			n++
		}
		return n
	}
	// One user takes three quarters, and another one three quarters of what is left.
	if one, other := fill(&table, "", 1), fill(&table, "b", 1); one != MaxPatterns*3/4 || other != MaxPatterns*3/16 {
		t.Errorf("two users have %d and %d patterns", one, other)
	}
	if one, other := fill(&hard, "", 1000), fill(&hard, "b", 1000); one != 60 || other != 15 {
		t.Errorf("two users have %d and %d patterns that take much", one, other)
	}
	if !table.Subscribe(Patterns, "7", of("b", 1), &reader{}) {
		t.Error("a pattern that there is was refused")
	}
	table.Unsubscribe(Patterns, "b0", r)
	if !table.Subscribe(Patterns, "c", of("b", 1), r) || table.Subscribe(Patterns, "d", of("b", 1), r) {
		t.Error("in place of a pattern there is room for one")
	}
	for i := range MaxPatterns {
		table.Subscribe(Patterns, fmt.Sprint("users ", i), of(fmt.Sprint(i), 1), r)
	}
	if n := table.Names(Patterns); n != MaxPatterns-1 { // the last one would leave nothing free
		t.Errorf("users have %d patterns", n)
	}
	for name := range hard.names[Patterns] {
		hard.Unsubscribe(Patterns, name, r)
	}
	if hard.all != (share{}) || len(hard.users) != 0 {
		t.Errorf("without patterns %+v is taken, by %v", hard.all, hard.users)
	}
	if names, more := table.List(Patterns, func([]byte) (is, enough bool) { return true, false }, 10); !more || len(names) != 4 {
		t.Errorf("%q, more = %v; want 0, 1, 10 and 100", names, more)
	}
}
