package combine

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool"
)

// Mode is what a change may find, and what it does.
type Mode uint8

// The modes.
const (
	Insert Mode = iota // the key is not there
	Update             // it is
	Upsert
	Delete // it is
)

// Change is what a session offers to whoever has the lock that it waits for (pool.Session.LockOr,
// AcquireOr). Key and Value are the session's own. They stay as they are until it has the lock or
// the answer.
type Change struct {
	Mode       Mode
	Key, Value []byte
	Answer     error // nil, ErrExists or ErrNotFound
}

// Effect is what a change does to its key.
type Effect uint8

// The effects.
const (
	None Effect = iota
	Puts
	Removes
)

// On says in c what its answer is where its key is there, or is not, and returns what it does then.
func (c *Change) On(is bool) Effect {
	switch {
	case c.Mode == Insert && is:
		c.Answer = index.ErrExists
	case !is && (c.Mode == Update || c.Mode == Delete):
		c.Answer = index.ErrNotFound
	case c.Mode == Delete:
		c.Answer = nil
		return Removes
	default:
		c.Answer = nil
		return Puts
	}
	return None
}

// KeyState is what becomes of one key whose lock a session holds, when changes take effect one
// after another. A design whose leaf has one key makes all of them as the last state. Where a leaf
// has many, see Group.
type KeyState struct {
	Key   []byte
	Was   bool   // the leaf says that the key is there
	Is    bool   // it is there after the changes; the same as Was at first
	Put   bool   // with Is: the leaf is to be written
	Value []byte // that it has then
}

// Add lets c take effect, behind those before, and answers it. false: c is of another key, or its
// value does not fit most bytes; then nothing has changed.
func (k *KeyState) Add(c *Change, most int) bool {
	if !bytes.Equal(c.Key, k.Key) || len(c.Value) > most {
		return false
	}
	k.follow(c.On(k.Is), c)
	return true
}

// follow lets the effect e of c take place.
func (k *KeyState) follow(e Effect, c *Change) {
	switch e {
	case Puts:
		k.Is, k.Put, k.Value = true, true, c.Value
	case Removes:
		k.Is, k.Put, k.Value = false, false, nil
	}
}

// Changed reports whether the leaf is to be written: with Value, or, if the key is not there any
// more, as one without it.
func (k *KeyState) Changed() bool { return k.Put || k.Was != k.Is }

// Take lets the changes that others offer of the node at a take effect, whose lock s holds, behind
// those before: the window of the combined write ends here. PostUnlock or PostRelease answers them.
// So the caller posts the WRITE of the last state in the list of that one, or has awaited it
// before.
func (k *KeyState) Take(s *pool.Session, a pool.Addr, most int) {
	if !s.Waited() {
		return
	}
	back := uint32(0)
	for i := range s.Take(a) {
		if !k.Add(s.TakenChange(i).(*Change), most) {
			back |= 1 << i
		}
	}
	s.PutBack(back)
}
