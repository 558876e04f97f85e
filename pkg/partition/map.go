// Package partition is the partition map of an index: which compute server owns which range of
// keys. It plans changes of the map, and describes them in words. It is pure: no I/O, no clocks, no
// goroutines.
//
// A Map is a value. Any number of goroutines may read it, and it is not changed: a change is a new
// map of a higher generation. The authoritative copy is at the index's home memory server, and is
// replaced by compare-and-swap of the generation.
package partition

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/dmindex/dmindex/pkg/keyrange"
)

// Bounds of a map. They limit the memory that a map from elsewhere can take.
const (
	MaxRanges   = 4096
	MaxServers  = 1024
	MaxKeyBytes = 1024
	MaxBytes    = 1 << 20 // encoded
	maxText     = 255     // bytes of a name or an address
)

// Bounds of the separate ranges of a planned map, where adjacent ones of one owner count once. Each
// needs a holding of its own, of which an index may have only so many (pool.MaxHoldings), in number
// and in bytes. So a plan makes at most half as many, with boundaries that take a quarter of the
// bytes, as holdings have two ends each. The rest is for holdings that are not joined yet, and for
// keys that change hands. Each server has one range at least, however many there are.
const (
	MaxSeparate      = 512
	maxSeparateBytes = 128 << 10
)

// KeyType is the type of the keys of an index. The values are those of the CRD and of config.Index.
type KeyType string

// The key types.
const (
	Uint64 KeyType = "Uint64" // 8 bytes, big-endian
	Bytes  KeyType = "Bytes"
)

// Map says which server owns which keys.
type Map struct {
	Generation uint64
	Index      string // identity of the index that the map belongs to
	// ascending by ID; all owners, and leaving servers that still hold keys of others
	Servers []Server
	// ascending by Start; the first starts at the empty key; together they cover all keys
	Ranges []Range

	// Planned are the remaining moves of a change that is made in stages, ascending and disjoint.
	// Servers ignore them: Ranges has the present owners.
	Planned []Planned
}

// Planned is a range that is to move to another owner in a later generation.
type Planned struct {
	Start, End []byte // inclusive, exclusive; an empty End is the upper end of the key space
	To         uint32
}

// Server is a compute server that can own ranges.
type Server struct {
	ID   uint32
	Name string // of its pod, for messages
	RPC  string // host:port of rpc.Compute
	RESP string // host:port of its Redis front end
}

// Range is the keys from Start up to, not including, the Start of the next range.
type Range struct {
	Start []byte
	Owner uint32
	Epoch uint64 // the generation in which Owner got these keys
}

// Span is one range with both of its ends, for routing and for messages.
type Span struct {
	Start, End []byte // inclusive, exclusive; an empty End is the upper end of the key space
	Owner      uint32
	Epoch      uint64
}

// Has reports whether key lies in the span.
func (s *Span) Has(key []byte) bool {
	return bytes.Compare(s.Start, key) <= 0 && (len(s.End) == 0 || bytes.Compare(key, s.End) < 0)
}

// String formats the span as ["a", "m").
func (s Span) String() string { return Interval(s.Start, s.End) }

// Hider is keyrange.Hider.
type Hider = keyrange.Hider

// Interval is keyrange.Format.
func Interval(start, end []byte) string { return keyrange.Format(start, end) }

