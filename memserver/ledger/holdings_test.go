package ledger

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The model of holdings knows the key space as cells between a few boundaries: who has each, under
// which epoch, and which logs are to be replayed for it.

// cellBounds are where cells begin.
var cellBounds = []string{"", "b", "c", "ca", "m", "x"}

type cell struct {
	client uint32
	epoch  uint64
	logs   []owing // of all that held it since the last one that settled, oldest first
	top    uint64  // the highest epoch that it ever had
}

type owing struct {
	client uint32
	epoch  uint64
}

type modelHoldings struct {
	cells [6]cell
	epoch uint64
}

func aRange(t *rapid.T) (from, to int, start, end []byte) {
	from = rapid.IntRange(0, len(cellBounds)-1).Draw(t, "from")
	to = rapid.IntRange(from, len(cellBounds)).Draw(t, "to")
	if to < len(cellBounds) {
		end = []byte(cellBounds[to])
	}
	if to == from && len(end) == 0 { // it would not be empty
		to = len(cellBounds)
	}
	return from, to, []byte(cellBounds[from]), end
}

// aHolder is a client that may live.
func aHolder(t *rapid.T) uint32 {
	return rapid.SampledFrom([]uint32{1, 1, 2, 2, 3, 4, 5, 300, Number(1, 1), Number(1, 2)}).Draw(t, "client")
}

func (x *machine) refusesHolder(t *rapid.T, identity string, client uint32, from, to int, err error) bool {
	switch i := x.m.indexes[identity]; {
	case i == nil:
		expect(t, "unknown index", err, ErrUnknownIndex)
	case i.clients[client].fenced || i.isPast(client):
		expect(t, "fenced", err, ErrFenced)
	case !knows(i, client):
		expect(t, "unknown client", err, ErrUnknownClient)
	case from == to:
		expect(t, "no range", err, ErrInvalid)
	default:
		return false
	}
	return true
}

func knows(i *modelIndex, client uint32) bool { _, known := i.clients[client]; return known }

func (x *machine) Acquire(t *rapid.T) {
	identity, client := anIndex(t), aHolder(t)
	from, to, start, end := aRange(t)
	over := rapid.Map(rapid.IntRange(0, 3), func(n int) bool { return n > 0 }).Draw(t, "leases are over")
	gone := rapid.SliceOfN(rapid.SampledFrom([]uint32{1, 2, 3, 4, 5, 300, Number(1, 1)}), 0, 8).Draw(t, "fenced elsewhere")
	i := x.m.indexes[identity]
	generation := uint64(0)
	if i != nil {
		generation = i.generation
	}
	claimed := generation + uint64(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1}).Draw(t, "ahead"))
	own, blocked, news, err := x.l.Acquire(identity, Claim{
		Client: client, Generation: claimed, Start: start, End: end, Log: fmt.Append(nil, client), Fenced: gone,
	}, func(uint32) bool { return over })
	if x.refusesHolder(t, identity, client, from, to, err) {
		return
	}
	if claimed != generation {
		expect(t, "other map", err, ErrOtherMap)
		return
	}
	expect(t, "acquire", err)
	h := &i.holdings
	wanted := map[int]Obstacle{}
	granted := false
	for n := from; n < to; n++ {
		c := &h.cells[n]
		holder := i.clients[c.client]
		switch {
		case c.client == client:
			continue
		case c.client == 0:
		case !holder.fenced:
			wanted[n] = Held
			continue
		case holder.open:
			wanted[n] = Fencing
			continue
		case !over:
			wanted[n] = Leased
			continue
		case !slices.Contains(gone, c.client):
			wanted[n] = Elsewhere
			continue
		}
		granted = true
		got := x.holding(t, identity, n)
		if got == nil || got.Client != client || got.Epoch <= h.epoch || got.Epoch <= c.top || string(got.Log) != fmt.Sprint(client) {
			t.Fatalf("cell %d is granted to %d as %+v, above epoch %d", n, client, got, h.epoch)
		}
		if c.client != 0 {
			c.logs = append(c.logs, owing{c.client, c.epoch})
		}
		c.client, c.epoch, c.top = client, got.Epoch, got.Epoch
	}
	if news != granted {
		t.Fatalf("something was granted: %v, and the ledger says %v", granted, news)
	}
	for n := range h.cells {
		h.epoch = max(h.epoch, h.cells[n].top)
	}
	for n := from; n < to; n++ {
		in := func(s, e []byte) bool { return covers(s, e, cellBounds[n]) }
		isOwn := slices.ContainsFunc(own, func(o Holding) bool { return in(o.Start, o.End) && o.Client == client })
		why, isBlocked := wanted[n]
		b := slices.IndexFunc(blocked, func(b Blocked) bool { return in(b.Start, b.End) })
		if isOwn == isBlocked || isBlocked != (b >= 0) || isBlocked && (blocked[b].Why != why || blocked[b].Client != h.cells[n].client) {
			t.Fatalf("cell %d: own %v, blocked %v %v, in %v and %v", n, isOwn, isBlocked, why, own, blocked)
		}
	}
}

