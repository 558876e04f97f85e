package chime

// table is where the keys of a leaf are, by their homes: what hopping needs. It knows no bytes.
type table struct {
	n, hood int
	home    [maxSlots]int16 // of the key in each slot
	item    [maxSlots]int16 // what the caller knows the key by
}

const (
	vacant = -1 // the slot is empty
	fixed  = -2 // the slot is not known, or its key is not to be moved
)

// reset makes all slots what of says.
func (t *table) reset(s *shape, of int16) {
	t.n, t.hood = s.n, s.hood
	for i := range t.n {
		t.home[i] = of
	}
}

// ahead is how far slot i is behind slot from.
func (t *table) ahead(from, i int) int {
	if i -= from; i < 0 {
		i += t.n
	}
	return i
}

// pairs is how many slots are not empty.
func (t *table) pairs() (n int) {
	for _, home := range t.home[:t.n] {
		if home != vacant {
			n++
		}
	}
	return n
}

// move is one hop: the key of a slot goes to an empty one.
type move struct{ from, to int16 }

// nearest returns the empty slot that comes first from slot i on; -1 if there is none.
func (t *table) nearest(i int) int {
	for d := range t.n {
		if j := (i + d) % t.n; t.home[j] == vacant {
			return j
		}
	}
	return -1
}

// room frees a slot in the neighbourhood of home by hops, beginning with an empty slot, and appends
// the hops to moves in the order in which they are made (section 2.3 of the paper: the farthest key
// that may go to the empty slot goes there). It returns the slot that is empty then. ok is false if
// no key may hop; then t may be changed, and the hops in it are those of moves.
//
// Only slots from home to the empty one are looked at: a key that may hop to it has its home, and
// lies, less than a neighbourhood before it, and the empty slot is at least a neighbourhood behind
// home.
func (t *table) room(home, empty int, moves []move) (slot int, all []move, ok bool) {
	for t.ahead(home, empty) >= t.hood {
		if len(moves) == maxHops {
			return empty, moves, false
		}
		found := false
		for d := t.hood - 1; d > 0 && !found; d-- {
			from := t.ahead(d, empty)
			h := t.home[from]
			if h < 0 || t.ahead(int(h), empty) >= t.hood {
				continue
			}
			t.home[empty], t.item[empty] = h, t.item[from]
			t.home[from] = vacant
			moves = append(moves, move{int16(from), int16(empty)})
			empty, found = from, true
		}
		if !found {
			return empty, moves, false
		}
	}
	return empty, moves, true
}

// place frees a slot in the neighbourhood of home, as room does from the first empty slot behind it
// from which that can be done.
func (t *table) place(home int, moves []move) (empty, slot int, all []move, ok bool) {
	for d := range t.n {
		if empty = (home + d) % t.n; t.home[empty] != vacant {
			continue
		}
		if d < t.hood {
			return empty, empty, moves[:0], true
		}
		if slot, moves, ok = t.room(home, empty, moves[:0]); ok {
			return empty, slot, moves, true
		}
		t.undo(moves)
	}
	return -1, -1, moves[:0], false
}

// undo takes hops back.
func (t *table) undo(moves []move) {
	for i := len(moves) - 1; i >= 0; i-- {
		from, to := moves[i].from, moves[i].to
		t.home[from], t.item[from] = t.home[to], t.item[to]
		t.home[to] = vacant
	}
}

// insert puts an item with a home into t. false: no hop makes room for it, or t is full.
func (t *table) insert(home, it int) bool {
	var room [maxHops + 1]move
	_, slot, _, ok := t.place(home, room[:0])
	if ok {
		t.home[slot], t.item[slot] = int16(home), int16(it)
	}
	return ok
}

// maxHops is how many hops there are for one key at most: their WRITEs are in one list.
const maxHops = 24
