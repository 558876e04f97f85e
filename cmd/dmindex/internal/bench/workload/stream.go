package workload

import "math/rand/v2"

// Operation is what to do: kind, length of a scan, and item in one word, so that a stream of
// millions is small and cheap to read.
type Operation uint64

const (
	kindBits   = 4
	lengthBits = 12
	itemShift  = kindBits + lengthBits
	MaxScan    = 1<<lengthBits - 1
)

// NewOperation makes an operation; length is that of a scan.
func NewOperation(k Kind, item uint64, length int) Operation {
	return Operation(uint64(k) | uint64(length)<<kindBits | item<<itemShift)
}

// Kind, Length and Item are its parts.

func (o Operation) Kind() Kind   { return Kind(o & (1<<kindBits - 1)) }
func (o Operation) Length() int  { return int(o >> kindBits & MaxScan) }
func (o Operation) Item() uint64 { return uint64(o >> itemShift) }

// Stream is all operations of a run in their order, made before it begins: the clients of all
// compute servers together take one after the other, so skew and mix are those of the whole, and no
// client has some of its own.
type Stream struct {
	Ops     []Operation
	Items   uint64 // that are there or may come to be: item numbers are below
	Loaded  uint64 // items that may be there at first are below; see IsLoaded
	records uint64 // of them are there
	sparse  bool
}

// IsLoaded reports whether an item is there before the first operation.
func (s *Stream) IsLoaded(item uint64) bool { return item < s.Loaded && !(s.sparse && item%3 == 2) }

// Record is the number of the i-th item that is there at first.
func (s *Stream) Record(i uint64) uint64 {
	if s.sparse {
		return i/2*3 + i%2
	}
	return i
}

// NewStream makes n operations of a workload on so many records. Lengths of scans are uniform from
// shortest to longest. An inserted item is not drawn by the lag operations after its insertion,
// which may still be under way.
func NewStream(w Workload, d Distribution, records uint64, n int, shortest, longest int, lag int, seed uint64) *Stream {
	s := &Stream{Ops: make([]Operation, n), Loaded: records, records: records, sparse: w.Sparse}
	if w.Sparse {
		s.Loaded = s.Record(records-1) + 1
	}
	s.Items = s.Loaded
	r := rand.New(rand.NewPCG(seed, 1))
	choose := NewChooser(d, s.Loaded)
	drawn := s.Loaded // items below may be drawn
	for i := range s.Ops {
		if behind := i - lag; behind >= 0 && s.Ops[behind].Kind() == Insert {
			drawn++
		}
		switch k := w.draw(r); k {
		case Insert:
			s.Ops[i] = NewOperation(k, s.Items, 0)
			s.Items++
		case Scan:
			s.Ops[i] = NewOperation(k, choose.Next(r, drawn), shortest+r.IntN(longest-shortest+1))
		case Upsert:
			item := r.Uint64N(drawn)
			if !w.Even {
				item = choose.Next(r, drawn)
			}
			s.Ops[i] = NewOperation(k, item, 0)
		default:
			s.Ops[i] = NewOperation(k, choose.Next(r, drawn), 0)
		}
	}
	return s
}

// draw draws a kind by the workload's shares.
func (w *Workload) draw(r *rand.Rand) Kind {
	x := r.IntN(100)
	for k := range kinds {
		if x -= w.Share[k]; x < 0 {
			return k
		}
	}
	panic("bench: the shares of workload " + w.Name + " do not make a hundred")
}
