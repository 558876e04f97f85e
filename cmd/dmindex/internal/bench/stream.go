package bench

import "math/rand/v2"

// operation is what to do: kind, length of a scan, and item in one word, so that a stream of
// millions is small and cheap to read.
type operation uint64

const (
	kindBits   = 4
	lengthBits = 12
	itemShift  = kindBits + lengthBits
	maxScan    = 1<<lengthBits - 1
)

func newOperation(k kind, item uint64, length int) operation {
	return operation(uint64(k) | uint64(length)<<kindBits | item<<itemShift)
}

func (o operation) kind() kind   { return kind(o & (1<<kindBits - 1)) }
func (o operation) length() int  { return int(o >> kindBits & maxScan) }
func (o operation) item() uint64 { return uint64(o >> itemShift) }

// stream is all operations of a run in their order, made before it begins: the clients of all
// compute servers together take one after the other, so skew and mix are those of the whole, and no
// client has some of its own.
type stream struct {
	ops     []operation
	items   uint64 // that are there or may come to be: item numbers are below
	loaded  uint64 // items that may be there at first are below; see isLoaded
	records uint64 // of them are there
	sparse  bool
}

// isLoaded reports whether an item is there before the first operation.
func (s *stream) isLoaded(item uint64) bool { return item < s.loaded && !(s.sparse && item%3 == 2) }

// record is the number of the i-th item that is there at first.
func (s *stream) record(i uint64) uint64 {
	if s.sparse {
		return i/2*3 + i%2
	}
	return i
}

// newStream makes n operations of a workload on so many records. Lengths of scans are uniform from
// shortest to longest. An inserted item is not drawn by the lag operations after its insertion,
// which may still be under way.
func newStream(w Workload, d Distribution, records uint64, n int, shortest, longest int, lag int, seed uint64) *stream {
	s := &stream{ops: make([]operation, n), loaded: records, records: records, sparse: w.sparse}
	if w.sparse {
		s.loaded = s.record(records-1) + 1
	}
	s.items = s.loaded
	r := rand.New(rand.NewPCG(seed, 1))
	choose := newChooser(d, s.loaded)
	drawn := s.loaded // items below may be drawn
	for i := range s.ops {
		if behind := i - lag; behind >= 0 && s.ops[behind].kind() == insert {
			drawn++
		}
		switch k := w.draw(r); k {
		case insert:
			s.ops[i] = newOperation(k, s.items, 0)
			s.items++
		case scan:
			s.ops[i] = newOperation(k, choose.next(r, drawn), shortest+r.IntN(longest-shortest+1))
		case upsert:
			item := r.Uint64N(drawn)
			if !w.even {
				item = choose.next(r, drawn)
			}
			s.ops[i] = newOperation(k, item, 0)
		default:
			s.ops[i] = newOperation(k, choose.next(r, drawn), 0)
		}
	}
	return s
}

// draw draws a kind by the workload's shares.
func (w *Workload) draw(r *rand.Rand) kind {
	x := r.IntN(100)
	for k := range kinds {
		if x -= w.share[k]; x < 0 {
			return k
		}
	}
	panic("bench: the shares of workload " + w.Name + " do not make a hundred")
}
