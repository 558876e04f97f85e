// Package rounds is LookupBatch of package index, over nodes of any format. It goes round by round:
// what some keys need is READ in one round trip to all servers, and then their values that lie in
// blocks. A key of which that does not say enough is looked up alone.
//
// What a round has got is forgotten at its end, so the epochs wait for no more than a round,
// however many keys there are. The limit is of the whole batch.
package rounds

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/blocks"
)

// Most is how many keys of a batch are looked up in one round at most.
const Most = 64

// Outcome is what the READs of a round say of a key.
type Outcome uint8

// The outcomes.
const (
	Undecided Outcome = iota // nothing
	Absent                   // it is not there
	Found                    // its value
	InBlock                  // an entry that refers to its value
)

// Operation is that of a session (package op). Resume forgets what the design has got.
type Operation interface {
	Begin()
	End()
	Resume()
	Counted()
}

// Nodes is what a design READs.
type Nodes interface {
	// Read READs what the first n of keys need, of as many as there is room for, at least one and
	// Most at most. It begins a round.
	Read(keys [][]byte) (n int, err error)

	// Search says what was READ for key i of the round, and b, which is valid until the next one.
	// Keys of a round are searched once each, in their order.
	Search(i int, key []byte) (b []byte, o Outcome)

	// Value is that of a key of which a block has b. false: the block is another key's.
	Value(key, b []byte) ([]byte, bool)

	// Find is Lookup as a part of an operation.
	Find(key, dst []byte) ([]byte, error)
}

// Lookups are the batches of one session.
type Lookups struct {
	n       int
	entries [Most][]byte // that refer to blocks, in the order of their keys
	keys    [Most]int    // of these
	value   []byte       // of a key that is looked up alone
}

// Len implements blocks.Entries.
func (l *Lookups) Len() int { return l.n }

// Entry implements blocks.Entries.
func (l *Lookups) Entry(i int) []byte { return l.entries[i] }

// Run implements LookupBatch of index.Session, as one operation.
func (l *Lookups) Run(o Operation, nodes Nodes, b *blocks.Session, keys [][]byte, visit func(i int, value []byte, err error)) error {
	o.Begin()
	defer o.End()
	for first := 0; first < len(keys); {
		if first > 0 {
			o.End()
			o.Resume()
		}
		n, err := nodes.Read(keys[first:])
		if err != nil {
			return explain(err)
		}
		if err := l.visitRound(nodes, b, keys, first, n, visit); err != nil {
			return err
		}
		for i := range n {
			if first+i > 0 { // Begin counts one
				o.Counted()
			}
		}
		first += n
	}
	return nil
}

// visitRound visits the n keys of the round, of which the first is keys[first].
func (l *Lookups) visitRound(nodes Nodes, b *blocks.Session, keys [][]byte, first, n int, visit func(i int, value []byte, err error)) error {
	l.n = 0
	for i := range n {
		at := first + i
		switch found, o := nodes.Search(i, keys[at]); o {
		case Absent:
			visit(at, nil, index.ErrNotFound)
		case Found:
			visit(at, found, nil)
		case InBlock:
			l.entries[l.n], l.keys[l.n] = append(l.entries[l.n][:0], found...), at
			l.n++
		default:
			if err := l.visitAlone(nodes, keys, at, visit); err != nil {
				return err
			}
		}
	}
	b.BeginScan()
	for i, at := range l.keys[:l.n] {
		value, err := b.Next(l, i, 1, l.n-i)
		if err != nil {
			return explain(err)
		}
		ok := value != nil
		if ok {
			value, ok = nodes.Value(keys[at], value)
		}
		if !ok { // looking the key up says why
			if err := l.visitAlone(nodes, keys, at, visit); err != nil {
				return err
			}
			b.BeginScan()
			continue
		}
		visit(at, value, nil)
	}
	return nil
}

// visitAlone looks key i of a batch up as if it were the only one.
func (l *Lookups) visitAlone(nodes Nodes, keys [][]byte, i int, visit func(i int, value []byte, err error)) (err error) {
	switch l.value, err = nodes.Find(keys[i], l.value[:0]); err {
	case nil:
		visit(i, l.value, nil)
	case index.ErrNotFound:
		visit(i, nil, err)
	default:
		return err
	}
	return nil
}

func explain(err error) error { return fmt.Errorf("look up: %w", err) }
