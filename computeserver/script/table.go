package script

import "math"

// table is a table of Lua: a list of the values at 1, 2, ..., and the other pairs in the order in
// which their keys came. The list may have nil inside, never at its end.
type table struct {
	list  []value
	at    map[value]int // in pairs
	pairs []pair
	dead  int // pairs without a value
	fixed bool
}

type pair struct{ key, value value }

// Bytes that tables are counted for.
const (
	tableBytes = 96
	itemBytes  = 32 // in the list: it is twice as long when it grows
	pairBytes  = 128
)

func (m *machine) newTable() *table {
	m.alloc(tableBytes)
	return &table{}
}

// newList is a table with a list of these values.
func (m *machine) newList(values []value) *table {
	m.alloc(tableBytes + len(values)*itemBytes)
	t := &table{list: values}
	t.trim()
	return t
}

func (t *table) trim() {
	for n := len(t.list); n > 0 && t.list[n-1] == nil; n-- {
		t.list = t.list[:n-1]
	}
}

// place is the position of a key in the list, from 0, if it may have one.
func place(key value) (int, bool) {
	n, ok := key.(float64)
	if !ok || n < 1 || n > math.MaxInt32 || n != math.Trunc(n) {
		return 0, false
	}
	return int(n) - 1, true
}

func (t *table) get(key value) value {
	if i, ok := place(key); ok && i < len(t.list) {
		return t.list[i]
	}
	if i, ok := t.at[key]; ok {
		return t.pairs[i].value
	}
	return nil
}

// set is t[key] = v. The key is neither nil nor NaN.
func (m *machine) set(t *table, key, v value) {
	if i, ok := place(key); ok && i <= len(t.list) {
		switch {
		case i < len(t.list):
			if t.list[i] = v; v == nil && i == len(t.list)-1 {
				m.step(1)
				t.trim()
			}
			return
		case v != nil:
			m.append(t, v)
			return
		}
	}
	if i, ok := t.at[key]; ok {
		if (t.pairs[i].value == nil) != (v == nil) {
			t.dead++
			if v != nil {
				t.dead -= 2
			}
		}
		t.pairs[i].value = v
		return
	}
	if v == nil {
		return
	}
	m.alloc(pairBytes)
	if t.at == nil {
		t.at = map[value]int{}
	}
	if t.dead > 16 && t.dead > len(t.pairs)/2 {
		m.compact(t)
	}
	t.at[key] = len(t.pairs)
	t.pairs = append(t.pairs, pair{key, v})
}

// append sets the value behind the list, and takes those that follow it from the pairs.
func (m *machine) append(t *table, v value) {
	m.alloc(itemBytes)
	t.list = append(t.list, v)
	key := value(float64(len(t.list)))
	if i, ok := t.at[key]; ok { // it had nil
		if t.pairs[i].value == nil {
			t.dead--
		}
		m.drop(t, i)
	}
	for len(t.at) > 0 {
		i, ok := t.at[value(float64(len(t.list)+1))]
		if !ok || t.pairs[i].value == nil {
			return
		}
		m.step(1)
		m.alloc(itemBytes)
		t.list = append(t.list, t.pairs[i].value)
		m.drop(t, i)
	}
}

// drop takes a pair out. Its place stays, so that those behind it have theirs.
func (m *machine) drop(t *table, i int) {
	m.key(t.pairs[i].key)
	delete(t.at, t.pairs[i].key)
	t.pairs[i] = pair{}
	t.dead++
}

// compact drops the pairs without a value.
func (m *machine) compact(t *table) {
	m.step(len(t.pairs))
	kept := t.pairs[:0]
	for _, p := range t.pairs {
		m.key(p.key) // it is looked for
		if p.value == nil {
			delete(t.at, p.key)
			continue
		}
		t.at[p.key] = len(kept)
		kept = append(kept, p)
	}
	clear(t.pairs[len(kept):])
	t.pairs, t.dead = kept, 0
}

// next is the pair behind that of key; nil as key is before the first one, and behind the last one.
// It returns false for a key that the table never had.
func (m *machine) next(t *table, key value) (value, value, bool) {
	m.key(key)
	i := 0 // in the list, and behind it in pairs
	if key != nil {
		if n, ok := place(key); ok && n < len(t.list) {
			i = n + 1
		} else if n, ok := t.at[key]; ok {
			i = len(t.list) + n + 1
		} else if _, ok := place(key); ok { // it was at the end of the list, and went
			i = len(t.list)
		} else {
			return nil, nil, false
		}
	}
	for ; i < len(t.list); i++ {
		m.step(1)
		if v := t.list[i]; v != nil {
			return float64(i + 1), v, true
		}
	}
	for i -= len(t.list); i < len(t.pairs); i++ {
		m.step(1)
		if p := t.pairs[i]; p.value != nil {
			return p.key, p.value, true
		}
	}
	return nil, nil, true
}
