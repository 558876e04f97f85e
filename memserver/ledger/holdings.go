package ledger

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/dmindex/dmindex/pkg/keyrange"
)

// Limits of the holdings of one index. They are stored with every change of the ledger.
const (
	MaxHoldings     = 1024    // pool.MaxHoldings
	MaxInherits     = 64      // logs that one holding has to replay
	MaxLog          = 64      // bytes of the name of a log
	MaxHoldingKey   = 1024    // bytes of a start or end
	MaxHoldingBytes = 1 << 20 // of all of them, stored
)

// Holding is a range of keys that one client has for itself: nobody else may serve a key of it, nor
// change what belongs to it.
type Holding struct {
	Start, End []byte // inclusive, exclusive; an empty End is the upper end of the key space
	Client     uint32
	// of the grant that it is, or that it is what is left of; above all epochs that its keys had
	// before
	Epoch    uint64
	Log      []byte // names the client's redo log; opaque
	Inherits []Inherited
}

// Inherited is a log that the holder has to replay for the keys from Start up to End: its client
// ended, and the log may have changes of these keys that are nowhere else. Where it has several for
// a key, the oldest is enough (owedLogs).
type Inherited struct {
	Start, End []byte
	Client     uint32
	Epoch      uint64
	Log        []byte
}

// Obstacle is why a part of a range is not granted yet.
type Obstacle uint8

// The obstacles, in the order in which they go away.
const (
	Held    Obstacle = iota // a client holds it that lives
	Fencing                 // its holder is fenced, but not proven quiet here
	Leased                  // its holder may still believe in its lease
	// the caller did not say that the holder is fenced at all other servers
	Elsewhere
	// it could be granted, but the holdings would become too many
	Crowded
)

// Blocked is a part of a range that is not granted yet, and who holds it; client 0 is nobody.
type Blocked struct {
	Start, End []byte
	Client     uint32
	Why        Obstacle
}

// Claim is the wish of a client to hold the keys from Start up to End.
type Claim struct {
	Client     uint32
	Generation uint64 // of the partition map that gives it these keys
	Start, End []byte
	Log        []byte // of the client
	// clients whose fence is complete at every other memory server of the index, as the caller
	// knows
	Fenced []uint32
}

// Acquire gives a client what it claims as far as nobody stands in the way: keys that nobody holds,
// and keys of orphans. An orphan is a client whose fence is complete here and, as the caller says,
// everywhere, and of which outlasted says that its lease is over. The caller inherits the logs that
// it had inherited and not settled, and its own where it may have changed keys: where it had
// nothing to settle (owedLogs). What the caller holds already stays as it is, so a repeated call
// answers the same.
//
// own is all that the client then holds of the range, blocked all that it does not. news reports
// whether the ledger changed. If the holdings would become too many nothing is granted. That is no
// error, since the claimant must learn whom else to fence: once all orphans of the range can be
// granted the claim may need fewer holdings than they have.
//
// Errors, which change nothing: ErrUnknownIndex, ErrUnknownClient, ErrFenced, ErrOtherMap,
// ErrInvalid, ErrExhausted (too many logs to replay).
func (l *Ledger) Acquire(identity string, c Claim, outlasted func(client uint32) bool) (own []Holding, blocked []Blocked, news bool, err error) {
	p, err := l.holder(identity, c.Client, c.Start, c.End)
	switch {
	case err != nil:
		return nil, nil, false, err
	case len(c.Log) > MaxLog:
		return nil, nil, false, fmt.Errorf("%w: name of a log of %d bytes; at most %d are possible", ErrInvalid, len(c.Log), MaxLog)
	case p.generation != c.Generation:
		return nil, nil, false, fmt.Errorf("%w: client %d claims keys %s of index %s by the map of generation %d, the map has generation %d",
			ErrOtherMap, c.Client, keyrange.Format(c.Start, c.End), identity, c.Generation, p.generation)
	}
	below, inside, above := carve(p.holdings, c.Start, c.End)
	g := granting{claim: &c, epoch: p.epoch}
	var crowded []Blocked // all that is not held, should nothing be granted
	for _, piece := range filled(inside, c.Start, c.End) {
		switch why, is := p.obstacle(piece.Client, &c, outlasted); {
		case piece.Client == c.Client:
			g.addPiece(piece)
		case is:
			g.addPiece(piece)
			blocked = append(blocked, Blocked{piece.Start, piece.End, piece.Client, why})
			crowded = append(crowded, blocked[len(blocked)-1])
		default:
			crowded = append(crowded, Blocked{piece.Start, piece.End, piece.Client, Crowded})
			g.grant(piece)
		}
	}
	for _, h := range g.pieces {
		if h.Client == c.Client {
			own = append(own, h)
		}
		if len(h.Inherits) > MaxInherits {
			return nil, nil, false, fmt.Errorf("%w: keys %s of index %s have %d logs to be replayed, at most %d are possible: claim fewer of them at once",
				ErrExhausted, keyrange.Format(h.Start, h.End), identity, len(h.Inherits), MaxInherits)
		}
	}
	if g.epoch == p.epoch {
		return own, blocked, false, nil
	}
	if err := p.setHoldings(slices.Concat(below, g.pieces, above), l.MostHoldings()); err != nil {
		own = slices.DeleteFunc(own, func(h Holding) bool { return h.Epoch > p.epoch })
		return own, crowded, false, nil
	}
	p.epoch = g.epoch
	return own, blocked, true, nil
}

