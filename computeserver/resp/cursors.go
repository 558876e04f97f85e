package resp

import (
	"bytes"
	"container/list"
	"math"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// cursors remembers where those SCANs and ZSCANs of RESP clients go on that no position fits
// (writePosition). A number of 53 bits, which every client can hold, has no room for a key: it
// says which server remembers the key, and under what. So each server can go on with a scan, as
// long as that one lives. The table is bounded: the cursor that was not used for longest goes
// first, and one that was not used for a while goes in any case. A connection has cursorsEach, and
// its oldest one goes for another: so nobody's many steps take the cursors of others. A cursor
// stays good after it was used, so that a client may repeat a step, and after its connection has
// ended, since clients take another one of their pool.
type cursors struct {
	env  env.Env
	self uint64 // of the server, where it fits; else 0
	max  int
	keep time.Duration

	mu   env.Mutex
	byID map[uint64]*list.Element
	used *list.List // of *cursor; the front was used last
}

type cursor struct {
	id  uint64
	key []byte
	at  time.Duration
}

// cursorsEach is how many cursors one connection has.
const cursorsEach = 64

// ownCursors are the numbers of a connection's cursors.
type ownCursors struct {
	ids    []uint64
	oldest int // where in ids, once there are cursorsEach
}

// Bits of a cursor: the server's number above, and below a random one, so that a cursor that
// somebody made up is hardly ever found.
const (
	cursorServerBits = 15
	cursorRandomBits = 52 - cursorServerBits
)

// serverOf is the number of the server that gave a cursor.
func serverOf(cursor uint64) uint32 { return uint32(min(cursor>>cursorRandomBits, math.MaxUint32)) }

func newCursors(e env.Env, self uint32, max int, keep time.Duration) *cursors {
	if self >= 1<<cursorServerBits {
		self = 0
	}
	return &cursors{env: e, self: uint64(self), max: max, keep: keep, mu: e.NewMutex(), byID: map[uint64]*list.Element{}, used: list.New()}
}

// put remembers key under a new number, for the connection that has own.
func (t *cursors) put(key []byte, own *ownCursors) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := t.add(key)
	if len(own.ids) < cursorsEach {
		own.ids = append(own.ids, id)
		return id
	}
	if e, ok := t.byID[own.ids[own.oldest]]; ok {
		t.used.Remove(e)
		delete(t.byID, own.ids[own.oldest])
	}
	own.ids[own.oldest] = id
	own.oldest = (own.oldest + 1) % cursorsEach
	return id
}

// add is put without regard to who asks. Called under mu.
func (t *cursors) add(key []byte) uint64 {
	now := t.env.Now()
	for t.used.Len() > 0 {
		oldest := t.used.Back().Value.(*cursor)
		if t.used.Len() < t.max && now-oldest.at < t.keep {
			break
		}
		t.used.Remove(t.used.Back())
		delete(t.byID, oldest.id)
	}
	for {
		id := t.self<<cursorRandomBits | t.env.Uint64()>>(64-cursorRandomBits)
		if _, taken := t.byID[id]; id == 0 || taken {
			continue
		}
		t.byID[id] = t.used.PushFront(&cursor{id, bytes.Clone(key), now})
		return id
	}
}

// find finds the key under a number.
func (t *cursors) find(id uint64) ([]byte, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byID[id]
	if !ok {
		return nil, false
	}
	c := e.Value.(*cursor)
	now := t.env.Now()
	if now-c.at >= t.keep {
		t.used.Remove(e)
		delete(t.byID, id)
		return nil, false
	}
	c.at = now
	t.used.MoveToFront(e)
	return c.key, true
}
