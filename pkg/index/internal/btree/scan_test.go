package btree

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// lateCopy keeps nothing, and does not answer in time for the leaf after so many.
type lateCopy struct {
	keepsNothing
	after int
}

func (c *lateCopy) Copy(*Session, pool.Addr, []byte) (bool, error) {
	c.after--
	if c.after == 0 {
		return false, index.ErrTimeout
	}
	return false, nil
}

// TestScanThatEndsBetweenItsREADs: a scan has queued the READ of a leaf when its limit ends it, as
// it asks for a copy of the next one. What the session does next posts its own requests only.
func TestScanThatEndsBetweenItsREADs(t *testing.T) {
	cache := &lateCopy{}
	_, s := placed(t, cache)
	for n := range uint64(200) {
		fatal(t, s.change(number(n), number(n)))
	}
	_, err := s.scan(nil, 200, false) // the inner nodes are in the cache
	fatal(t, err)
	cache.after = 3
	if _, err := s.scan(nil, 200, false); !errors.Is(err, index.ErrTimeout) || cache.after != 0 {
		t.Fatalf("the scan ends with %v, %d leaves before the late one", err, cache.after)
	}
	before := s.Counters()
	if v, err := s.lookup(number(7)); err != nil || string(v) != string(number(7)) {
		t.Errorf("a lookup finds %x: %v", v, err)
	}
	if d := s.Counters().Sub(&before); d.Requests[verbs.Read] != 1 {
		t.Errorf("a lookup behind the scan posts %+v", d)
	}
}
