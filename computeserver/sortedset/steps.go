package sortedset

import rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"

// step is operations that are done side by side. Operations and their bytes lie in few arrays,
// which are not used again: what could not be sent in time may still be held (dostream.Stream.Do).
type step struct {
	ops  []*rpcv1.Operation
	slab []rpcv1.Operation
	data []byte
}

// newStep makes room for some operations, and for the bytes of their keys and values. More of both
// take arrays of their own.
func newStep(operations, bytes int) *step {
	return &step{ops: make([]*rpcv1.Operation, 0, operations), slab: make([]rpcv1.Operation, operations), data: make([]byte, 0, bytes)}
}

// add adds an operation, whose fields are still to be set.
func (t *step) add(kind rpcv1.Operation_Kind) *rpcv1.Operation {
	if len(t.slab) == 0 {
		t.slab = make([]rpcv1.Operation, 8)
	}
	op := &t.slab[0]
	t.slab = t.slab[1:]
	op.Kind = kind
	t.ops = append(t.ops, op)
	return op
}

// ownValue makes what from on was appended to the step's bytes a value of its own.
func (t *step) ownValue(data []byte, from int) []byte {
	t.data = data
	return data[from:len(data):len(data)]
}

func (t *step) item(n number, member []byte) []byte {
	from := len(t.data)
	return t.ownValue(append(n.appendUnder(t.data, isItem), member...), from)
}

func (t *step) entry(n number, score float64, member []byte, of stamp) []byte {
	from := len(t.data)
	return t.ownValue(n.appendEntry(t.data, score, member, of), from)
}

func (t *step) stored(i item) []byte {
	from := len(t.data)
	return t.ownValue(i.appendTo(t.data), from)
}

// unmark adds the step that takes the mark of an entry away, if that is there.
func (t *step) unmark(n number, score float64, member []byte, of stamp) {
	t.add(rpcv1.Operation_UPDATE).Key = t.entry(n, score, member, of)
}

// unmarked is the error of an unmark after which the entry may still have its mark.
func unmarked(o *rpcv1.Outcome) error {
	if o.Code == rpcv1.Outcome_OK || o.Code == rpcv1.Outcome_NOT_FOUND {
		return nil
	}
	return &Failure{o}
}

// itemKeys and entryKeys are how many bytes the keys of the items, or of an entry each, of members
// take together.
func itemKeys(edits []*edit) (bytes int) {
	for _, e := range edits {
		bytes += underBytes + len(e.Member)
	}
	return bytes
}

func entryKeys(edits []*edit) (bytes int) {
	for _, e := range edits {
		bytes += entryBytes + escapedLen(e.Member)
	}
	return bytes
}

// do is Index.Do of any number of operations.
func (s *Sets) do(t *step) []*rpcv1.Outcome { return s.doAll(t.ops) }

func (s *Sets) doAll(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	if len(ops) == 0 {
		return nil
	}
	return s.Index.Do(ops)
}
