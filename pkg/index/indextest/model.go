package indextest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dmindex/dmindex/pkg/env/invariants"
	"github.com/dmindex/dmindex/pkg/index"
)

// shape is a kind of keys and values.
type shape struct {
	name    string
	options index.Options
	key     *rapid.Generator[string]
	value   *rapid.Generator[string]
}

// shapes are all kinds of keys and values: few enough distinct keys that operations meet.
func shapes() []shape {
	values := func(most int) *rapid.Generator[string] {
		return rapid.OneOf(
			rapid.Just(""),
			rapid.Just(strings.Repeat("\x00", most)),
			rapid.Just(strings.Repeat("\xff", most)),
			rapid.Map(rapid.IntRange(0, most), func(n int) string { return strings.Repeat("v", n) }),
			rapid.StringOfN(rapid.Rune(), 0, most, most),
		)
	}
	numbers := func(g *rapid.Generator[uint64]) *rapid.Generator[string] {
		return rapid.Map(g, func(n uint64) string { return string(number(n)) })
	}
	const long = 100
	prefix := strings.Repeat("/a/long/shared/prefix", 4)
	return []shape{
		{"dense", index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256}, numbers(rapid.Uint64Range(0, 2000)), values(8)},
		{"sparse", index.Options{Uint64: true, MaxValueBytes: 200}, numbers(rapid.OneOf(rapid.Uint64(), rapid.Just(^uint64(0)), rapid.Just(uint64(0)),
			rapid.Map(rapid.Uint64Range(0, 500), func(n uint64) uint64 { return n << 56 >> 3 }))), values(200)},
		{"set", index.Options{Uint64: true}, numbers(rapid.Uint64Range(0, 500)), rapid.Just("")},
		{"prefixes", index.Options{MaxKeyBytes: long, MaxValueBytes: 64}, rapid.Map(rapid.IntRange(0, 1000), func(n int) string {
			return fmt.Sprintf("%s%d", prefix, n)
		}), values(64)},
		{"large", index.Options{MaxKeyBytes: 512, MaxValueBytes: 2048}, rapid.OneOf(
			rapid.Map(rapid.IntRange(0, 400), func(n int) string { return fmt.Sprintf("%0*d", 512-n, n) }),
			rapid.Map(rapid.IntRange(0, 400), func(n int) string { return fmt.Sprint(n) }),
		), rapid.OneOf(values(2048), rapid.Just(""))},
		{"long", index.Options{Uint64: true, MaxValueBytes: 3000, InlineBytes: 20}, numbers(rapid.Uint64Range(0, 300)), rapid.OneOf(values(40), values(3000))},
		{"strings", index.Options{MaxKeyBytes: long, MaxValueBytes: 300, CacheBytes: 20 << 10}, rapid.OneOf(
			rapid.Just(""), // the lowest key
			rapid.Map(rapid.IntRange(0, long), func(n int) string { return strings.Repeat("\x00", n) }),
			rapid.Map(rapid.IntRange(0, long), func(n int) string { return strings.Repeat("\xff", n) }),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, long), func(b []byte) string { return string(b) }),
			rapid.Map(rapid.IntRange(0, 500), func(n int) string { return fmt.Sprintf("%0*d", long, n) }),
		), values(300)},
	}
}

// model compares random operations with a map.
func (r *runner) model(t *testing.T) {
	kinds := shapes()
	if r.brief {
		kinds = append(kinds[:4:4], kinds[5])
	}
	if n := len(kinds); r.turn > 0 { // two of them in each run, all in five
		kinds = []shape{kinds[2*r.turn%n], kinds[(2*r.turn+1)%n]}
	}
	for _, sh := range kinds {
		t.Run(sh.name, func(t *testing.T) {
			c := r.cluster(t, 64)
			p := c.Open(t)
			x := r.open(t, p, sh.options)
			s := session(t, x)
			other := session(t, r.open(t, c.Open(t), sh.options)) // its cache is always behind
			rounds := scale(1)                                    // of 100 runs each
			if r.provider == "shm" && !invariants.Enabled && !r.brief {
				rounds = scale(8)
			}
			run := func(t *rapid.T) {
				m := &machine{s: s, other: other, want: sortedPairs{values: map[string]string{}}, shape: sh}
				m.clear(t)
				for range rapid.IntRange(0, 4).Draw(t, "rounds before") {
					m.UpsertMany(t)
				}
				t.Repeat(rapid.StateMachineActions(m))
				m.whole(t)
			}
			for range rounds {
				rapid.Check(t, run)
			}
			check(t, x)
		})
	}
}

