package combine

import (
	"bytes"

	"github.com/dmindex/dmindex/pkg/pool"
)

// MaxGroup is how many changes one list makes: that of the lock's holder, and those of others.
const MaxGroup = 1 + pool.MaxTaken

// Group is the changes of a leaf with many keys that are made in one list, by key. P is what the
// leaf's format notes of where a key is, or will be. The zero value is empty.
//
// The changes take effect one after another in the order in which they are added: the holder's own,
// and then those of others, as they stand in the queue. Each is answered by what those before it
// left. Of a key that several change only the last state is written: the others took effect
// directly before it.
type Group[P any] struct {
	keys    [MaxGroup]KeyAt[P]
	n       int
	removes bool
}

// KeyAt is what becomes of a key, and where.
type KeyAt[P any] struct {
	KeyState
	At P
}

// Leaf is the format of a locked leaf, as far as a group asks for it.
type Leaf[P any] interface {
	// Find returns where the leaf has a key that the group does not have yet, and whether it has
	// it. ok is false if changes of the key cannot be made together with others.
	Find(key []byte) (at P, is, ok bool)

	// Fit notes in k where value shall be, which its key is to get. false: there is no place; then
	// k is as it was.
	Fit(k *KeyAt[P], value []byte) bool
}

// Reset empties g.
func (g *Group[P]) Reset() { g.n, g.removes = 0, false }

// Keys are those that the group has, also those that do not change in the end.
func (g *Group[P]) Keys() []KeyAt[P] { return g.keys[:g.n] }

// Removes reports whether a change removed its key, if another one put it back or not.
func (g *Group[P]) Removes() bool { return g.removes }

// AddTo adds c to the changes of leaf l, and says in c what its answer is once they are made. It
// reports whether c is such a change as can be made with the others; if not, nothing has changed.
func (g *Group[P]) AddTo(l Leaf[P], c *Change) bool {
	k, has := g.find(c.Key)
	if !has {
		at, is, ok := l.Find(c.Key)
		if !ok {
			return false
		}
		*k = KeyAt[P]{KeyState{Key: c.Key, Was: is, Is: is}, at}
	}
	e := c.On(k.Is)
	if e == Puts && !l.Fit(k, c.Value) {
		return false
	}
	k.follow(e, c)
	if !has {
		g.n++
	}
	g.removes = g.removes || e == Removes
	return true
}

// find is the state of key; if the group does not have it, that of the next key to come.
func (g *Group[P]) find(key []byte) (k *KeyAt[P], has bool) {
	for i := range g.n {
		if bytes.Equal(g.keys[i].Key, key) {
			return &g.keys[i], true
		}
	}
	return &g.keys[g.n], false
}
