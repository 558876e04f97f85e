package indexsim

import (
	"errors"
	"fmt"
	"sort"

	"github.com/anishathalye/porcupine"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/register"
	"github.com/dmindex/dmindex/pkg/pool"
)

// pair is what a scan visits.
type pair struct{ key, value string }

// scanned is a scan and what it visited.
type scanned struct {
	start     string
	limit     int
	reverse   bool
	pairs     []pair
	call, end int64
}

// history is what the clients of one run did. Times are counts of calls and returns: of two events
// one is before the other.
type history struct {
	ops               []porcupine.Operation
	scans             []scanned
	clock             int64
	inVain            int          // operations that their limit ended
	refused           int          // operations for which there was no memory
	merged, reclaimed uint64       // nodes, by all clients but those that died
	misled            uint64       // times that they came to a leaf that begins above the key
	combined          uint64       // changes that sessions carried out for others, likewise
	delegated         uint64       // READs that sessions made for others, likewise
	pools             []*pool.Pool // of the clients that live
	loading           bool         // a bulk load is under way: clients only read
	sweeping          []*sweeping  // clients that sweep
	sweeps, swept     int          // sweeps that came to their end, and nodes that these gave back
}

func (h *history) tick() int64 {
	h.clock++
	return h.clock
}

// do performs an operation. An error is one that the index may not answer here. The operation is in
// the history from its call on: its client may die before it returns. It stays there, without an
// answer, if its effect is unknown.
func (h *history) do(s index.Session, client int, in register.Input) error {
	i := len(h.ops)
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: in, Call: h.tick(), Output: register.Output{Unknown: true}, Return: register.Never,
	})
	out, err := register.Perform(s, in)
	switch {
	case err == nil:
		h.ops[i].Output, h.ops[i].Return = out, h.tick()
	case !errors.Is(err, index.ErrUnknown):
		h.ops[i].Input = nil // it has changed nothing: if it did, somebody reads what nobody wrote
	}
	return err
}

// batch looks keys up together: each is a lookup that began and ended with the batch. Those that
// got no answer are not judged.
func (h *history) batch(s index.Session, client int, keys []string) error {
	first, all := len(h.ops), make([][]byte, len(keys))
	call := h.tick()
	for i, key := range keys {
		all[i] = []byte(key)
		h.ops = append(h.ops, porcupine.Operation{
			ClientId: client, Input: register.Input{Key: key}, Call: call, Output: register.Output{Unknown: true}, Return: register.Never,
		})
	}
	err := s.LookupBatch(all, func(i int, value []byte, err error) {
		h.ops[first+i].Output = register.Output{Found: err == nil, Value: string(value)}
	})
	end := h.tick()
	for i := range keys {
		if o := &h.ops[first+i]; !o.Output.(register.Output).Unknown {
			o.Return = end
		}
	}
	return err
}

// operations are those that are judged: without those that changed nothing.
func (h *history) operations() (ops []porcupine.Operation) {
	for _, o := range h.ops {
		if _, ok := o.Input.(register.Input); ok {
			ops = append(ops, o)
		}
	}
	return ops
}

// scan performs a scan and checks its order.
func (h *history) scan(s index.Session, start string, limit int, reverse bool) error {
	sc := scanned{start: start, limit: limit, reverse: reverse, call: h.tick()}
	err := s.Scan([]byte(start), limit, reverse, func(k, v []byte) bool {
		sc.pairs = append(sc.pairs, pair{string(k), string(v)})
		return true
	})
	sc.end = h.tick()
	if err != nil {
		return fmt.Errorf("scan from %x: %w", start, err)
	}
	for i, p := range sc.pairs {
		if !sc.covers(p.key) || i > 0 && (p.key == sc.pairs[i-1].key || p.key < sc.pairs[i-1].key != reverse) {
			return fmt.Errorf("scan from %x, reverse %v: pair %d is %x, after %x", start, reverse, i, p.key, sc.pairs[max(0, i-1)].key)
		}
	}
	if len(sc.pairs) > limit {
		return fmt.Errorf("scan from %x with limit %d visits %d pairs", start, limit, len(sc.pairs))
	}
	h.scans = append(h.scans, sc)
	return nil
}

// covers reports whether key lies on the side of start where the scan goes.
func (sc *scanned) covers(key string) bool {
	if sc.reverse {
		return sc.start == "" || key < sc.start
	}
	return key >= sc.start
}

