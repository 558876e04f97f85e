package partition

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func servers(ids ...uint32) (out []Server) {
	for _, id := range ids {
		out = append(out, Server{ID: id, Name: fmt.Sprintf("pod-%d", id), RPC: fmt.Sprintf("pod-%d:7480", id), RESP: fmt.Sprintf("pod-%d:6379", id)})
	}
	return out
}

func must(t testing.TB, m *Map, err error) *Map {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestEqualWidth(t *testing.T) {
	f := func(keys KeyType, bytes, n int, want ...string) {
		t.Helper()
		var ids []uint32
		for i := range n {
			ids = append(ids, uint32(i+1))
		}
		m, err := EqualWidth("uid", servers(ids...), keys, bytes)
		must(t, m, err)
		var got []string
		for _, r := range m.Ranges {
			got = append(got, fmt.Sprintf("%x", r.Start))
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s, %d servers: starts %q, want %q", keys, n, got, want)
		}
	}
	f(Bytes, 0, 1, "")
	f(Bytes, 0, 2, "", "80")
	f(Bytes, 0, 3, "", "5555555555555554", "aaaaaaaaaaaaaaaa")
	f(Bytes, 0, 4, "", "40", "80", "c0")
	f(Bytes, 9, 3, "", "5555555555555554", "aaaaaaaaaaaaaaaa")
	f(Bytes, 4, 3, "", "55555555", "aaaaaaaa")
	f(Bytes, 1, 3, "", "55", "aa")
	f(Uint64, 8, 2, "", "8000000000000000")
}

func TestOwnerAtTheBoundaries(t *testing.T) {
	m, err := ByBoundaries("uid", servers(7, 3, 5), [][]byte{[]byte("f"), []byte("m"), []byte("t")})
	must(t, m, err)
	for key, want := range map[string]uint32{"": 3, "e\xff": 3, "f": 5, "f\x00": 5, "lzz": 5, "m": 7, "s": 7, "t": 3, "\xff\xff": 3} {
		if got := m.Owner([]byte(key)); got != want {
			t.Errorf("owner of %q is %d, want %d", key, got, want)
		}
	}
	if got := m.Range([]byte("g")).String(); got != `["f", "m")` {
		t.Errorf("range of g is %s", got)
	}
	if got := m.Range([]byte("z")).String(); got != `["t", end)` {
		t.Errorf("range of z is %s", got)
	}
	key := []byte("lzz")
	if n := testing.AllocsPerRun(100, func() { m.Owner(key); m.Server(5) }); n != 0 {
		t.Errorf("finding an owner allocates %v times", n)
	}
}

func TestValidateNamesTheFault(t *testing.T) {
	f := func(want string, spoil func(m *Map)) {
		t.Helper()
		m, _ := ByBoundaries("uid", servers(1, 2), [][]byte{[]byte("m")})
		spoil(m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if _, err := m.Marshal(nil); err == nil {
			t.Errorf("a map with the fault %q was encoded", want)
		}
	}
	f("generation is 0", func(m *Map) { m.Generation = 0 })
	f("identity", func(m *Map) { m.Index = "" })
	f("0 servers", func(m *Map) { m.Servers = nil })
	f("0 ranges", func(m *Map) { m.Ranges = nil })
	f(`below "a" have no owner`, func(m *Map) { m.Ranges[0].Start = []byte("a") })
	f("IDs must ascend", func(m *Map) { m.Servers[1].ID = 1 })
	f("starts must ascend", func(m *Map) { m.Ranges = append(m.Ranges, m.Ranges[1]) })
	f("owner 9", func(m *Map) { m.Ranges[1].Owner = 9 })
	f("epoch 2", func(m *Map) { m.Ranges[1].Epoch = 2 })
	f("1025 bytes", func(m *Map) { m.Ranges[1].Start = bytes.Repeat([]byte("x"), 1025) })
	f("no range", func(m *Map) { m.Planned = []Planned{{Start: []byte("b"), End: []byte("a"), To: 1}} })
	f("they must ascend", func(m *Map) { m.Planned = []Planned{{To: 1}, {Start: []byte("a"), To: 1}} })
	f("server 7", func(m *Map) { m.Planned = []Planned{{To: 7}} })
	f("longer than 255", func(m *Map) { m.Servers[0].RPC = strings.Repeat("x", 256) })
}

func TestMarshalIsBounded(t *testing.T) {
	var boundaries [][]byte
	for i := range MaxRanges - 1 {
		boundaries = append(boundaries, fmt.Appendf(nil, "%04d%s", i, strings.Repeat("x", 500)))
	}
	m, err := ByBoundaries("uid", servers(1, 2), boundaries)
	must(t, m, err)
	if _, err := m.Marshal(nil); err == nil || !strings.Contains(err.Error(), "shorter boundaries") {
		t.Errorf("a map of 2 MB was encoded: %v", err)
	}
	if _, err := Unmarshal(make([]byte, MaxBytes+1)); !errors.Is(err, ErrFormat) {
		t.Errorf("more than MaxBytes were looked at: %v", err)
	}
}

func TestUnmarshalNamesTheVersion(t *testing.T) {
	m, err := EqualWidth("uid", servers(1), Bytes, 0)
	data, _ := must(t, m, err).Marshal(nil)
	data[4] = 9
	if _, err := Unmarshal(data); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("error %v does not name version 9", err)
	}
	data[4] = 1
	data[20] ^= 1
	if _, err := Unmarshal(data); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a flipped bit gave %v", err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, ids := range [][]uint32{{1}, {0, 1, 2}, {5, 9}} {
		m, err := EqualWidth("uid", servers(ids...), Bytes, 0)
		data, _ := must(f, m, err).Marshal(nil)
		f.Add(data[:len(data)-4])
		m.Planned = []Planned{{[]byte("a"), []byte("b"), ids[0]}, {[]byte("b"), nil, ids[0]}}
		data, _ = must(f, m, err).Marshal(nil)
		f.Add(data[:len(data)-4])
	}
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		data := withChecksum(body)
		m, err := Unmarshal(data)
		if err != nil {
			return
		}
		again, err := m.Marshal(nil)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%x decodes to a map that encodes to %x, %v", data, again, err)
		}
	})
}

func TestDescribe(t *testing.T) {
	old, err := ByBoundaries("uid", servers(1, 2), [][]byte{[]byte("m")})
	must(t, old, err)
	next := &Map{Generation: 2, Index: "uid", Servers: servers(2, 3), Ranges: []Range{
		{Owner: 3, Epoch: 2}, {Start: []byte("m"), Owner: 2, Epoch: 1}}}
	const want = `generation 1 -> 2, 2 -> 2 servers, 2 -> 2 ranges
  ["", "m")                                pod-3, epoch 2, was pod-1
  ["m", end)                               pod-2, epoch 1
  joined: pod-3
  left: pod-1
`
	if got := Describe(old, next); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := Describe(nil, old); !strings.HasPrefix(got, "generation 1, 2 servers, 2 ranges\n") || strings.Contains(got, "was") {
		t.Errorf("got\n%s", got)
	}
}
