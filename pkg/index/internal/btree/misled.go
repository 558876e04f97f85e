package btree

import (
	"fmt"
	"math"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/keyrange"
	"github.com/dmindex/dmindex/pkg/pool"
)

// A descent never comes to a node that begins above its key. Low fences never change, separators
// are low fences, and the memory of a node is another node's only after every operation that may
// have got its address has ended, and every older copy that leads there is below the floor (package
// pool, reclaim.go). So everything rests on epochs: were one to move too early, a copy could lead
// to a node that is another one by now, in any part of the tree. A node in a part below the key
// shows by its high fence, and siblings lead on from there. One in a part above the key would say
// that the key is not there, or take it in where nobody will find it.
//
// So every leaf is asked for its low fence, too, in every build, before anything of it is believed
// or changed: by lookups, by changes under the lock, by scans, by a cache of leaves, and by memory
// servers that look for keys. Inner nodes need not be asked on the way: whichever child they lead
// to begins no lower. Where an inner node is changed it is asked under its lock. A design whose
// lookups READ a part of a leaf without its fences (CHIME) does not ask: there a miss rests on
// epochs alone.
//
// When a leaf begins above the key, that is counted (index.Stats.Misled), and the operation begins
// anew at the root, as after a dead leaf. Whatever led there is not to be trusted, so until its end
// the operation follows no copy, but READs every node on its way. That is all that can be done: a
// second wrong leaf means that the tree in the memory servers leads there, or that memory is used
// again under the very nodes that are read. After a few the operation ends with ErrFormat, and has
// changed nothing.

// mostMisled is how often an operation begins anew.
const mostMisled = 8

// misled is called where the node at a begins above key, and the copy from (nil: none) led there.
// After nil the operation begins anew. No lock may be held.
func (s *Session) misled(from *inner, a pool.Addr, key []byte) error {
	s.t.misled.Add(1)
	if s.misleads++; s.misleads > mostMisled {
		return fmt.Errorf("node %v begins above key %s, and the tree leads there: %w", a, keyrange.Quote(key), index.ErrFormat)
	}
	s.evict(from)
	s.Floor, s.unconnected = math.MaxUint64, pool.Nil
	return s.Reread(a)
}
