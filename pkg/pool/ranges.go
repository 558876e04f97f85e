package pool

import (
	"errors"
	"fmt"
	"time"
)

// Ranges is the part of the control path that decides which client of an index holds which range of
// keys, for designs whose ranges have owners. All of it is decided by the home server and stored
// there before it is answered; a repeated call answers the same. A Control may have it. Safe for
// concurrent use. Every call ends within limit.
//
// Errors: those of Control; ErrOtherMap; ErrNotHeld; ErrHoldings.
type Ranges interface {
	// Acquire gives this client what it claims, as far as nobody stands in the way.
	Acquire(c Claim, limit time.Duration) (Acquired, error)

	// Settle says that the client has replayed what it inherited with the keys from start up to
	// end, of a grant of that epoch. ErrNotHeld: these are not its own under that epoch.
	Settle(client uint32, start, end []byte, epoch uint64, limit time.Duration) error

	// Release gives keys back, as far as the client holds them by the grant of that epoch: all that
	// it changed of them is written back. ErrNotHeld: it has not settled them. ErrHoldings: this
	// call released nothing.
	Release(client uint32, start, end []byte, epoch uint64, limit time.Duration) error

	// Holdings are all of the index, in the order of keys.
	Holdings(limit time.Duration) ([]Held, error)

	// FenceDead fences clients at the home server, as Control.Fence does, and says that they
	// answer nothing any more, whatever their leases say: their processes are dead, or have given
	// them up. Then nobody waits for the ends of these leases. It must be so: see
	// docs/design/ownership.md.
	FenceDead(clients []uint32, limit time.Duration) error
}

// MaxHoldings is how many holdings an index may have. All of its clients share them.
const MaxHoldings = 1024

// Holding is a range of keys that this client has for itself: as long as it does, nobody else
// serves a key of it.
type Holding struct {
	Start, End []byte // inclusive, exclusive; an empty End is the upper end of the key space
	Epoch      uint64 // of the grant: above all that any of these keys had before, whoever held it
	Inherits   []Inherited
}

// Inherited is a log to be replayed for the keys from Start up to End, which lie within the
// holding: its client ended, and changes that it acknowledged may be in its log alone. Nothing of
// that client takes effect any more, on any memory server of the index.
type Inherited struct {
	Start, End []byte
	Client     uint32
	// of the client's grant; of two logs for one key, that with the higher epoch is the later one
	Epoch uint64
	Log   []byte // as the client named it when it acquired
}

// Held is a holding of any client, as the home server has it.
type Held struct {
	Holding
	Client uint32
	Name   string // of the process of a client that lives
	Fenced bool   // it is an orphan: whoever is to own the keys next may acquire them
	Log    []byte
}

// Claim is the wish of a client to hold the keys from Start up to End.
type Claim struct {
	Client     uint32
	Generation uint64 // of the partition map by which they are its own
	Start, End []byte
	Log        []byte // names the client's log for who inherits it; at most 64 bytes
	// clients that it fenced at every memory server but the home, which knows by itself
	Fenced []uint32
}

// Acquired is what became of a claim.
type Acquired struct {
	Own     []Holding // all that the client holds of the range now
	Blocked []Blocked // all of it that it does not
}

// Blocked is a part of a claim that is not granted yet.
type Blocked struct {
	Start, End []byte
	Client     uint32 // who holds it; 0 = nobody
	Why        Obstacle
}

// Obstacle is why a part of a claim is not granted yet. Only ToBeFenced is for the claimant to
// remove; it may do so early.
type Obstacle uint8

// The obstacles.
const (
	HeldByOther Obstacle = iota // its holder lives
	// its holder is fenced, but the home server cannot prove yet that it is quiet
	BeingFenced
	StillLeased // its holder may still believe in its lease
	ToBeFenced  // the claimant has to fence its holder at all other memory servers
	Crowded     // nothing else stands in the way, but the index would have too many holdings
)

// String is the obstacle for people.
func (o Obstacle) String() string {
	switch o {
	case HeldByOther:
		return "its holder has not given it back yet"
	case BeingFenced:
		return "its holder is fenced, but not proven quiet at the home memory server"
	case StillLeased:
		return "its holder is fenced, and its lease is waited out"
	case ToBeFenced:
		return "its holder has to be fenced at all memory servers"
	case Crowded:
		return "the index has too many holdings, until servers have joined theirs"
	}
	return fmt.Sprintf("obstacle %d", uint8(o))
}

// Errors of Ranges.
var (
	// ErrHoldings is returned when an index would have more holdings than it may, so keys stay with
	// their holder until some were joined.
	ErrHoldings = errors.New("too many holdings of keys")
	// ErrOtherMap is returned when keys are claimed by another partition map than that of the home
	// server. Read it and look again.
	ErrOtherMap = errors.New("claimed by another partition map")
	// ErrNotHeld is returned when keys are not the client's, or not under that epoch, or not
	// settled.
	ErrNotHeld = errors.New("keys are not held like this")
)

// KnowsOwners reports whether the memory servers decide who holds which range.
func (p *Pool) KnowsOwners() bool {
	_, ok := p.control.(Ranges)
	return ok
}

// Acquire claims keys for this client; see [Ranges]. Claim.Client is filled in.
func (p *Pool) Acquire(c Claim) (Acquired, error) {
	c.Client = p.number
	r, err := p.ranges()
	if err != nil {
		return Acquired{}, err
	}
	return r.Acquire(c, p.limit)
}

// Settle says that this client replayed what it inherited; see [Ranges].
func (p *Pool) Settle(start, end []byte, epoch uint64) error {
	r, err := p.ranges()
	if err != nil {
		return err
	}
	return r.Settle(p.number, start, end, epoch, p.limit)
}

// Release gives keys of this client back; see [Ranges].
func (p *Pool) Release(start, end []byte, epoch uint64) error {
	r, err := p.ranges()
	if err != nil {
		return err
	}
	return r.Release(p.number, start, end, epoch, p.limit)
}

// Holdings are all of the index; see [Ranges].
func (p *Pool) Holdings() ([]Held, error) {
	r, err := p.ranges()
	if err != nil {
		return nil, err
	}
	return r.Holdings(p.limit)
}

// FenceOthers ends other clients at one memory server; see Control.Fence.
func (p *Pool) FenceOthers(server uint16, clients []uint32) error {
	return p.control.Fence(server, clients, min(p.limit, partingLimit))
}

// ranges is the control path, once this client may use it. A client that was given up asks for
// nothing any more.
func (p *Pool) ranges() (Ranges, error) {
	if why := p.condemned.Load(); why != nil {
		return nil, *why
	}
	r, ok := p.control.(Ranges)
	if !ok {
		return nil, errors.New("the memory servers of this index do not know owners of ranges")
	}
	return r, nil
}