// granting builds what a range is after a claim.
type granting struct {
	claim  *Claim
	epoch  uint64 // of the last grant
	pieces []Holding
	open   bool // the last piece is a grant of this call, to which more can be added
}

func (g *granting) addPiece(h Holding) { g.pieces, g.open = append(g.pieces, h), false }

// grant makes a piece the claimant's. Pieces that follow each other become one holding, unless it
// would inherit too much: one log less than there may be, so that there is room for that of its
// holder, who may change what it inherited no log for.
func (g *granting) grant(piece Holding) {
	logs := owedLogs(piece)
	if last := len(g.pieces) - 1; g.open && len(g.pieces[last].Inherits)+len(logs) < MaxInherits {
		h := &g.pieces[last]
		h.End, h.Inherits = piece.End, append(h.Inherits, logs...)
		return
	}
	g.epoch++
	g.pieces = append(g.pieces, Holding{Start: piece.Start, End: piece.End, Client: g.claim.Client, Epoch: g.epoch, Log: g.claim.Log, Inherits: logs})
	g.open = true
}

// owedLogs are the logs that have to be replayed for an orphan's keys. Of those that one key has in
// the list only the oldest can have changes of it: whoever held the key after that log's client had
// the log to replay, changes nothing of the key before it has settled, and then the log is not in
// the list any more. So a log whose keys older ones have, all of them, is left out; and however
// many clients die one after the other before they settle, the list does not grow.
func owedLogs(piece Holding) (logs []Inherited) {
	all := piece.Inherits
	if piece.Client != 0 {
		all = append(slices.Clone(all), Inherited{piece.Start, piece.End, piece.Client, piece.Epoch, piece.Log})
	}
	for i := range all {
		if !isCovered(&all[i], all) {
			logs = append(logs, all[i])
		}
	}
	return logs
}

// isCovered reports whether older ones of logs have all keys of in.
func isCovered(in *Inherited, logs []Inherited) bool {
	for at, further := in.Start, true; further; { // the keys below at are covered
		further = false
		for i := range logs {
			o := &logs[i]
			if o.Epoch >= in.Epoch || bytes.Compare(o.Start, at) > 0 || len(o.End) > 0 && bytes.Compare(o.End, at) <= 0 {
				continue
			}
			if len(o.End) == 0 || len(in.End) > 0 && bytes.Compare(o.End, in.End) >= 0 {
				return true
			}
			at, further = o.End, true
		}
	}
	return false
}

// obstacle says why keys of a client cannot be granted to a claimant yet, if they cannot; client 0
// is nobody.
func (p *place) obstacle(client uint32, c *Claim, outlasted func(client uint32) bool) (why Obstacle, is bool) {
	if client == 0 {
		return 0, false
	}
	switch s, _ := p.standing(client); {
	case s == fencing:
		return Fencing, true
	case s != complete:
		return Held, true
	case !outlasted(client):
		return Leased, true
	case !slices.Contains(c.Fenced, client):
		return Elsewhere, true
	}
	return 0, false
}

