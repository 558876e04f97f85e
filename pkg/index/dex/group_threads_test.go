package dex

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
)

// TestGroupsOnThreads: sessions on real threads count keys of three leaves up in groups, half of
// them in the opposite order, and beside them other sessions count the hot one of these alone. No
// count is lost, and none of the groups starves.
func TestGroupsOnThreads(t *testing.T) {
	const sessions, each, limit = 8, 300, 5 * time.Second
	x, _ := openedBy(t, "shm", index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256, CacheBytes: 64 << 10})
	first, err := x.Session()
	mustDo(t, err)
	for n := range uint64(60) {
		mustDo(t, first.Upsert(scanKey(n), make([]byte, 8)))
	}
	keys := [][]byte{scanKey(3), scanKey(30), scanKey(57)}
	up := func(old []byte) []byte {
		return binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(old)+1)
	}
	g, slowest := env.NewWaitGroup(env.Real()), make([]time.Duration, sessions)
	for i := range sessions {
		s, err := x.Session()
		mustDo(t, err)
		s.SetLimit(limit)
		g.Go("session", func() {
			for range each {
				if i%4 == 3 {
					if err := s.Modify(keys[0], func(old []byte, _ bool) ([]byte, index.Action) { return up(old), index.Put }); err != nil {
						t.Error(err)
						return
					}
					continue
				}
				members := make([]index.Member, len(keys))
				for k := range keys {
					members[k].Key = keys[k]
					if i%2 == 1 {
						members[k].Key = keys[len(keys)-1-k]
					}
				}
				begun := time.Now()
				err := s.(index.Grouper).Group(members, func() error {
					for k := range members {
						members[k].Action, members[k].Value = index.Put, up(members[k].Old)
					}
					return nil
				})
				if slowest[i] = max(slowest[i], time.Since(begun)); err != nil {
					t.Error(err)
					return
				}
			}
			mustDo(t, s.Close())
		})
	}
	begun := time.Now()
	g.Wait(env.Forever)
	t.Logf("%d sessions, %d groups each in %v; the slowest group of each took %v", sessions, each, time.Since(begun), slowest)
	for k, want := range []uint64{sessions * each, sessions * each * 3 / 4, sessions * each * 3 / 4} {
		if got, err := first.Lookup(keys[k], nil); err != nil || binary.BigEndian.Uint64(got) != want {
			t.Errorf("key %d is %x, %v, not %d", k, got, err, want)
		}
	}
	mustDo(t, first.Close())
}
