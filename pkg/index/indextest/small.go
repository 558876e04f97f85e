package indextest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// smallTree opens an empty index with several clients at once, which all insert at once: the root
// is made, splits and grows under their feet. Published programs crash here.
func (r *runner) smallTree(t *testing.T) {
	for round := range scale(12) {
		o := index.Options{Uint64: true, MaxValueBytes: 8, NodeBytes: 256}
		if round%2 == 1 {
			o = index.Options{MaxKeyBytes: 24, MaxValueBytes: 16, NodeBytes: 256}
		}
		o = caches(o)[round/2%2]
		t.Run(fmt.Sprint(round, cacheName(o)), func(t *testing.T) { r.smallTreeOn(t, roomy(o)) })
	}
}

func (r *runner) smallTreeOn(t *testing.T, o index.Options) {
	const clients, each = 4, 120
	c := r.cluster(t, 16)
	var wg sync.WaitGroup
	indexes := make([]index.Index, clients)
	for i := range clients {
		p := c.Open(t)
		wg.Go(func() {
			x, err := r.Design.Open(p, o)
			if err != nil {
				t.Error(err)
				return
			}
			if !r.Design.SharesAll {
				x = r.fleet.join(t, x, o)
			}
			indexes[i] = x
			s, err := x.Session()
			if err != nil {
				t.Error(err)
				return
			}
			for n := range each { // neighbours, so that clients meet in every leaf; each key twice
				key := number(uint64(n*clients/2 + i/2))
				if err := s.Insert(key, key); err != nil && !errors.Is(err, index.ErrExists) {
					t.Errorf("insert %x: %v", key, err)
				}
				if v, err := s.Lookup(key, nil); err != nil || string(v) != string(key) {
					t.Errorf("lookup %x after its insertion: %x, %v", key, v, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	if found := check(t, indexes[0]); found.Pairs != clients*each/2 || found.Unlinked != 0 {
		t.Errorf("%+v, want %d pairs and no unlinked node", found, clients*each/2)
	}
	s := session(t, indexes[1])
	if got, err := scan(s, nil, 1<<20, false); err != nil || len(got) != clients*each/2 || ordered(got, false) != nil {
		t.Errorf("scan of %d pairs: %v, %v", len(got), err, ordered(got, false))
	}
	must(t, s.Close())
	for _, x := range indexes {
		must(t, x.Close())
	}
}
