package dex

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blink"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Claim implements blink.Keeper: the leaf gets a frame, if it has none, whose lock keeps everybody away.
func (x *dex) Claim(s *blink.Session, a pool.Addr, low, high []byte, rightmost bool) (bool, error) {
	taken := x.ranges.Load()
	if r := x.replaying.Load(); r != nil && r.s == s {
		taken = &r.taken
	}
	if !taken.whole(low, high, rightmost) {
		return false, nil
	}
	if !x.with.partitioning {
		return true, nil
	}
	log := x.log.Appender()
	flush := func(f *frame) error { return x.flush(s, log, index.DefaultLimit, f) }
	f, fresh, err := x.cache.reserve(a, true, flush)
	if f == nil || err != nil {
		return false, err
	}
	if fresh {
		return true, nil
	}
	if !f.tryLock() {
		return false, nil
	}
	if f.addr.Load() != uint64(a) {
		f.unlock()
		return false, nil
	}
	if err := flush(f); err != nil {
		f.unlock()
		return false, err
	}
	return true, nil
}

// Release implements blink.Keeper.
func (x *dex) Release(a pool.Addr) {
	if x.with.partitioning {
		x.cache.drop(x.cache.find(a))
	}
}

// Copy implements blink.Keeper.
func (x *dex) Copy(s *blink.Session, a pool.Addr, b []byte) (bool, error) {
	for !x.with.direct() {
		f := x.cache.find(a)
		if f == nil {
			return false, nil
		}
		version := f.version.Load()
		if version&1 == 0 && f.addr.Load() == uint64(a) {
			for i := range f.words {
				binary.LittleEndian.PutUint64(b[8*i:], f.word(i))
			}
			lsn := f.lsn.Load()
			if f.version.Load() == version {
				f.hit()
				if lsn <= x.log.Durable() {
					return true, nil
				}
				return true, blink.Failure(x.log.Appender().Wait(lsn, index.DefaultLimit), false)
			}
		}
		if err := s.Again(); err != nil {
			return false, err
		}
	}
	return false, nil
}