// machine is the state of one run: rapid calls its exported methods in random order.
type machine struct {
	s, other index.Session
	want     sortedPairs
	shape    shape
}

// sortedPairs are those that are there.
type sortedPairs struct {
	values map[string]string
	keys   []string // sorted
}

func (p *sortedPairs) put(key, value string) {
	if at, found := slices.BinarySearch(p.keys, key); !found {
		p.keys = slices.Insert(p.keys, at, key)
	}
	p.values[key] = value
}

func (p *sortedPairs) remove(key string) {
	if at, found := slices.BinarySearch(p.keys, key); found {
		p.keys = slices.Delete(p.keys, at, at+1)
	}
	delete(p.values, key)
}

// clear deletes what the run before left.
func (m *machine) clear(t *rapid.T) {
	pairs, err := scan(m.s, nil, 1<<30, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		if err := m.s.Delete([]byte(p.key)); err != nil {
			t.Fatalf("delete %x: %v", p.key, err)
		}
	}
}

// pick draws a session and a key: one that is there, or any.
func (m *machine) pick(t *rapid.T) (index.Session, []byte) {
	s := m.s
	if rapid.Bool().Draw(t, "other") {
		s = m.other
	}
	if keys := m.want.keys; len(keys) > 0 && rapid.Bool().Draw(t, "there") {
		return s, []byte(keys[rapid.IntRange(0, len(keys)-1).Draw(t, "which")])
	}
	return s, []byte(m.shape.key.Draw(t, "key"))
}

func expect(t *rapid.T, what string, key []byte, err error, ok bool, otherwise error) {
	var target error
	if !ok {
		target = otherwise
	}
	if err != target {
		t.Fatalf("%s %x: %v, want %v", what, key, err, target)
	}
}

func (m *machine) Lookup(t *rapid.T) {
	s, key := m.pick(t)
	before := []byte("before")
	got, err := s.Lookup(key, before)
	v, ok := m.want.values[string(key)]
	expect(t, "lookup", key, err, ok, index.ErrNotFound)
	if string(got) != "before"+v {
		t.Fatalf("lookup %x: %q, want %q", key, got, "before"+v)
	}
}

func (m *machine) Insert(t *rapid.T) {
	s, key := m.pick(t)
	v := m.shape.value.Draw(t, "value")
	_, there := m.want.values[string(key)]
	expect(t, "insert", key, s.Insert(key, []byte(v)), !there, index.ErrExists)
	if !there {
		m.want.put(string(key), v)
	}
}

func (m *machine) Update(t *rapid.T) {
	s, key := m.pick(t)
	v := m.shape.value.Draw(t, "value")
	_, there := m.want.values[string(key)]
	expect(t, "update", key, s.Update(key, []byte(v)), there, index.ErrNotFound)
	if there {
		m.want.put(string(key), v)
	}
}

func (m *machine) Upsert(t *rapid.T) {
	s, key := m.pick(t)
	v := m.shape.value.Draw(t, "value")
	expect(t, "upsert", key, s.Upsert(key, []byte(v)), true, nil)
	m.want.put(string(key), v)
}

// UpsertMany makes the tree grow faster than single operations do.
func (m *machine) UpsertMany(t *rapid.T) {
	for range rapid.IntRange(1, 60).Draw(t, "count") {
		key := m.shape.key.Draw(t, "key")
		v := m.shape.value.Draw(t, "value")
		expect(t, "upsert", []byte(key), m.s.Upsert([]byte(key), []byte(v)), true, nil)
		m.want.put(key, v)
	}
}

func (m *machine) Delete(t *rapid.T) {
	s, key := m.pick(t)
	_, there := m.want.values[string(key)]
	expect(t, "delete", key, s.Delete(key), there, index.ErrNotFound)
	m.want.remove(string(key))
}

