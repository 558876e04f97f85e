package dex

import (
	"bytes"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Scan implements index.Session. It ends where what this client took without a gap ends.
func (s *session) Scan(start []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	r := s.x.ranges.Load()
	from := start
	if len(start) == 0 && !reverse {
		from = s.x.low
	}
	if reverse && len(start) > 0 && bytes.Equal(start, s.x.low) {
		return nil // nothing is below the lowest key
	}
	if reverse {
		i := r.below(start)
		if i < 0 {
			return fmt.Errorf("scan: %w", index.ErrNotOwner)
		}
		low, _ := r.around(r.spans[i].start)
		return s.b.ScanUpTo(low, start, limit, true, visit)
	}
	if r.at(from) < 0 {
		return fmt.Errorf("scan: %w", index.ErrNotOwner)
	}
	_, high := r.around(from)
	return s.b.ScanUpTo(high, start, limit, false, visit)
}

// Clock implements blink.Taker.
func (s *session) Clock() uint64 { return s.x.cache.departed.clock.Load() }

// Offer implements blink.Taker: a leaf that a scan READ gets a frame, if it is worth one. What the scan READ is the leaf now if it has no frame, and has not left the cache since before the READ
// (departed.go); that nobody changes it afterwards is what the new frame's lock is for. A scan may READ the first leaf of the range behind its own,
// which this client may give, and take again, meanwhile, changed by others who note nothing here: therefore all leaves depart when a range is taken.
func (s *session) Offer(a pool.Addr, low, high []byte, rightmost bool, b []byte, since uint64) error {
	if s.x.with.direct() {
		return nil
	}
	if err := s.x.balance.shift(s); err != nil {
		return err
	}
	s.ahead = ahead{done: true} // nothing is READ with what is written back
	f, fresh, err := s.x.cache.reserve(a, false, s.yield)
	if err != nil || !fresh {
		return err
	}
	if !s.x.ranges.Load().whole(low, high, rightmost) || s.x.cache.departed.after(a, since) {
		s.x.cache.drop(f)
		return nil
	}
	f.fill(b)
	f.hit()
	f.unlock()
	return nil
}
