package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/env/simenv"
)

// history is what the programs did.
type history struct {
	ops    []porcupine.Operation
	clock  int64
	acks   int
	failed int // operations that were not done, or may not have been
	reason string
	// changes of a key of which it is not known whether they were done
	doubts map[int]int
	// of the last change by a program
	lastKey int
	lastPod *pod
	told    [rpcv1.Outcome_TIMED_OUT + 1]int // answers by their code
}

// asked is one operation. A scan is noted as a lookup of each key that it covered.
type asked struct {
	key   int
	kind  rpcv1.Operation_Kind
	value uint32 // what is written
	// for the judge: the n-th change of its key and kind whose outcome is not known and whose value
	// nobody has seen; 0 = none of them
	unseen int
}

// answered is the answer to an operation.
type answered struct {
	unknown bool   // there was none, or it said so
	refused bool   // a conditional change found the key there, or not there
	present bool   // the key was there, and its value was not asked for
	value   uint32 // of a lookup, or before a change that tells it; 0 = the key was not there
}

func (a asked) changes() bool { return a.kind.Traits().Changes }
func (a asked) stores() bool  { return a.kind.Traits().Stores }

// tells reports whether the answer to a change has the value that the key had.
func (a asked) tells() bool { return a.changes() && a.kind.Traits().Value }

// mostDoubts is how many changes of a key may have no outcome: the search for an order of a key's
// history takes time that doubles with each. From then on the key is only read.
const mostDoubts = 3

func (h *history) tick() int64 { h.clock++; return h.clock }

// begin notes an operation whose outcome is not known yet, and returns its place.
func (h *history) begin(program int, in asked) int {
	h.ops = append(h.ops, porcupine.Operation{ClientId: program, Input: in, Call: h.tick(), Output: answered{unknown: true}, Return: 1<<63 - 1})
	return len(h.ops) - 1
}

func (h *history) end(at int, out answered) { h.ops[at].Output, h.ops[at].Return = out, h.tick() }

func (h *history) doubt(in asked) {
	if in.changes() {
		h.doubts[in.key]++
	}
}

// undone notes that an operation had no effect.
func (h *history) undone(at int) { h.ops[at].Input = nil }

// requests asks for several keys at once and notes what came of each; nil if all were done.
func (w *ownWorld) requests(p *simenv.Process, program int, d *pod, all []asked, limit time.Duration) (err error) {
	h := w.log
	var ops []*rpcv1.Operation
	var places []int
	for n, in := range all {
		if (w.wide.is || len(all) > 1) && h.doubts[in.key] >= mostDoubts {
			in = asked{key: in.key, kind: rpcv1.Operation_LOOKUP}
			all[n] = in
		}
		op := &rpcv1.Operation{Kind: in.kind, Key: w.key(in.key)}
		if in.stores() {
			op.Value = w.value(in.value)
		}
		ops, places = append(ops, op), append(places, h.begin(program, in))
	}
	ready := d.ready
	out := w.ask(p, d, ops, false, limit)
	if out == nil {
		for _, in := range all {
			h.doubt(in)
		}
		return w.fails(ready && !d.gone, d.name+" did not answer")
	}
	for n, o := range out {
		if e := w.answer(ready && !d.gone, all[n], places[n], o); err == nil {
			err = e
		}
	}
	return err
}

// answer notes the outcome of one operation. What says that nothing was done is believed: if it was
// done, a value turns up that nobody wrote. It counts as failed at a server that programs are led
// to, which is ready, and so does one of which it is not known. A server that is not ready has no
// open index, so it cannot ask the home memory server who serves keys whose move is deferred.
func (w *ownWorld) answer(serves bool, in asked, at int, o *rpcv1.Outcome) error {
	h := w.log
	h.told[o.Code]++
	switch o.Code {
	case rpcv1.Outcome_OK, rpcv1.Outcome_NOT_FOUND, rpcv1.Outcome_ALREADY_EXISTS:
		h.acks++
		got := answered{refused: o.Code != rpcv1.Outcome_OK}
		switch {
		case o.Code == rpcv1.Outcome_NOT_FOUND && (in.kind == rpcv1.Operation_INSERT || in.kind == rpcv1.Operation_UPSERT || in.kind == rpcv1.Operation_EXCHANGE),
			o.Code == rpcv1.Outcome_ALREADY_EXISTS && in.kind != rpcv1.Operation_INSERT:
			w.Report("%v of key %d is answered by %v", in.kind, in.key, o.Code)
		case o.Code == rpcv1.Outcome_OK && (!in.changes() || o.Found):
			got.value = w.number(in.key, o.Value)
		}
		h.end(at, got)
		return nil
	case rpcv1.Outcome_UNKNOWN:
		h.doubt(in)
		if strings.Contains(o.Message, "is not open") {
			w.Report("%v of key %d was not begun, and is answered by %v: %s", in.kind, in.key, o.Code, o.Message)
		}
		return w.fails(serves, fmt.Sprintf("%v: %s", o.Code, o.Message))
	case rpcv1.Outcome_INVALID, rpcv1.Outcome_DATA_LOST:
		w.Report("%v of key %d is answered by %v: %s", in.kind, in.key, o.Code, o.Message)
	}
	h.undone(at)
	return w.fails(serves, fmt.Sprintf("%v: %s", o.Code, o.Message))
}

// fails notes why an operation has no answer of the index. It counts at a server that serves.
func (w *ownWorld) fails(serves bool, why string) error {
	if serves {
		w.log.failed++
		w.log.reason = why
	}
	return errors.New(why)
}
