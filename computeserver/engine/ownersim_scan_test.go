package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/partition"
)

// pairOf is a pair that a scan delivered.
type pairOf struct {
	key, value []byte
	is         expiry.Mark
}

// scanned is a scan under way at a compute server, as its caller sees it: pairs arrive in pieces.
type scanned struct {
	pairs []pairOf // that arrived
	over  bool
	err   error // of a scan that is over
}

// scanAt runs a scan at a compute server on behalf of process p, and returns what arrived until it
// is over, the server is dead, or nothing came for as long as the limit. more is called with each
// piece, until it returns false.
func (w *ownWorld) scanAt(p *simenv.Process, d *pod, r ScanRange, forwarded bool, limit time.Duration, more func([]pairOf) bool) error {
	p.Sleep(w.UpTo(time.Millisecond))
	c, there := d.core, d.process
	if c == nil || there.Dead() {
		return &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: d.name + " is not there"}
	}
	s, arrived, left := &scanned{}, p.NewEvent(), false
	there.Go("scan", func() {
		var piece []pairOf
		send := func() error {
			there.Sleep(w.UpTo(200 * time.Microsecond))
			s.pairs, piece = append(s.pairs, piece...), nil
			arrived.Set()
			if left {
				return errors.New("the caller has left")
			}
			return nil
		}
		err := c.Scan(context.Background(), r, forwarded, func(key, value []byte, is expiry.Mark) bool {
			piece = append(piece, pairOf{bytes.Clone(key), bytes.Clone(value), is})
			return !left
		}, send)
		_ = send()
		s.over, s.err = true, err
		arrived.Set()
	})
	defer func() { left = true }()
	for silent := time.Duration(0); ; {
		const look = 50 * time.Millisecond
		heard := arrived.Wait(look)
		silent += look
		if heard {
			silent = 0
		}
		piece := s.pairs
		s.pairs = nil
		switch {
		case len(piece) > 0 && !more(piece):
			return nil
		case s.over && len(s.pairs) == 0: // the last ones may arrive while more stands still
			return s.err
		case there.Dead() || silent > limit:
			return &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: d.name + " sends nothing"}
		}
	}
}

func (s *simPeers) Scan(_ context.Context, to partition.Server, r ScanRange, limit time.Duration, visit Visit, between func() error) error {
	var broken error
	err := s.w.scanAt(s.p, s.w.podOf(to.ID), r, true, limit, func(piece []pairOf) bool {
		for _, pair := range piece {
			if !visit(pair.key, pair.value, pair.is) {
				return false
			}
		}
		broken = between()
		return broken == nil
	})
	if broken != nil {
		return broken
	}
	return err
}

// keyNumber is which key it is, and false if it is none.
func (w *ownWorld) keyNumber(key []byte) (int, bool) {
	return sort.Find(w.keys(), func(n int) int { return bytes.Compare(key, w.key(n)) })
}

// scan runs a scan from key number from up to number to, and notes what it said of each of them:
// between its begin and its end each key was once as it says. What an error cut short holds up to
// the last pair that arrived.
func (w *ownWorld) scan(p *simenv.Process, program int, d *pod, from, to int, reverse, keysOnly bool, most int) error {
	h, all := w.log, map[int]answered{}
	begun := h.tick()
	r := ScanRange{Start: w.key(from), Limit: uint64(most), Reverse: reverse, KeysOnly: keysOnly}
	if to < w.keys() {
		r.End = w.key(to)
	}
	first, last := from, to // the keys that it has told of
	if reverse {
		first = to
	} else {
		last = from
	}
	var before []byte
	ready := d.ready
	err := w.scanAt(p, d, r, false, 2*ownLimit, func(piece []pairOf) bool {
		for _, pair := range piece {
			n, ok := w.keyNumber(pair.key)
			if !ok || n < from || n >= to {
				w.Report("a scan of keys %d to %d has key %x", from, to, pair.key)
				return false
			}
			if order := bytes.Compare(before, pair.key); before != nil && (!reverse && order >= 0 || reverse && order <= 0) {
				w.Report("a scan has key %x behind key %x, reverse %v", pair.key, before, reverse)
			}
			before = pair.key
			all[n] = answered{present: keysOnly}
			if !keysOnly {
				all[n] = answered{value: w.number(n, pair.value)}
			}
			if reverse {
				first = n
			} else {
				last = n + 1
			}
		}
		return true
	})
	if most > 0 && len(all) > most {
		w.Report("a scan of at most %d keys has %d", most, len(all))
	}
	if err == nil && (most == 0 || len(all) < most) {
		first, last = from, to
	}
	for n := first; n < last; n++ {
		at := h.begin(program, asked{key: n, kind: rpcv1.Operation_LOOKUP})
		h.ops[at].Call = begun
		h.end(at, all[n])
	}
	w.wide.scanned += last - first
	w.wide.across += w.bounds(first, last)
	if err == nil {
		w.wide.scans++
		h.acks++
		return nil
	}
	o := OutcomeOf(err)
	h.told[o.Code]++
	if !slices.Contains([]rpcv1.Outcome_Code{rpcv1.Outcome_UNAVAILABLE, rpcv1.Outcome_NOT_OWNER, rpcv1.Outcome_TIMED_OUT, rpcv1.Outcome_POOL_FULL}, o.Code) {
		w.Report("a scan of keys %d to %d ends with %v", from, to, err)
	}
	if ready && !d.gone {
		h.failed++
	}
	h.reason = "a scan: " + err.Error()
	return err
}