// reached reports whether the scan must have come by key: all of its side, unless its limit ended
// it before.
func (sc *scanned) reached(key string) bool {
	if !sc.covers(key) {
		return false
	}
	if len(sc.pairs) < sc.limit {
		return true
	}
	last := sc.pairs[len(sc.pairs)-1].key
	return sc.reverse && key >= last || !sc.reverse && key <= last
}

// check says what is wrong with the history: of point operations, that they are not linearizable;
// of scans, that a pair is missing that was there during all of it, or one is there that at no time
// during it was.
func (h *history) check() error {
	ops := h.operations()
	if result, guilty := register.Check(ops); result != porcupine.Ok {
		return fmt.Errorf("history of %d operations is not linearizable (%v):\n%s", len(ops), result, describe(guilty))
	}
	byKey := map[string][]porcupine.Operation{}
	var keys []string
	for _, o := range ops {
		k := o.Input.(register.Input).Key
		if byKey[k] == nil {
			keys = append(keys, k)
		}
		byKey[k] = append(byKey[k], o)
	}
	sort.Strings(keys)
	for i := range h.scans {
		sc := &h.scans[i]
		got := map[string]string{}
		for _, p := range sc.pairs {
			got[p.key] = p.value
			if byKey[p.key] == nil {
				return fmt.Errorf("scan visits key %x, which nobody wrote", p.key)
			}
		}
		for _, k := range keys {
			v, ok := got[k]
			if err := scanAgrees(sc, byKey[k], v, ok); err != nil {
				return fmt.Errorf("scan from %x, limit %d, reverse %v, at %d to %d, key %x: %w\n%s",
					sc.start, sc.limit, sc.reverse, sc.call, sc.end, k, err, describe(byKey[k]))
			}
		}
	}
	return nil
}

// changes reports whether o made its key be there, or (with gone) made it not be there; without an
// answer, whether it may have.
func changes(o *porcupine.Operation) (there, gone bool) {
	in, out := o.Input.(register.Input), o.Output.(register.Output)
	if out.Unknown {
		return in.Verb.Changes(), in.Verb == register.Delete || in.Verb == register.Modify
	}
	switch in.Verb {
	case register.Insert:
		return !out.Found, false
	case register.Update:
		return out.Found, false
	case register.Upsert:
		return true, false
	case register.Delete:
		return false, out.Found
	case register.Modify:
		action := register.Decide(in, out)
		return action == index.Put, action == index.Remove && out.Found
	}
	return false, false
}

// scanAgrees checks what a scan says of a key against the operations on it. It knows only their
// order of real time, so what it reports is wrong in every order that they may have had.
func scanAgrees(sc *scanned, ops []porcupine.Operation, value string, visited bool) error {
	if visited {
		for i := range ops {
			o := &ops[i]
			there, _ := changes(o)
			if there && o.Input.(register.Input).Value == value && o.Call < sc.end && !replaced(ops, o.Return, sc.call) {
				return nil
			}
		}
		return fmt.Errorf("its value %q was not there at any time of the scan", value)
	}
	if !sc.reached(string(ops[0].Input.(register.Input).Key)) {
		return nil
	}
	for i := range ops {
		o := &ops[i]
		if there, _ := changes(o); there && o.Return < sc.call && !removed(ops, o.Call, sc.end) {
			return fmt.Errorf("it is missing, and was there all the time since operation %d", o.Call)
		}
	}
	return nil
}

// replaced reports whether a change began after from and had ended before until: an older one
// cannot be seen then.
func replaced(ops []porcupine.Operation, from, until int64) bool {
	for i := range ops {
		if there, gone := changes(&ops[i]); (there || gone) && ops[i].Call > from && ops[i].Return < until {
			return true
		}
	}
	return false
}

// removed reports whether a removal may have taken effect between from and until.
func removed(ops []porcupine.Operation, from, until int64) bool {
	for i := range ops {
		if _, gone := changes(&ops[i]); gone && ops[i].Return > from && ops[i].Call < until {
			return true
		}
	}
	return false
}

func describe(ops []porcupine.Operation) string {
	text := ""
	for _, o := range ops {
		text += fmt.Sprintf("  client %d, %d to %d: %s\n", o.ClientId, o.Call, o.Return, register.Model.DescribeOperation(o.Input, o.Output))
	}
	return text
}

// count adds what became of nodes in a client, and remembers it.
func (h *history) count(x opened) {
	s := x.index.Stats()
	h.merged += s.Merges
	h.reclaimed += s.Reclaimed
	h.misled += s.Misled
	h.combined += s.Combined
	h.delegated += s.Delegated
	h.pools = append(h.pools, x.pool)
}
