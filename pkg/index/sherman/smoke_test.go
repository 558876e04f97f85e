package sherman_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/sherman"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

func TestSmoke(t *testing.T) {
	for _, provider := range []string{"shm", "tcp"} {
		for _, o := range []index.Options{{Uint64: true, MaxValueBytes: 8}, {MaxKeyBytes: 64, MaxValueBytes: 100}} {
			for _, sorted := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/uint64=%v/sorted=%v", provider, o.Uint64, sorted), func(t *testing.T) {
					smoke(t, provider, o, sorted)
				})
			}
		}
	}
}

func smoke(t *testing.T, provider string, o index.Options, sorted bool) {
	c := pooltest.New(t, pooltest.Options{Provider: provider, Chunks: 16})
	x, err := sherman.Open(c.Open(t), o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 2))
	m := map[string]string{}
	n := 20000
	if provider == "tcp" {
		n = 3000
	}
	for i := range n {
		k := r.Uint64()
		if sorted {
			k = uint64(i)
		}
		key := binary.BigEndian.AppendUint64(nil, k)
		v := binary.BigEndian.AppendUint64(nil, r.Uint64())
		if !o.Uint64 {
			key = fmt.Appendf(nil, "some/prefix/%020d", k)
			v = bytes.Repeat([]byte{byte(k)}, r.IntN(101))
		}
		if err := s.Upsert(key, v); err != nil {
			t.Fatal(i, err)
		}
		m[string(key)] = string(v)
	}
	keys := []string{}
	for k, v := range m {
		keys = append(keys, k)
		got, err := s.Lookup([]byte(k), nil)
		if err != nil || string(got) != v {
			t.Fatalf("%x: %x %v, want %x", k, got, err, v)
		}
	}
	sort.Strings(keys)
	i := 0
	if err := s.Scan(nil, 1<<30, false, func(k, v []byte) bool {
		if string(k) != keys[i] || string(v) != m[keys[i]] {
			t.Fatalf("%d: %q %q", i, k, keys[i])
		}
		i++
		return true
	}); err != nil || i != len(keys) {
		t.Fatal(err, i, len(keys))
	}
	if err := s.Scan(nil, 1<<30, true, func(k, v []byte) bool {
		i--
		if string(k) != keys[i] || string(v) != m[keys[i]] {
			t.Fatalf("%d: %q %q", i, k, keys[i])
		}
		return true
	}); err != nil || i != 0 {
		t.Fatal(err, i)
	}
	for _, k := range keys {
		if err := s.Delete([]byte(k)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Lookup([]byte(k), nil); !errors.Is(err, index.ErrNotFound) {
			t.Fatal(err)
		}
	}
	t.Logf("%+v chunks %d", x.Stats(), c.UsedChunks())
}
