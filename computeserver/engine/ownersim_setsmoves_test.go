package engine

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/sortedset"
	"github.com/dmindex/dmindex/memserver/memservertest"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
)

// movedSets is an index whose keys are moved before the steps of a command. Its server may die in
// a step, of which it has sent a part.
type movedSets struct {
	sortedset.Index
	w    *ownWorld
	p    *simenv.Process
	call *setCall // nil: the collector's
}

// Do implements sortedset.Index.
func (x *movedSets) Do(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	w := x.w
	w.giveAway(x.p, ops[w.Random.IntN(len(ops))].Key)
	if w.begun && !w.quiet && w.ids == 0 && w.OneIn(150) {
		w.sets.deaths++
		ops = slices.Clone(ops)
		w.Random.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
		if some := ops[:w.Random.IntN(len(ops)+1)]; len(some) > 0 {
			x.note(some)
			x.Index.Do(some)
		}
		x.p.Kill()
	}
	x.note(ops)
	out := x.do(ops)
	for i, op := range ops {
		one, done := op.Kind == rpcv1.Operation_SET_MEMBER, out[i].Code == rpcv1.Outcome_OK
		if done && one {
			w.sets.oneStep++
		}
		if x.call != nil && (x.call.in.kind == "drop" || x.call.in.kind == "pop") && setsOut(op) && !done && out[i].Code != rpcv1.Outcome_UNKNOWN {
			_, member := itemOf(op.Key)
			x.call.touched[string(member)]-- // nothing was done
		}
		if _, member := itemOf(op.Key); done && (op.Kind == rpcv1.Operation_REMOVE || one && len(op.Value) == 0) && x.call != nil && x.call.in.kind == "drop" {
			x.call.pairs = append(x.call.pairs, sortedset.Pair{Member: member, Score: math.Float64frombits(binary.BigEndian.Uint64(op.Operand[1:]))})
		}
	}
	return out
}

// do does operations, some of which find no memory at times.
func (x *movedSets) do(ops []*rpcv1.Operation) []*rpcv1.Outcome {
	w := x.w
	if w.quiet || !w.begun || !w.OneIn(6) {
		return x.Index.Do(ops)
	}
	left := map[*rpcv1.Operation]bool{}
	full := func(op *rpcv1.Operation) bool {
		is := op.Kind == rpcv1.Operation_UPSERT || op.Kind == rpcv1.Operation_INSERT ||
			op.Kind == rpcv1.Operation_SWAP && op.Condition == rpcv1.Operation_ABSENT || op.Kind == rpcv1.Operation_SET_MEMBER && len(op.Value) > 0
		left[op] = is && w.OneIn(2)
		return left[op]
	}
	out := doOthers(x.Index, ops, full)
	for i, op := range ops {
		if left[op] {
			w.sets.full++
			out[i] = &rpcv1.Outcome{Code: rpcv1.Outcome_POOL_FULL, Message: "there is no memory"}
		}
	}
	return out
}

// doOthers does operations but those that are left out, which seem done.
func doOthers(by sortedset.Index, ops []*rpcv1.Operation, leaves func(op *rpcv1.Operation) bool) []*rpcv1.Outcome {
	out := make([]*rpcv1.Outcome, len(ops))
	var some []*rpcv1.Operation
	var at []int
	for i, op := range ops {
		if out[i] = (&rpcv1.Outcome{}); !leaves(op) {
			some, at = append(some, op), append(at, i)
		}
	}
	if len(some) > 0 {
		for n, o := range by.Do(some) {
			out[at[n]] = o
		}
	}
	return out
}

// note notes the members that operations change, if these are what the call asks for and not steps
// of other changes.
func (x *movedSets) note(ops []*rpcv1.Operation) {
	if x.call == nil {
		return
	}
	for _, op := range ops {
		if setsOut(op) {
			_, member := itemOf(op.Key)
			x.call.touched[string(member)]++
		}
	}
}

// setsOut reports whether an operation is the one with which a change of a member begins.
func setsOut(op *rpcv1.Operation) bool {
	is, _ := itemOf(op.Key)
	return is && (op.Kind == rpcv1.Operation_SET_MEMBER || op.Kind == rpcv1.Operation_REMOVE || op.Kind == rpcv1.Operation_SWAP && op.Value[0] > 1)
}