func covers(start, end []byte, key string) bool {
	return string(start) <= key && (len(end) == 0 || key < string(end))
}

// holding is the one that has a cell.
func (x *machine) holding(t *rapid.T, identity string, cell int) *Holding {
	all, err := x.l.Holdings(identity)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if covers(all[i].Start, all[i].End, cellBounds[cell]) {
			return &all[i]
		}
	}
	return nil
}

func (x *machine) Settle(t *rapid.T) {
	identity, client := anIndex(t), aHolder(t)
	from, to, start, end := aRange(t)
	epoch := rapid.Uint64Range(0, 9).Draw(t, "epoch")
	if i := x.m.indexes[identity]; i != nil && rapid.IntRange(0, 4).Draw(t, "right") > 0 {
		client, epoch = i.holdings.cells[from].client, i.holdings.cells[from].epoch
		for to > from+1 && i.holdings.cells[to-1].epoch != epoch {
			to--
			end = []byte(cellBounds[to])
		}
	}
	_, err := x.l.Settle(identity, client, start, end, epoch)
	if x.refusesHolder(t, identity, client, from, to, err) {
		return
	}
	h := &x.m.indexes[identity].holdings
	for _, c := range h.cells[from:to] {
		if c.client != client || c.epoch != epoch {
			expect(t, "not its own", err, ErrNotOwned)
			return
		}
	}
	expect(t, "settle", err)
	for n := from; n < to; n++ {
		h.cells[n].logs = nil
	}
}

func (x *machine) Release(t *rapid.T) {
	identity, client := anIndex(t), aHolder(t)
	from, to, start, end := aRange(t)
	epoch := rapid.Uint64Range(0, 9).Draw(t, "epoch")
	if i := x.m.indexes[identity]; i != nil && from < to && rapid.IntRange(0, 4).Draw(t, "right") > 0 {
		client, epoch = max(1, i.holdings.cells[from].client), i.holdings.cells[from].epoch
	}
	_, err := x.l.Release(identity, client, start, end, epoch, true)
	if x.refusesHolder(t, identity, client, from, to, err) {
		return
	}
	h := &x.m.indexes[identity].holdings
	for _, c := range h.cells[from:to] {
		if c.client == client && c.epoch == epoch && len(c.logs) > 0 {
			expect(t, "not settled", err, ErrInUse)
			return
		}
	}
	expect(t, "release", err)
	for n := from; n < to; n++ {
		if c := &h.cells[n]; c.client == client && c.epoch == epoch {
			*c = cell{top: c.top}
		}
	}
}

// checkHoldings compares each cell.
func (x *machine) checkHoldings(t *rapid.T, identity string, h *modelHoldings) {
	for n, want := range h.cells {
		got := x.holding(t, identity, n)
		if got == nil {
			if want.client != 0 {
				t.Fatalf("cell %d is nobody's, want %+v", n, want)
			}
			continue
		}
		var logs []owing
		for _, in := range got.Inherits {
			if covers(in.Start, in.End, cellBounds[n]) {
				logs = append(logs, owing{in.Client, in.Epoch})
			}
		}
		if got.Client != want.client || got.Epoch != want.epoch || !suffice(logs, want.logs) {
			t.Fatalf("cell %d is %+v, want %+v", n, got, want)
		}
		if !x.l.Holds(identity, got.Client) || x.l.Holds(identity, 77) {
			t.Fatal("Holds is wrong")
		}
	}
}

// suffice reports whether logs are those that have to be replayed for a key, of all whose clients
// held it and did not settle: the first, who alone may have changed it, and perhaps others.
func suffice(logs, all []owing) bool {
	if len(all) == 0 || len(logs) == 0 {
		return len(all) == len(logs)
	}
	for _, o := range logs {
		if !slices.Contains(all, o) {
			return false
		}
	}
	return slices.Contains(logs, all[0])
}