// Settle says that the holder of a grant has replayed, for the keys from start up to end, what it
// inherited. It is done for the parts that are of that epoch. Errors: ErrUnknownIndex,
// ErrUnknownClient, ErrFenced, ErrInvalid; ErrNotOwned: not all of these keys are the client's,
// under this epoch.
func (l *Ledger) Settle(identity string, client uint32, start, end []byte, epoch uint64) (news bool, err error) {
	p, err := l.holder(identity, client, start, end)
	if err != nil {
		return false, err
	}
	below, inside, above := carve(p.holdings, start, end)
	for _, h := range filled(inside, start, end) {
		if h.Client != client || h.Epoch != epoch {
			return false, fmt.Errorf("%w: keys %s, index %s, client %d, epoch %d", ErrNotOwned, keyrange.Format(h.Start, h.End), identity, client, epoch)
		}
		news = news || len(h.Inherits) > 0
	}
	if !news {
		return false, nil
	}
	for i := range inside {
		inside[i].Inherits = nil
	}
	return true, p.setHoldings(slices.Concat(below, inside, above), l.MostHoldings())
}

// Release takes the keys from start up to end back from a client, as far as it holds them by the
// grant of that epoch: all that it changed of them is written back. A call that is late takes
// nothing that was granted after it was made. Errors: ErrUnknownIndex, ErrUnknownClient, ErrFenced,
// ErrInvalid; ErrInUse: it has logs of theirs to replay; ErrHoldings: the holdings would become too
// many, and nothing is released.
//
// A release must leave room for the grant that follows it, or the keys would have no holder for
// good. So keys that nobody holds count as holdings, and of what an index may have, an eighth is
// left to grants: claims divide these keys, and the keys of orphans, as the map does. Without
// divide none is left: the ledger has no room for more holdings of any index. A release by which
// the count does not grow is always possible, so a client can join what it holds.
func (l *Ledger) Release(identity string, client uint32, start, end []byte, epoch uint64, divide bool) (news bool, err error) {
	p, err := l.holder(identity, client, start, end)
	if err != nil {
		return false, err
	}
	below, inside, above := carve(p.holdings, start, end)
	kept := inside[:0]
	for _, h := range inside {
		switch {
		case h.Client != client || h.Epoch != epoch:
			kept = append(kept, h)
			continue
		case len(h.Inherits) > 0:
			return false, fmt.Errorf("%w: client %d has not replayed the logs that it inherited with keys %s of index %s",
				ErrInUse, client, keyrange.Format(h.Start, h.End), identity)
		}
		news = true
	}
	if !news {
		return false, nil
	}
	next, most := joined(slices.Concat(below, kept, above)), l.MostHoldings()
	if n := needed(next); n > needed(p.holdings) {
		if !divide {
			return false, fmt.Errorf("%w: index %s would need %d holdings for keys that change hands, and the ledger has no room for more: the client keeps keys %s until some were joined",
				ErrHoldings, identity, n, keyrange.Format(start, end))
		}
		if n > most-most/grantsPart || len(appendHoldings(nil, next)) > MaxHoldingBytes-MaxHoldingBytes/grantsPart {
			return false, fmt.Errorf("%w: index %s would need %d holdings for keys that change hands, and has room for %d, or for %d bytes: the client keeps keys %s until some were joined",
				ErrHoldings, identity, n, most-most/grantsPart, MaxHoldingBytes-MaxHoldingBytes/grantsPart, keyrange.Format(start, end))
		}
	}
	return true, p.setHoldings(next, most)
}

// grantsPart is the part of what an index may have that is left to grants.
const grantsPart = 8

// needed is how many holdings there are, and ranges between them that nobody holds.
func needed(all []Holding) int {
	n, at, open := len(all), []byte(nil), true // the keys from at on are to be looked at, if open
	for i := range all {
		if !bytes.Equal(all[i].Start, at) {
			n++
		}
		at, open = all[i].End, len(all[i].End) > 0
	}
	if open {
		n++
	}
	return n
}

// LimitHoldings lets each index have fewer holdings than MaxHoldings. It is not stored: tests ask
// for it.
func (l *Ledger) LimitHoldings(most int) { l.most = most }