// itemOf takes the key of a member's item apart.
func itemOf(key []byte) (is bool, member []byte) {
	n := len(sortedset.Prefix) + 6
	if !bytes.HasPrefix(key, []byte(sortedset.Prefix)) || key[n] != 'm' {
		return false, nil
	}
	return true, bytes.Clone(key[n+1:])
}

// Scan implements sortedset.Index.
func (x *movedSets) Scan(start, end []byte, limit int, reverse bool, visit func(key, value []byte) bool) error {
	x.w.giveAway(x.p, start)
	return x.Index.Scan(start, end, limit, reverse, visit)
}

// giveAway gives keys from one on to another server, half of the times, and then waits until that
// has them, half of the times.
func (w *ownWorld) giveAway(p *simenv.Process, key []byte) {
	if !slices.ContainsFunc(w.sets.used, func(was []byte) bool { return bytes.Equal(was, key) }) {
		w.sets.used = append(w.sets.used[max(0, len(w.sets.used)-11):], bytes.Clone(key))
	}
	if w.quiet || !w.begun || !w.OneIn(2) {
		return
	}
	k := &path{w: w, p: p, name: p.Name()}
	encoded, err := k.Map(0, 0)
	if err != nil || len(encoded) == 0 {
		return
	}
	m, err := partition.Unmarshal(encoded)
	if err != nil {
		w.Report("the map cannot be read: %v", err)
		return
	}
	move := partition.Planned{Start: bytes.Clone(key), To: m.Servers[w.Random.IntN(len(m.Servers))].ID}
	switch end := w.sets.used[w.Random.IntN(len(w.sets.used))]; {
	case w.OneIn(8) || len(m.Ranges) > 24: // all of a set, or of all sets
		move.Start = move.Start[:min(len(move.Start), len(sortedset.Prefix)+w.Random.IntN(2)*6)]
		if len(move.Start) < len(sortedset.Prefix) {
			move.Start = nil
		}
	case bytes.Compare(end, key) > 0:
		move.End = end
	case w.OneIn(2):
		move.End = append(bytes.Clone(key), 0)
	}
	if !w.swapTo(k, m, move) {
		return
	}
	w.sets.moves++
	if w.OneIn(2) {
		return
	}
	to := w.podOf(move.To)
	for end := p.Now() + 400*time.Millisecond; p.Now() < end; p.Sleep(w.UpTo(20 * time.Millisecond)) {
		held, err := k.Holdings(ownLimit)
		if err != nil {
			return
		}
		for _, h := range held {
			if span := (partition.Span{Start: h.Start, End: h.End}); span.Has(key) && h.Name == to.name && len(h.Inherits) == 0 {
				w.sets.moved++
				return
			}
		}
	}
}

// swapTo puts a map with a move in the place of m, unless that would have too many ranges.
func (w *ownWorld) swapTo(k *path, m *partition.Map, move partition.Planned) bool {
	changed := *m
	changed.Planned = []partition.Planned{move}
	next := changed.Final()
	encoded, err := next.Marshal(nil)
	if err != nil {
		w.Report("the mover's map: %v", err)
		return false
	}
	if len(next.Ranges) > 40 || w.holdings > 0 && next.Separate() > max(w.mostSeparate(), m.Separate()) || k.call(1, ownLimit, func(b *memservertest.Bare) error { return b.SwapMap(ownIndex, m.Generation, next.Generation, encoded) }) != nil {
		return false
	}
	w.load.swapped = w.Now()
	return true
}

// entryOf is the entry of an item, as the change that wrote the item writes it.
func entryOf(item *rpcv1.Operation) []byte {
	at := len(sortedset.Prefix) + 6
	key := append(bytes.Clone(item.Key[:at]), 's')
	key = append(key, scoreKey(math.Float64frombits(binary.BigEndian.Uint64(item.Value[1:])))...)
	key = append(append(key, item.Key[at+1:]...), 0, 0)
	return append(key, item.Value[9:15]...)
}
