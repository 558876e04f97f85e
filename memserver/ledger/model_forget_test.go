package ledger

import (
	"slices"

	"pgregory.net/rapid"
)

func (x *machine) Forget(t *rapid.T) {
	identity := anIndex(t)
	numbers := []uint32{aClient(t), aClient(t), aClient(t)}
	busy := map[uint16]bool{uint16(aClient(t)): true}
	left := map[uint32]bool{}
	for _, n := range numbers {
		left[n] = x.leaves(identity, n)
	}
	gone, news, err := x.l.Forget(identity, numbers, func(id uint16) bool { return busy[id] })
	i := x.m.indexes[identity]
	if i == nil {
		expect(t, "unknown", err, ErrUnknownIndex)
		return
	}
	if slices.ContainsFunc(numbers, func(n uint32) bool { return uint16(n) == 0 || uint16(n) == NoClient }) {
		expect(t, "nobody", err, ErrInvalid)
		return
	}
	expect(t, "forget", err)
	var want []uint32
	changed := false
	for _, n := range numbers {
		now, is, _ := i.current(n) // perhaps an earlier one
		c := i.clients[now]
		switch {
		case i.isPast(n):
		case is && (!c.fenced || c.open) || busy[uint16(n)] || left[n]:
			continue
		default:
			if is {
				delete(i.clients, now)
			}
			i.clients[n] = modelClient{fenced: true, gone: true}
			changed = true
			for number, c := range x.m.chunks {
				if c.owner == identity && uint16(c.client) == uint16(n) {
					x.m.chunks[number] = modelChunk{identity, NoClient, c.node}
				}
			}
		}
		want = append(want, n)
	}
	if !slices.Equal(gone, want) || news != changed {
		t.Fatalf("of %v %v were forgotten (%v), want %v (%v)", numbers, gone, news, want, changed)
	}
}

// leaves reports whether a client with the id of a number holds keys, or left a log.
func (x *machine) leaves(identity string, number uint32) bool {
	all, _ := x.l.Holdings(identity)
	return slices.ContainsFunc(all, func(h Holding) bool {
		return uint16(h.Client) == uint16(number) ||
			slices.ContainsFunc(h.Inherits, func(in Inherited) bool { return uint16(in.Client) == uint16(number) })
	})
}

func (x *machine) Forgettable(t *rapid.T) {
	identity := anIndex(t)
	i := x.m.indexes[identity]
	for _, n := range x.l.Forgettable(identity, 3) {
		if c := i.clients[n]; !c.fenced || c.open || c.gone || x.leaves(identity, n) {
			t.Fatalf("client %d cannot be forgotten: %+v", n, c)
		}
	}
}
