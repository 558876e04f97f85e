package bench

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/workload"
	"github.com/dmindex/dmindex/pkg/index"
)

// pageLength is how many pairs the check reads by one scan.
const pageLength = 4096

// pointChecks is how many items the check looks up, at most.
const pointChecks = 20_000

// check compares the content with what the stream wrote: a scan of everything is sorted and has
// every item that was loaded or inserted, no other, each with a value that one of its writers gave
// it; lookups on all compute servers find the same. Then the first compute server takes what has
// owners, and checks the structure. It returns the memory of an item.
func (b *bencher) check() (itemBytes float64, err error) {
	s, err := b.session(0)
	if err != nil {
		return 0, err
	}
	s.SetLimit(operationLimit)
	b.findLast()
	n, err := b.checkScan(s)
	if err = errors.Join(err, s.Close()); err != nil {
		return 0, fmt.Errorf("content: %w", err)
	}
	if err := b.checkPoints(); err != nil {
		return 0, fmt.Errorf("content: %w", err)
	}
	if err := errors.Join(b.release(), b.monopolize()); err != nil {
		return 0, fmt.Errorf("content: %w", err)
	}
	return b.memoryOf(n)
}

// checkScan returns how many items there are.
func (b *bencher) checkScan(s index.Session) (n uint64, err error) {
	var start, last []byte
	var wrong error
	for more := true; more; {
		page := 0
		err := s.Scan(start, pageLength, false, func(key, value []byte) bool {
			if wrong = b.checkPair(key, value); wrong == nil && last != nil && bytes.Compare(key, last) <= 0 {
				wrong = fmt.Errorf("the scan has key %x after %x", key, last)
			}
			last = append(last[:0], key...)
			page++
			return wrong == nil
		})
		if err = errors.Join(err, wrong, b.ctx.Err()); err != nil {
			return n, err
		}
		n += uint64(page)
		start, more = append(start[:0], last...), page == pageLength
		more = more && increment(start)
	}
	if want := b.run.Records + b.present.Len(); n != want {
		return n, fmt.Errorf("the scan has %d items, and %d were loaded or inserted", n, want)
	}
	return n, nil
}

// increment makes key the next one of its length; false if it is the last.
func increment(key []byte) bool {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i]++; key[i] != 0 {
			return true
		}
	}
	return false
}

// findLast finds the last operation of the stream that changes each item: its writer's number, 0 if
// there is none.
func (b *bencher) findLast() {
	b.last = make([]uint64, b.stream.Items)
	for i, o := range b.stream.Ops {
		if b.behind[i] > 0 {
			b.last[o.Item()] = uint64(i) + 1
		}
	}
}

// checkPair reports whether the stream has an operation that wrote this pair, and that no change of
// the item is lost: none that began after that operation was answered.
func (b *bencher) checkPair(key, value []byte) error {
	item, err := b.keys.Item(key)
	if err != nil {
		return fmt.Errorf("key %x: %w", key, err)
	}
	if item >= b.stream.Items || !b.isPresent(item) {
		return fmt.Errorf("item %d is there, which nobody loaded or inserted", item)
	}
	writer, ok := workload.WriterOf(value, b.run.ValueBytes, item, true)
	began := writer // operations up to this number began before writer was answered
	if ok && writer == 0 {
		ok = b.stream.IsLoaded(item)
	} else if ok {
		ok = writer <= uint64(len(b.stream.Ops))
		if ok {
			behind := b.behind[writer-1]
			ok = (behind > 0 || b.doubt[writer-1]) && b.stream.Ops[writer-1].Item() == item
			began += uint64(behind) - 1
			// it may have taken effect at any time until its client was fenced
			if b.doubt[writer-1] {
				began = uint64(len(b.stream.Ops))
			}
		}
	}
	if !ok {
		return fmt.Errorf("item %d: %w: %x", item, workload.ErrForeign, value)
	}
	if last := b.last[item]; last > began {
		return fmt.Errorf("item %d: the value of operation %d is there, and %w: operation %d came after it", item, writer, workload.ErrLost, last)
	}
	return nil
}

// checkPoints looks items up, on all compute servers in turn.
func (b *bencher) checkPoints() error {
	sessions := make([]index.Session, 0, len(b.members))
	defer func() {
		for _, s := range sessions {
			s.Close() // the check is over, and nothing of it is written
		}
	}()
	for i := range b.members {
		s, err := b.session(i)
		if err != nil {
			return err
		}
		s.SetLimit(operationLimit)
		sessions = append(sessions, s)
	}
	var key, value []byte
	step := b.stream.Items/pointChecks + 1
	for n, item := 0, uint64(0); item < b.stream.Items; n, item = n+1, item+step {
		key = b.keys.Append(key[:0], item)
		var err error
		value, err = sessions[n%len(sessions)].Lookup(key, value[:0])
		switch {
		case err == nil:
			err = b.checkPair(key, value)
		case errors.Is(err, index.ErrNotFound) && !b.isPresent(item):
			err = nil
		}
		if err != nil {
			return fmt.Errorf("lookup of item %d: %w", item, err)
		}
	}
	return nil
}

// memoryOf is the memory of each of n items: of the nodes, if the design can check itself, else of
// the chunks.
func (b *bencher) memoryOf(n uint64) (float64, error) {
	if c, ok := b.members[0].Index.(index.Checker); ok {
		found, err := c.Check()
		if err != nil {
			return 0, fmt.Errorf("structure: %w", err)
		}
		return float64(found.NodeBytes+found.BlockBytes) / float64(n), nil
	}
	chunks, err := b.cluster.chunks()
	return float64(chunks*uint64(b.run.chunkBytes())) / float64(n), err
}