// MostHoldings is how many holdings each index may have.
func (l *Ledger) MostHoldings() int { return cmp.Or(l.most, MaxHoldings) }

// Holdings are those of an index, in the order of keys. The caller must not change them.
func (l *Ledger) Holdings(identity string) ([]Holding, error) {
	p, _ := l.find(identity)
	if p == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownIndex, identity)
	}
	return p.holdings, nil
}

// Holds reports whether a client holds anything.
func (l *Ledger) Holds(identity string, client uint32) bool {
	p, _ := l.find(identity)
	return p != nil && slices.ContainsFunc(p.holdings, func(h Holding) bool { return h.Client == client })
}

// holder is the place of an index, if a client may hold keys from start up to end.
func (l *Ledger) holder(identity string, client uint32, start, end []byte) (*place, error) {
	if err := l.Live(identity, client); err != nil {
		return nil, err
	}
	if !isRange(start, end) {
		return nil, fmt.Errorf("%w: keys %s are no range whose ends have at most %d bytes", ErrInvalid, keyrange.Format(start, end), MaxHoldingKey)
	}
	p, _ := l.find(identity)
	return p, nil
}

// setHoldings makes all the holdings, unless they are too many; then nothing is changed.
func (p *place) setHoldings(all []Holding, most int) error {
	all = joined(all)
	if len(all) > most && len(all) > len(p.holdings) {
		return fmt.Errorf("%w: there would be %d holdings, at most %d are possible: use fewer ranges", ErrExhausted, len(all), most)
	}
	if n := len(appendHoldings(nil, all)); n > MaxHoldingBytes {
		return fmt.Errorf("%w: the holdings would take %d bytes, at most %d are possible: use fewer ranges, or shorter keys", ErrExhausted, n, MaxHoldingBytes)
	}
	p.holdings = all
	return nil
}

// checkHoldings says which invariant is broken: holdings are sorted and do not overlap; what is of
// one epoch is of one client and one log, and no epoch is above the counter; inherited logs lie
// within their holding, are older than it and of others.
func (p *place) checkHoldings() error {
	if len(p.holdings) > MaxHoldings || len(appendHoldings(nil, p.holdings)) > MaxHoldingBytes {
		return fmt.Errorf("%d holdings are too many", len(p.holdings))
	}
	grants := map[uint64]*Holding{}
	for i := range p.holdings {
		h := &p.holdings[i]
		keys := keyrange.Format(h.Start, h.End)
		if i > 0 {
			if before := p.holdings[i-1].End; len(before) == 0 || bytes.Compare(before, h.Start) > 0 {
				return fmt.Errorf("holding %s begins before the end of the one before it, %s", keys, keyrange.Quote(before))
			}
		}
		if s, _ := p.standing(h.Client); s != live && s != fencing && s != complete {
			return fmt.Errorf("holding %s is of client %d, which is not known", keys, h.Client)
		}
		if !isRange(h.Start, h.End) || len(h.Log) > MaxLog || h.Epoch == 0 || h.Epoch > p.epoch || len(h.Inherits) > MaxInherits {
			return fmt.Errorf("holding %s of epoch %d (of %d) with a log of %d bytes and %d inherited ones", keys, h.Epoch, p.epoch, len(h.Log), len(h.Inherits))
		}
		if o := grants[h.Epoch]; o != nil && (o.Client != h.Client || !bytes.Equal(o.Log, h.Log)) {
			return fmt.Errorf("epoch %d is of client %d and of client %d", h.Epoch, o.Client, h.Client)
		}
		grants[h.Epoch] = h
		for _, in := range h.Inherits {
			if start, end, ok := keyrange.Intersect(in.Start, in.End, h.Start, h.End); !ok || !bytes.Equal(start, in.Start) || !bytes.Equal(end, in.End) || !isRange(in.Start, in.End) {
				return fmt.Errorf("holding %s inherits keys %s", keys, keyrange.Format(in.Start, in.End))
			}
			if !isNumber(in.Client) || in.Client == h.Client || in.Epoch == 0 || in.Epoch >= h.Epoch || len(in.Log) > MaxLog {
				return fmt.Errorf("holding %s of client %d, epoch %d, inherits from client %d, epoch %d", keys, h.Client, h.Epoch, in.Client, in.Epoch)
			}
		}
	}
	return nil
}
