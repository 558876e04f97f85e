package chime

// The own bits of a leaf's lock word (section 4.2.1), shifted down:
//
//	bits    field
//	0-41    vacancy map: a bit for each slot, or for two or more of them side by side; 1 = one of
//	        them may be empty, 0 = none is
//	42-47   how many pairs the leaf has, at most 63; of a leaf with more than 64 slots 63 means
//	        any number
//
// All 0 = nothing is known: the leaf is READ as a whole. So is that of a leaf that is full, which
// has to be READ anyway.
//
// They are hints. A holder checks them against the slots that it READs, so a wrong one costs a
// READ. The paper has the number of the slot with the largest key in the place of the count; here,
// leaves have fences, and need no such thing. The count says after a delete whether the leaf is
// underfull.
const (
	vacancyBits = 42
	vacancyMask = 1<<vacancyBits - 1
	mostCounted = 63
	hintBits    = 1<<48 - 1
)

// vacancyHints is the own bits of a lock word.
type vacancyHints uint64

// bitOf is the bit of slot i.
func (s *shape) bitOf(i int) int {
	if s.n <= vacancyBits {
		return i
	}
	return i * vacancyBits / s.n
}

// groupOf returns the slots of the bit that slot i has: from first to last.
func (s *shape) groupOf(i int) (first, last int) {
	bit := s.bitOf(i)
	for first = i; first > 0 && s.bitOf(first-1) == bit; {
		first--
	}
	for last = i; last < s.n-1 && s.bitOf(last+1) == bit; {
		last++
	}
	return first, last
}

func (o vacancyHints) mayBeEmpty(bit int) bool { return o>>bit&1 != 0 }
func (o vacancyHints) count() int              { return int(o >> vacancyBits) }
func (o vacancyHints) isKnown() bool           { return o&vacancyMask != 0 }

// withCount has o with so many pairs.
func (o vacancyHints) withCount(count int) vacancyHints {
	return o&vacancyMask | vacancyHints(max(0, min(count, mostCounted)))<<vacancyBits
}

// hintsWithout is o after the key of slot i went.
func (s *shape) hintsWithout(o vacancyHints, i int) vacancyHints {
	if !o.isKnown() {
		return 0
	}
	count := o.count() - 1
	if s.overflows(o) {
		count = mostCounted
	}
	return (o | 1<<s.bitOf(i)).withCount(count)
}

// overflows reports whether the leaf may have more pairs than the count of o can say, and than one
// more. Then the count stays as it is until the leaf is READ as a whole.
func (s *shape) overflows(o vacancyHints) bool {
	return s.n > mostCounted+1 && o.count() == mostCounted
}

// sparse reports whether all bits of the vacancy map are set.
func (s *shape) sparse(o vacancyHints) bool { return uint64(o)&vacancyMask == 1<<(s.bitOf(s.n-1)+1)-1 }

// hintsOf is what the own bits say of the slots that t knows, all of them.
func (s *shape) hintsOf(t *table) vacancyHints {
	var o vacancyHints
	count := 0
	for i := range s.n {
		if t.home[i] == vacant {
			o |= 1 << s.bitOf(i)
		} else {
			count++
		}
	}
	return o.withCount(count)
}
