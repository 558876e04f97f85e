package dex_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// TestBlocksOutliveTheirSuccessors looks at the memory servers all the time while some sessions of
// one client replace long values: a block keeps its head, so is neither dead nor anything else,
// until the log has a reference to the block that takes its place. So whenever the client dies,
// what a replay finds last of a key is there.
func TestBlocksOutliveTheirSuccessors(t *testing.T) {
	replaced := 0
	for i := range uint64(6) {
		replaced += watchedWorld(t, i, index.Options{Uint64: true, MaxValueBytes: 64, InlineBytes: 8, NodeBytes: 256, CacheBytes: 4 << 10}, (*owners).replaceWatched)
	}
	t.Logf("%d blocks seen to be given up", replaced)
	if replaced < 50 {
		t.Errorf("only %d blocks were seen to be given up: they are not watched", replaced)
	}
}

// blockHead is the fixed part of a block, before its value.
const blockHead = 24

// change is a change of a long value that is under way: of which block takes the place of which.
type change struct {
	// of the block that goes: its head in the memory of the server, and how that was
	head, was []byte
	next      []byte // the value of the one that comes
}

// replaceWatched replaces the values of some keys for each session, while the memory is watched.
// replaced is how many blocks were given up in its sight.
func (o *owners) replaceWatched() (replaced int, err error) {
	const sessions, keys, rounds = 8, 4, 100
	g := &owned{low: 0, high: sessions * keys, start: simKey(0)}
	o.ranges = []*owned{g}
	o.make()
	c := o.living[0]
	if err := o.moveTo(g, c); err != nil {
		return 0, err
	}
	var under [sessions]*change
	over, ended := false, o.main.NewEvent()
	o.main.Go("watch", func() {
		defer ended.Set()
		for ; !over; o.main.Yield() {
			for i, d := range under {
				if d == nil || bytes.Equal(d.head, d.was) {
					continue
				}
				if under[i] = nil; !o.logRefers(d.next) {
					o.w.Fail(fmt.Errorf("a block is given up, and the log has no reference to the one with %s", d.next))
					return
				}
				replaced++
			}
		}
	})
	_, err = o.in(c, "write", func() error {
		group := env.NewWaitGroup(c.p)
		var failed error
		for i := range sessions {
			group.Go("session", func() {
				if err := o.replace(c, uint64(i*keys), keys, rounds, &under[i]); err != nil {
					failed = err
				}
			})
		}
		group.Wait(env.Forever)
		return failed
	})
	over = true
	ended.Wait(env.Forever)
	return replaced, err
}

// replace writes keys of one session again and again, and shows what is under way.
func (o *owners) replace(c *owner, from, keys uint64, rounds int, under **change) error {
	s, err := c.x.Session()
	if err != nil {
		return err
	}
	blocks := make([][]byte, keys) // the heads of those that the keys have
	for n := range rounds {
		k := uint64(n) % keys
		value := fmt.Appendf(nil, "the long value %08d of key %08d", n, from+k)
		if blocks[k] != nil {
			*under = &change{blocks[k], bytes.Clone(blocks[k]), value}
		}
		if err := s.Upsert(simKey(from+k), value); err != nil {
			return err
		}
		*under = nil
		if blocks[k], _ = o.block(value); blocks[k] == nil {
			return fmt.Errorf("%s is in no block", value)
		}
	}
	return s.Close()
}

// block is the head of the block with a value, and its address; nil if there is none.
func (o *owners) block(value []byte) (head []byte, a pool.Addr) {
	for _, k := range o.c.Chunks() {
		if at := bytes.Index(k.Memory, value); at >= blockHead {
			return k.Memory[at-blockHead : at : at], k.First + pool.Addr(at-blockHead)
		}
	}
	return nil, 0
}

// logRefers reports whether the memory of logs, the only nodes of such a size, has a reference to
// the block with a value.
func (o *owners) logRefers(value []byte) bool {
	_, a := o.block(value)
	reference := binary.LittleEndian.AppendUint64(nil, uint64(a))
	for _, k := range o.c.Chunks() {
		for _, node := range k.Nodes() {
			if a != 0 && len(node) > 4<<10 && bytes.Contains(node, reference) {
				return true
			}
		}
	}
	return false
}