// TestManyDeathsBeforeSettling: clients that acquire keys one after the other and die before they
// have settled leave no more logs than those of the clients that could have changed keys: the one
// that had settled, or had nothing to settle; and of those that acquired keys with a gap, for which
// there was no log, the first.
func TestManyDeathsBeforeSettling(t *testing.T) {
	d := newDying(t)
	d.mustAcquire(t, "b", "c")
	d.die()
	d.mustAcquire(t, "d", "e")
	d.die()
	for range 200 {
		d.mustAcquire(t, "a", "f")
		d.die()
	}
	d.mustAcquire(t, "a", "f")
	var got []string
	all, _ := d.l.Holdings("a")
	for _, in := range all[0].Inherits {
		got = append(got, fmt.Sprintf("%s-%s %d", in.Start, in.End, in.Client))
	}
	if want := []string{"b-c 1", "d-e 2", "a-f 3"}; len(all) != 1 || !slices.Equal(got, want) {
		t.Errorf("%d holdings, logs %q, want %q", len(all), got, want)
	}
	if _, err := d.l.Settle("a", d.last, []byte("a"), []byte("c"), all[0].Epoch); err != nil {
		t.Fatal(err)
	}
	d.die()
	d.mustAcquire(t, "a", "f")
	all, _ = d.l.Holdings("a")
	got = got[:0]
	for _, in := range all[0].Inherits {
		got = append(got, fmt.Sprintf("%s-%s %d", in.Start, in.End, in.Client))
	}
	if want := []string{"a-c 203", "d-e 2", "c-f 3"}; len(all) != 1 || !slices.Equal(got, want) {
		t.Errorf("after a part was settled: %d holdings, logs %q, want %q", len(all), got, want)
	}
}

// TestManyLogs: a grant of the keys of many that died has one log less than are possible, so that
// of its holder finds room.
func TestManyLogs(t *testing.T) {
	d := newDying(t)
	for n := range 2 * MaxInherits {
		d.mustAcquire(t, fmt.Sprintf("%03d", 2*n), fmt.Sprintf("%03d", 2*n+1))
		d.die()
	}
	for range 3 {
		d.mustAcquire(t, "000", "999")
		all, _ := d.l.Holdings("a")
		logs := 0
		for _, h := range all {
			logs += len(h.Inherits)
		}
		if d.last == 2*MaxInherits+1 && logs != 2*MaxInherits || logs > 2*MaxInherits+len(all) {
			t.Errorf("client %d: %d holdings with %d logs", d.last, len(all), logs)
		}
		d.die()
	}
}

// dying is an index whose clients acquire and die, all of them fenced everywhere.
type dying struct {
	l    *Ledger
	last uint32 // lives
}

func newDying(t *testing.T) *dying {
	l, err := New(Shape{Chunks: 1, Slots: 1, Locks: 4})
	if err != nil {
		t.Fatal(err)
	}
	l.Admit("a", 0, 0)
	l.SwapMap("a", 0, 1, nil)
	d := &dying{l: l}
	d.last, _ = l.Register("a", "")
	return d
}

func (d *dying) die() {
	d.l.Fence("a", d.last)
	d.l.Finished("a", d.last)
	d.last, _ = d.l.Register("a", "")
}

func (d *dying) acquire(start, end string) error {
	all := make([]uint32, d.last)
	for n := range all {
		all[n] = uint32(n + 1)
	}
	_, blocked, _, err := d.l.Acquire("a", Claim{Client: d.last, Generation: 1, Start: []byte(start), End: []byte(end), Fenced: all}, func(uint32) bool { return true })
	if err == nil && slices.ContainsFunc(blocked, func(b Blocked) bool { return b.Why == Crowded }) {
		return errCrowded
	}
	return err
}

var errCrowded = errors.New("too many holdings")

func (d *dying) mustAcquire(t *testing.T, start, end string) {
	t.Helper()
	if err := d.acquire(start, end); err != nil {
		t.Fatal(err)
	}
	if again, err := Decode(d.l.Append(nil)); err != nil || string(again.Append(nil)) != string(d.l.Append(nil)) {
		t.Fatalf("what is stored: %v", err)
	}
}

// TestLimitsOfHoldings: what would be too much is refused, and changes nothing.
func TestLimitsOfHoldings(t *testing.T) {
	d := newDying(t)
	l := d.l
	d.mustAcquire(t, "", "0")
	for n := 0; n < MaxHoldings-1; n++ {
		if err := d.acquire(fmt.Sprintf("0%04d", 2*n), fmt.Sprintf("0%04d", 2*n+1)); err != nil {
			t.Fatal(n, err)
		}
	}
	before := string(l.Append(nil))
	if err := d.acquire("1", "2"); !errors.Is(err, errCrowded) || string(l.Append(nil)) != before {
		t.Errorf("one more: %v", err)
	}
	all, _ := l.Holdings("a")
	for _, h := range slices.Clone(all) {
		if _, err := l.Release("a", d.last, h.Start, h.End, h.Epoch, true); err != nil {
			t.Error(err)
		}
	}
	if err := d.acquire("0", "1"); err != nil {
		t.Error(err)
	}
	if err := d.acquire("1", string(make([]byte, MaxHoldingKey+1))); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if again, err := Decode(l.Append(nil)); err != nil || string(again.Append(nil)) != string(l.Append(nil)) {
		t.Error(err)
	}
}
