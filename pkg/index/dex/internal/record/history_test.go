package record

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// logged is a record of the one key of TestHistories, and what the key has when it is the last one.
type logged struct {
	Record
	after  string // "" = the key is not there
	undone bool   // its change is never made: its operation goes on with another record, or fails
	text   string
}

// TestHistories replays every end of random logs of one key, over every state that the leaf in the
// memory server may have then, and from every beginning that truncation may have left. The key ends
// with what the last answered change left; only a change that was not answered may be made or not.
func TestHistories(t *testing.T) {
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 3))
		log, first := randomLog(r, 1+r.IntN(9))
		for n := range len(log) + 1 {
			for m := range n + 1 { // written back after record m
				for from := range m + 1 { // truncated up to this one
					base := first
					if m > 0 {
						base = log[m-1].after
					}
					want := []string{first}
					if n > 0 {
						want[0] = log[n-1].after
						if last := &log[n-1]; last.undone && allowed(last.Op, last.after) {
							want = append(want, string(last.Value))
						}
					}
					got := replayed(log[from:n], from, base)
					if again := replayed(log[from:n], from, got); again != got {
						t.Fatalf("seed %d: records %d to %d of %v over %q give %q, and once more %q",
							seed, from+1, n, texts(log[:n]), base, got, again)
					}
					if !slices.Contains(want, got) {
						t.Fatalf("seed %d: the key was %q; records %d to %d of %v over %q give %q, want one of %q",
							seed, first, from+1, n, texts(log[:n]), base, got, want)
					}
				}
			}
		}
	}
}

// allowed reports whether a record's change may be made where the key has now.
func allowed(op byte, now string) bool {
	return op == Put || (op == PutIfPresent) == (now != "")
}

func texts(log []logged) (all []string) {
	for _, l := range log {
		all = append(all, l.text)
	}
	return all
}

// randomLog makes n operations on a key, and returns their records and what the key had before.
func randomLog(r *rand.Rand, n int) (log []logged, first string) {
	if r.IntN(2) == 0 {
		first = "first"
	}
	now := first
	value := func() string { return fmt.Sprint("v", len(log)) }
	appends := func(op byte, value, after string, undone bool) {
		l := logged{Record: Record{Op: op, Value: []byte(value)}, after: after, undone: undone, text: fmt.Sprintf("%d %q", op, value)}
		log, now = append(log, l), after
	}
	plain := func() { // a change with a frame
		if r.IntN(3) == 0 {
			appends(Delete, "", "", false)
		} else {
			v := value()
			appends(Put, v, v, false)
		}
	}
	for range n {
		if r.IntN(3) == 0 {
			plain()
			continue
		}
		op := []byte{Put, PutIfAbsent, PutIfPresent}[r.IntN(3)]
		at, v := len(log)+1, value()
		switch met := allowed(op, now); {
		case r.IntN(3) == 0: // the frame is not as it should be: others come in between
			appends(op, v, now, true)
			for range r.IntN(3) {
				plain()
			}
		case met:
			appends(op, v, v, false)
			continue
		default: // refused
			appends(op, v, now, false)
		}
		appends(Cancel, string(binary.LittleEndian.AppendUint64(nil, uint64(at))), now, false)
	}
	return log, first
}

// replayed is what the key has after a replay of records, the first of which has the position after
// from, over a leaf that has base.
func replayed(log []logged, from int, base string) string {
	var h History
	for i, l := range log {
		h.Add(l.Record, uint64(from+i+1), 0)
	}
	r, ok := h.Outcome()
	switch {
	case !ok, r.Op != Delete && !allowed(r.Op, base):
		return base
	case r.Op == Delete:
		return ""
	}
	return string(r.Value)
}

// TestHistoryOfTwoLogs: a record of a later log does not build on an earlier log.
func TestHistoryOfTwoLogs(t *testing.T) {
	var h History
	// refused: the key is not there
	h.Add(Record{Op: PutIfPresent, Value: []byte("old")}, 10, 0)
	h.Add(Record{Op: PutIfAbsent, Value: []byte("new")}, 10, 1)
	if r, ok := h.Outcome(); !ok || r.Op != PutIfAbsent {
		t.Fatalf("%+v, %v: what the leaf has decides", r, ok)
	}
	h.Add(Record{Op: Cancel, Value: binary.LittleEndian.AppendUint64(nil, 10)}, 20, 0)
	if r, ok := h.Outcome(); !ok || r.Op != PutIfAbsent {
		t.Fatalf("%+v, %v: the record of another log is taken back", r, ok)
	}
	h.Add(Record{Op: Cancel, Value: binary.LittleEndian.AppendUint64(nil, 10)}, 20, 1)
	if r, ok := h.Outcome(); ok {
		t.Fatalf("%+v is left", r)
	}
}
