package frame

import (
	"encoding/binary"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Leaves are written back when they are evicted, before a structure change, when their range is
// given, and when the log needs the room of their records.
//
// The requests of a flush are one list to one server, so they take effect in order (G1). It is
// posted once all records of the changes are durable:
//
//  1. WRITE of the words between the first and the last entry that was put. Words in between that
//     were there before get the same value. No slot of the memory server points to new entries,
//     but for those that are put over others of their keys (inplace.go).
//  2. WRITE of each slot that was emptied.
//  3. WRITE of the words between the first and the last slot that got another entry. Those in
//     between get the same value, or were emptied by 2.
//
// A slot is one aligned word (G2), and its entry was complete before. So a reader of the leaf, or
// of what a crash left of it, finds each slot with the old or the new entry, or with a mixture of
// both that does not verify. No key stays there twice: it keeps its slot from insertion to
// deletion, and if it was deleted and inserted again in another slot, 2 precedes 3. What is missing
// after a crash is in the log.

// Queue queues the requests that write f back, from b, which is as large as its leaf. If they do
// not fit into a list with the others, those are posted first.
func (f *Frame) Queue(ps *pool.Session, b []byte, queued *int) error {
	var v View
	f.Open(&v)
	a := f.Addr()
	write := func(from, to int) error {
		if *queued == verbs.MaxList {
			*queued = 0
			if err := ps.Post(); err != nil {
				return err
			}
		}
		for i := from; i < to; i++ {
			binary.LittleEndian.PutUint64(b[8*i:], f.word(i))
		}
		ps.Write(pool.Sole, a+pool.Addr(8*from), b[8*from:8*to])
		*queued++
		return nil
	}
	if low, high := f.written(); high > 0 {
		if err := write(low, high); err != nil {
			return err
		}
	}
	sets, clears, first, last := f.sets(), f.clears(), -1, -1
	for i := range v.Count {
		if clears[i/64]>>(i%64)&1 != 0 {
			if err := write(v.dir+i, v.dir+i+1); err != nil {
				return err
			}
		}
		if sets[i/64]>>(i%64)&1 != 0 {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return nil
	}
	return write(v.dir+first, v.dir+last+1)
}

// Requests returns how many requests write f back. Under the lock.
func (f *Frame) Requests(v *View) (n int) {
	if _, high := f.written(); high > 0 {
		n++
	}
	sets, clears, any := f.sets(), f.clears(), false
	for i := range v.Count {
		n += int(clears[i/64] >> (i % 64) & 1)
		any = any || sets[i/64]>>(i%64)&1 != 0
	}
	if any {
		n++
	}
	return n
}