// At returns the position in Ranges of the range that holds key. It allocates nothing. m must be
// valid.
func (m *Map) At(key []byte) int {
	lo, hi := 0, len(m.Ranges) // Ranges[lo].Start <= key < Ranges[hi].Start
	for hi-lo > 1 {
		mid := int(uint(lo+hi) >> 1)
		if bytes.Compare(m.Ranges[mid].Start, key) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// Owner returns the ID of the server that owns key. It allocates nothing. m must be valid.
func (m *Map) Owner(key []byte) uint32 { return m.Ranges[m.At(key)].Owner }

// Range returns the range that holds key. m must be valid.
func (m *Map) Range(key []byte) Span { return m.Span(m.At(key)) }

// Span returns the range at position i, with both of its ends.
func (m *Map) Span(i int) Span {
	r := m.Ranges[i]
	return Span{Start: r.Start, End: m.end(i), Owner: r.Owner, Epoch: r.Epoch}
}

// end returns the exclusive end of the range at position i; empty for the last.
func (m *Map) end(i int) []byte {
	if i+1 < len(m.Ranges) {
		return m.Ranges[i+1].Start
	}
	return nil
}

// Server finds a server by its ID. It allocates nothing.
func (m *Map) Server(id uint32) (Server, bool) {
	i := sort.Search(len(m.Servers), func(i int) bool { return m.Servers[i].ID >= id })
	if i < len(m.Servers) && m.Servers[i].ID == id {
		return m.Servers[i], true
	}
	return Server{}, false
}

// owns reports whether a server has a range.
func (m *Map) owns(id uint32) bool {
	return slices.ContainsFunc(m.Ranges, func(r Range) bool { return r.Owner == id })
}

// Separate returns how many separate ranges there are: adjacent ones of one owner count once.
func (m *Map) Separate() (n int) {
	for i, r := range m.Ranges {
		if i == 0 || r.Owner != m.Ranges[i-1].Owner {
			n++
		}
	}
	return n
}

// Validate returns what is wrong with m.
func (m *Map) Validate() error {
	switch {
	case m.Generation == 0:
		return errors.New("partition map: generation is 0; the first one is 1")
	case len(m.Index) == 0 || len(m.Index) > maxText:
		return fmt.Errorf("partition map: index identity has %d bytes; 1 to %d are possible", len(m.Index), maxText)
	case len(m.Servers) == 0 || len(m.Servers) > MaxServers:
		return fmt.Errorf("partition map: %d servers; 1 to %d are possible", len(m.Servers), MaxServers)
	case len(m.Ranges) == 0 || len(m.Ranges) > MaxRanges:
		return fmt.Errorf("partition map: %d ranges; 1 to %d are possible", len(m.Ranges), MaxRanges)
	case len(m.Ranges[0].Start) != 0:
		return fmt.Errorf("partition map: keys below %s have no owner", keyrange.Quote(m.Ranges[0].Start))
	}
	for i, s := range m.Servers {
		if i > 0 && m.Servers[i-1].ID >= s.ID {
			return fmt.Errorf("partition map: server %d stands after server %d; IDs must ascend", s.ID, m.Servers[i-1].ID)
		}
		if max(len(s.Name), len(s.RPC), len(s.RESP)) > maxText {
			return fmt.Errorf("partition map: name or address of server %d is longer than %d bytes", s.ID, maxText)
		}
	}
	for i, r := range m.Ranges {
		if i > 0 && bytes.Compare(m.Ranges[i-1].Start, r.Start) >= 0 {
			return fmt.Errorf("partition map: range %s stands after %s; starts must ascend", keyrange.Quote(r.Start), keyrange.Quote(m.Ranges[i-1].Start))
		}
		if len(r.Start) > MaxKeyBytes {
			return fmt.Errorf("partition map: start of range %d has %d bytes; at most %d are possible", i, len(r.Start), MaxKeyBytes)
		}
		if _, ok := m.Server(r.Owner); !ok {
			return fmt.Errorf("partition map: owner %d of %v is not among the servers", r.Owner, m.Span(i))
		}
		if r.Epoch == 0 || r.Epoch > m.Generation {
			return fmt.Errorf("partition map: epoch %d of %v is not within 1 to the generation %d", r.Epoch, m.Span(i), m.Generation)
		}
	}
	return m.validatePlanned()
}

func (m *Map) validatePlanned() error {
	if len(m.Planned) > MaxRanges {
		return fmt.Errorf("partition map: %d moves are planned; at most %d are possible", len(m.Planned), MaxRanges)
	}
	for i, p := range m.Planned {
		if max(len(p.Start), len(p.End)) > MaxKeyBytes || len(p.End) > 0 && bytes.Compare(p.Start, p.End) >= 0 {
			return fmt.Errorf("partition map: the planned move of %s is no range", Interval(p.Start, p.End))
		}
		if i > 0 && (len(m.Planned[i-1].End) == 0 || bytes.Compare(m.Planned[i-1].End, p.Start) > 0) {
			return fmt.Errorf("partition map: the planned move of %s stands after that of keys from %s on; they must ascend", Interval(p.Start, p.End), keyrange.Quote(m.Planned[i-1].Start))
		}
		if _, ok := m.Server(p.To); !ok {
			return fmt.Errorf("partition map: server %d, to which %s are planned to go, is not among the servers", p.To, Interval(p.Start, p.End))
		}
	}
	return nil
}

// Final returns the map after all planned moves, in one generation; m itself if none is planned. m
// must be valid.
func (m *Map) Final() *Map {
	if len(m.Planned) == 0 {
		return m
	}
	next := &Map{Generation: m.Generation + 1, Index: m.Index, Servers: m.Servers}
	add := func(start []byte, owner uint32, epoch uint64) {
		if n := len(next.Ranges); n == 0 || next.Ranges[n-1].Owner != owner || next.Ranges[n-1].Epoch != epoch {
			next.Ranges = append(next.Ranges, Range{Start: start, Owner: owner, Epoch: epoch})
		}
	}
	moves := m.Planned
	for i := range m.Ranges {
		s := m.Span(i)
		at, ended := s.Start, false
		for _, p := range moves {
			start, end, ok := keyrange.Intersect(s.Start, s.End, p.Start, p.End)
			if !ok || p.To == s.Owner {
				continue
			}
			if bytes.Compare(at, start) < 0 {
				add(at, s.Owner, s.Epoch)
			}
			add(start, p.To, next.Generation)
			at, ended = end, len(end) == 0
		}
		if !ended && keyrange.Before(at, s.End) {
			add(at, s.Owner, s.Epoch)
		}
	}
	return next
}

// Overlay returns m with the owners of spans for their keys. If several spans hold a key the first
// one counts. Without spans it returns m.
func (m *Map) Overlay(spans []Span) *Map {
	if len(spans) == 0 {
		return m
	}
	starts := make([][]byte, 0, len(m.Ranges)+2*len(spans))
	for _, r := range m.Ranges {
		starts = append(starts, r.Start)
	}
	for _, s := range spans {
		starts = append(starts, s.Start)
		if len(s.End) > 0 {
			starts = append(starts, s.End)
		}
	}
	slices.SortFunc(starts, bytes.Compare)
	out := &Map{Generation: m.Generation, Index: m.Index, Servers: m.Servers, Planned: m.Planned}
	for _, start := range slices.CompactFunc(starts, bytes.Equal) {
		r := m.Ranges[m.At(start)]
		r.Start = start
		if i := slices.IndexFunc(spans, func(s Span) bool {
			return keyrange.Contains(s.Start, s.End, start)
		}); i >= 0 {
			r.Owner = spans[i].Owner
		}
		if n := len(out.Ranges); n == 0 || out.Ranges[n-1].Owner != r.Owner || out.Ranges[n-1].Epoch != r.Epoch {
			out.Ranges = append(out.Ranges, r)
		}
	}
	return out
}
