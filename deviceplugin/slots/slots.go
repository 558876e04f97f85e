// Package slots divides HCAs into slots that pods can share, and picks slots for them. A set is
// never changed: who sees something new of the machine makes a new one. So everything here is a
// pure function, and safe for concurrent use.
package slots

import (
	"fmt"
	"strconv"

	"github.com/dmindex/dmindex/deviceplugin/hca"
)

// Max is the most slots of a set: what the kubelet reads of them at once must fit into a message.
const Max = 10000

// Set is the slots of a resource. Each HCA has the same number.
type Set struct {
	hcas []hca.HCA
	each int
	ids  [][]string     // by HCA and number
	by   map[string]ref // the same the other way round
}

// ref is where a slot is: the place of its HCA, and its number.
type ref struct{ place, number int }

// Slot is a share of an HCA.
type Slot struct {
	ID       string // what the kubelet knows it by
	Healthy  bool
	NUMANode int // -1 = unknown
}

// Names are how slots are called.
type Names int

const (
	Numbered Names = iota // mlx5_0/3
	// 0000:3b:00.2, for resources with one slot each, since CNI plugins take it for a PCI address
	PCI
)

// New makes a set with a number of slots for each HCA. HCAs that would take it beyond Max, or that
// cannot be named, are left out; they are returned.
func New(hcas []hca.HCA, each int, names Names) (set *Set, left []hca.HCA) {
	s := &Set{each: each, by: map[string]ref{}}
	for _, h := range hcas {
		if (len(s.hcas)+1)*each > Max || names == PCI && (h.PCI == "" || each != 1) {
			left = append(left, h)
			continue
		}
		ids := make([]string, each)
		for i := range ids {
			if ids[i] = h.PCI; names == Numbered {
				ids[i] = h.Name + "/" + strconv.Itoa(i)
			}
			s.by[ids[i]] = ref{len(s.hcas), i}
		}
		s.hcas, s.ids = append(s.hcas, h), append(s.ids, ids)
	}
	return s, left
}

// HCAs are those of the set. The caller does not change them.
func (s *Set) HCAs() []hca.HCA { return s.hcas }

// Each is the number of slots of an HCA.
func (s *Set) Each() int { return s.each }

// Slots lists all slots, those of an HCA side by side.
func (s *Set) Slots() []Slot {
	all := make([]Slot, 0, len(s.hcas)*s.each)
	for i, h := range s.hcas {
		healthy := h.Healthy() == nil
		for _, id := range s.ids[i] {
			all = append(all, Slot{id, healthy, h.NUMANode})
		}
	}
	return all
}

func (s *Set) find(id string) (ref, error) {
	r, ok := s.by[id]
	if !ok {
		return ref{}, fmt.Errorf("there is no slot %q: the HCA is gone or the configuration has changed", id)
	}
	return r, nil
}

// Allocate is the HCAs of slots that a container is given, each once, in the order of the slots. It
// is an error to give out what is not there, or what no program could use now.
func (s *Set) Allocate(ids []string) ([]hca.HCA, error) {
	if len(ids) == 0 || len(ids) > Max {
		return nil, fmt.Errorf("%d slots asked for: want 1 to %d", len(ids), Max)
	}
	var given []hca.HCA
	seen := map[int]bool{}
	for _, id := range ids {
		r, err := s.find(id)
		if err != nil {
			return nil, err
		}
		if seen[r.place] {
			continue
		}
		seen[r.place] = true
		h := s.hcas[r.place]
		if err := h.Healthy(); err != nil {
			return nil, fmt.Errorf("HCA %s cannot be used: %w", h.Name, err)
		}
		given = append(given, h)
	}
	return given, nil
}