// LookupBatch looks keys up that are there, and others, some of them twice.
func (m *machine) LookupBatch(t *rapid.T) {
	var keys [][]byte
	s := m.s
	for range rapid.IntRange(0, 100).Draw(t, "keys") {
		_, key := m.pick(t)
		keys = append(keys, key)
	}
	if rapid.Bool().Draw(t, "other") {
		s = m.other
	}
	visited := make([]int, len(keys))
	if err := s.LookupBatch(keys, func(i int, value []byte, err error) {
		visited[i]++
		v, ok := m.want.values[string(keys[i])]
		expect(t, "lookup in a batch", keys[i], err, ok, index.ErrNotFound)
		if string(value) != v {
			t.Fatalf("lookup %x in a batch: %q, want %q", keys[i], value, v)
		}
	}); err != nil {
		t.Fatalf("lookup of %d keys: %v", len(keys), err)
	}
	for i, n := range visited {
		if n != 1 {
			t.Fatalf("key %x of a batch is visited %d times", keys[i], n)
		}
	}
}

// Prepare prepares for changes of keys that are there, and of others, some of which come.
func (m *machine) Prepare(t *rapid.T) {
	var keys, values [][]byte
	s := m.s
	for range rapid.IntRange(0, 40).Draw(t, "keys") {
		_, key := m.pick(t)
		keys = append(keys, key)
		var value []byte
		if rapid.Bool().Draw(t, "put") {
			value = []byte(m.shape.value.Draw(t, "value"))
		}
		values = append(values, value)
	}
	if rapid.Bool().Draw(t, "other") {
		s = m.other
	}
	if err := s.Prepare(keys, values); err != nil {
		t.Fatalf("prepare for changes of %d keys: %v", len(keys), err)
	}
}

// Defer does what comes next without waiting for the log, until Durable.
func (m *machine) Defer(t *rapid.T) {
	m.s.Defer(true)
	m.other.Defer(true)
}

// Durable ends that.
func (m *machine) Durable(t *rapid.T) {
	for _, s := range []index.Session{m.s, m.other} {
		s.Defer(false)
		if err := s.Durable(s.Position()); err != nil {
			t.Fatalf("wait for the log: %v", err)
		}
	}
}

// Modify tells what the key has, and puts, takes out or keeps. What it puts may be a part of what
// it is told.
func (m *machine) Modify(t *rapid.T) {
	s, key := m.pick(t)
	v := m.shape.value.Draw(t, "value")
	action := index.Action(rapid.IntRange(0, 2).Draw(t, "action"))
	part := rapid.Bool().Draw(t, "part")
	was, there := m.want.values[string(key)]
	err := s.Modify(key, func(old []byte, found bool) ([]byte, index.Action) {
		if string(old) != was || found != there {
			t.Fatalf("modify %x is told %q, %v, want %q, %v", key, old, found, was, there)
		}
		if part {
			v = string(old[len(old)/2:])
			return old[len(old)/2:], action
		}
		return []byte(v), action
	})
	expect(t, "modify", key, err, true, nil)
	switch action {
	case index.Put:
		m.want.put(string(key), v)
	case index.Remove:
		m.want.remove(string(key))
	}
}

func (m *machine) Scan(t *rapid.T) {
	s, start := m.pick(t)
	reverse := rapid.Bool().Draw(t, "reverse")
	limit := rapid.IntRange(0, 150).Draw(t, "limit")
	if rapid.IntRange(0, 9).Draw(t, "from the end") == 0 {
		start = nil
	}
	m.compare(t, s, start, limit, reverse)
}

// whole compares everything.
func (m *machine) whole(t *rapid.T) {
	m.compare(t, m.s, nil, 1<<30, false)
	m.compare(t, m.other, nil, 1<<30, true)
}

func (m *machine) compare(t *rapid.T, s index.Session, start []byte, limit int, reverse bool) {
	got, err := scan(s, start, limit, reverse)
	if err != nil {
		t.Fatalf("scan from %x: %v", start, err)
	}
	var expected []string
	for _, k := range m.want.keys {
		if !reverse && k >= string(start) || reverse && (len(start) == 0 || k < string(start)) {
			expected = append(expected, k)
		}
	}
	if reverse {
		slices.Reverse(expected)
	}
	expected = expected[:min(limit, len(expected))]
	if len(got) != len(expected) {
		t.Fatalf("scan from %x, limit %d, reverse %v: %d pairs, want %d", start, limit, reverse, len(got), len(expected))
	}
	for i, k := range expected {
		if got[i].key != k || !bytes.Equal([]byte(got[i].value), []byte(m.want.values[k])) {
			t.Fatalf("scan from %x, limit %d, reverse %v: pair %d is %x, want %x", start, limit, reverse, i, got[i], k)
		}
	}
}

// Check has nothing to check between actions.
func (m *machine) Check(*rapid.T) {}
