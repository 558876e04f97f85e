package dex

import (
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Claim implements btree.LeafCache: it locks the leaf's frame, and makes one if there is none.
// Whether the leaf may be merged is checked under that lock, because a leaf without a frame may be
// another client's by the time that it has one. The check before only avoids frames that are not
// needed.
func (x *dex) Claim(s *btree.Session, a pool.Addr, low, high []byte, rightmost bool) (bool, error) {
	may := func() bool {
		if s.Mergeable != nil {
			return s.Mergeable(low, high, rightmost)
		}
		return x.ranges.Load().MayMerge(low, high, rightmost)
	}
	if !may() {
		return false, nil
	}
	log := x.log.Appender()
	flush := func(f *frame.Frame) error { return x.flush(s, log, f) }
	f, fresh, err := x.cache.Reserve(a, true, flush)
	if f == nil || err != nil {
		return false, err
	}
	if !fresh && !f.TryLock() {
		return false, nil
	}
	if !fresh && f.Addr() != a {
		f.Unlock()
		return false, nil
	}
	ok := may()
	if ok {
		err = flush(f)
	}
	switch {
	case ok && err == nil:
		return true, nil
	case fresh:
		x.cache.Drop(f)
	default:
		f.Unlock()
	}
	return false, err
}

// Release implements btree.LeafCache.
func (x *dex) Release(a pool.Addr) {
	x.cache.Drop(x.cache.Find(a))
}

// Copy implements btree.LeafCache.
func (x *dex) Copy(s *btree.Session, a pool.Addr, b []byte) (bool, error) {
	for {
		f := x.cache.Find(a)
		if f == nil {
			return false, nil
		}
		version := f.Version()
		if version&1 == 0 && f.Addr() == a {
			f.CopyTo(b)
			lsn := f.PageLSN()
			if f.Version() == version {
				f.Hit()
				if lsn <= x.log.Durable() {
					return true, nil
				}
				return true, op.Failure(x.log.Appender().WaitIn(s.PS, lsn), false)
			}
		}
		if err := s.Retry(); err != nil {
			return false, err
		}
	}
}
