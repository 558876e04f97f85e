package dex_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
)

// TestGroupsOfNeighbours: groups change many keys of few leaves, which have no room for so many
// longer values beside the former ones. All of them find room, and each key has what a map has.
func TestGroupsOfNeighbours(t *testing.T) {
	for _, inline := range []int{0, 12} { // longer values lie in blocks
		opts := index.Options{Uint64: true, MaxValueBytes: 40, InlineBytes: inline, NodeBytes: 512, CacheBytes: 256 << 10}
		o := poolsim.Options{Servers: 1, Executor: executor, Chunks: 60, ChunkBytes: 64 << 10, Locks: 64}
		inSimulation(t, o, func(c *poolsim.Cluster, p *simenv.Process) error {
			_, s, err := openAll(c, p, nil, opts)
			if err != nil {
				return err
			}
			r, model := rand.New(rand.NewPCG(5, uint64(inline))), map[string]string{}
			for n := range 400 {
				if err := groupOfNeighbours(s, r, model, 1+r.IntN(60)); err != nil {
					return fmt.Errorf("group %d, inline %d: %w", n, inline, err)
				}
			}
			for key, want := range model {
				if got, err := s.Lookup([]byte(key), nil); string(got) != want || err != nil {
					return fmt.Errorf("in the end %x is %q, %w, not %q", key, got, err, want)
				}
			}
			found, err := s.Lookup(simKey(1000), nil)
			if !errors.Is(err, index.ErrNotFound) {
				return fmt.Errorf("a key that nobody wrote is %q, %w", found, err)
			}
			return s.Close()
		})
	}
}

// groupOfNeighbours changes some keys next to each other, or removes them.
func groupOfNeighbours(s index.Session, r *rand.Rand, model map[string]string, keys int) error {
	first, most, removes := r.Uint64N(200), 1+r.IntN(40), r.IntN(5) == 0
	var members []index.Member
	for n := range keys {
		members = append(members, index.Member{Key: simKey(first + uint64(n))})
	}
	if err := s.(index.Grouper).Group(members, func() error {
		for i := range members {
			m := &members[i]
			if was, there := model[string(m.Key)]; there != m.Found || string(m.Old) != was {
				return fmt.Errorf("%x is %q, %v, not %q", m.Key, m.Old, m.Found, was)
			}
			switch {
			case removes && r.IntN(2) == 0:
				m.Action = index.Remove
			case r.IntN(8) > 0:
				m.Action, m.Value = index.Put, bytes.Repeat([]byte{byte('a' + r.IntN(26))}, 1+r.IntN(most))
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, m := range members {
		switch m.Action {
		case index.Put:
			model[string(m.Key)] = string(m.Value)
		case index.Remove:
			delete(model, string(m.Key))
		}
	}
	return nil
}

// TestGroupsAreBounded: a group that is too large, has a key twice, or whose change fails does
// nothing, and says why.
func TestGroupsAreBounded(t *testing.T) {
	opts := index.Options{Uint64: true, MaxValueBytes: 1 << 10, InlineBytes: 1 << 10, NodeBytes: 8 << 10, CacheBytes: 6 << 20}
	o := poolsim.Options{Servers: 1, Executor: executor, Chunks: 60, ChunkBytes: 256 << 10, Locks: 64}
	inSimulation(t, o, func(c *poolsim.Cluster, p *simenv.Process) error {
		_, s, err := openAll(c, p, nil, opts)
		if err != nil {
			return err
		}
		failed := errors.New("it says no")
		for _, x := range []struct {
			keys  []uint64
			value int
			fails error
			want  string
		}{
			{keys: numbers(80), value: 1 << 10, want: "divide them"},
			{keys: numbers(5000), value: 1, want: "with this cache"},
			{keys: []uint64{1, 2, 1}, value: 1, want: "twice"},
			{keys: []uint64{1, 2}, value: 1 << 11, want: "too long"},
			{keys: []uint64{1, 2}, value: 1, fails: failed, want: failed.Error()},
		} {
			var members []index.Member
			for _, n := range x.keys {
				members = append(members, index.Member{Key: simKey(n)})
			}
			err := s.(index.Grouper).Group(members, func() error {
				for i := range members {
					members[i].Action, members[i].Value = index.Put, make([]byte, x.value)
				}
				return x.fails
			})
			if err == nil || !strings.Contains(err.Error(), x.want) {
				return fmt.Errorf("a group of %d keys: %w, want %q", len(x.keys), err, x.want)
			}
			for _, n := range x.keys {
				if got, err := s.Lookup(simKey(n), nil); !errors.Is(err, index.ErrNotFound) {
					return fmt.Errorf("after that key %d is %q, %w", n, got, err)
				}
			}
		}
		return s.Close()
	})
}

// numbers are the first n.
func numbers(n uint64) (all []uint64) {
	for i := range n {
		all = append(all, i)
	}
	return all
}
