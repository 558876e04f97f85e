package offload

import (
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/dmindex/dmindex/pkg/index/internal/btree"
	"github.com/dmindex/dmindex/pkg/index/internal/fence"
	"github.com/dmindex/dmindex/pkg/index/internal/item"
	"github.com/dmindex/dmindex/pkg/index/internal/slotted"
	"github.com/dmindex/dmindex/pkg/index/internal/unit"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Executor searches for keys in a memory server, for clients that would need a round trip for each
// node (DEX, section 6). It reads nodes as a client without a lock does, and uses only what
// verifies; docs/design/sherman.md says why that is right. It changes nothing, and knows of an
// index only what a request says.
type Executor struct {
	idle [8]atomic.Pointer[walk] // so that calls allocate nothing
	// expanded keys of sums of the indexes that calls came for, by their secrets
	sums [64]atomic.Pointer[sums]
}

const (
	requestVersion = 3

	atDesign     = 0
	atVersion    = 1
	atAsked      = 2
	atLayout     = 3
	atNodeBytes  = 4
	atNode       = 8
	atMaxKey     = 16
	atKeyLength  = 18
	atBegin      = 20
	atSecret     = 24
	requestFixed = 40

	layoutUint64 = 1 << 0
	layoutLong   = 1 << 1

	atOutcome   = 0
	atWayLevel  = 1
	atWay       = 8
	answerFixed = 16
)

// askEntry asks for the entry of the key. Clients of versions before also asked for leaves, by 2:
// they READ what is refused.
const askEntry = 1

// Outcomes of a call.
const (
	foundEntry = 1 // the entry follows
	foundNone  = 2 // the key is not there
	elsewhere  = 4 // the search continues at a node of another server
	noWay      = 5 // nodes are being changed, or dead
)

// Bounds of what one call does.
const (
	mostNodes = 12 // read, siblings and torn ones included
)

// errRequest is returned for bytes that are no request of this version.
var errRequest = errors.New("no request of this version")

// Call implements verbs.Executor.
func (x *Executor) Call(_ verbs.Peer, near verbs.Near, request, answer []byte) (int, error) {
	w := x.acquire()
	defer x.release(w)
	if err := w.decode(x, request, answer); err != nil {
		return 0, err
	}
	return w.run(near)
}

func (x *Executor) acquire() *walk {
	for i := range x.idle {
		if w := x.idle[i].Swap(nil); w != nil {
			return w
		}
	}
	return new(walk)
}

func (x *Executor) release(w *walk) {
	*w = walk{}
	for i := range x.idle {
		if x.idle[i].CompareAndSwap(nil, w) {
			return
		}
	}
}

// walk is a call under way.
type walk struct {
	lay   fence.Layout
	at    pool.Addr
	level uint8
	key   []byte
	out   []byte // the answer
	node  []byte // the room behind its fixed part

	misled bool // the node begins above the key: the client must find out why (btree/misled.go)
}

// sums is the key of the sums of an index with a secret. It never changes, so calls share it.
type sums struct {
	secret siphash.Key
	key    sum.Key
}

// sumsOf is the key that follows from a secret. It has one of two places, so that a server of some
// indexes rarely has two that take each other's place. One that is in neither is expanded, which
// allocates. So a client can make calls of others slower by that, and no more.
func (x *Executor) sumsOf(secret siphash.Key) *sum.Key {
	var at *atomic.Pointer[sums]
	for _, word := range [...]uint64{secret.K0, secret.K1} {
		at = &x.sums[word%uint64(len(x.sums))]
		s := at.Load()
		if s == nil {
			break // a place is never empty again, so the key is not in the second one
		}
		if s.secret == secret {
			return &s.key
		}
	}
	s := &sums{secret: secret}
	s.key.Expand(secret)
	at.Store(s)
	return &s.key
}

func (w *walk) decode(x *Executor, b, answer []byte) error {
	if len(b) < requestFixed || b[atVersion] != requestVersion {
		return errRequest
	}
	size, key := int(binary.LittleEndian.Uint32(b[atNodeBytes:])), int(binary.LittleEndian.Uint16(b[atKeyLength:]))
	w.lay = fence.Layout{NodeBytes: size, Codec: item.Codec{
		Uint64: b[atLayout]&layoutUint64 != 0, Blocks: b[atLayout]&layoutLong != 0,
		MaxKey: int(binary.LittleEndian.Uint16(b[atMaxKey:])),
	}}
	secret := siphash.Key{K0: binary.LittleEndian.Uint64(b[atSecret:]), K1: binary.LittleEndian.Uint64(b[atSecret+8:])}
	w.level, w.at = b[atBegin], pool.Addr(binary.LittleEndian.Uint64(b[atNode:]))
	switch {
	case b[atAsked] != askEntry,
		w.level >= btree.SubtreeLevels,
		size < fence.MinNodeBytes || size > fence.MaxNodeBytes || size%fence.Grain != 0,
		// two fences; every index has room for four and more
		fence.HeaderBytes+2*fence.RoundUp(w.lay.MaxKey) > size,
		len(answer) < answerFixed+size,
		key > w.lay.MaxKey || len(b) != requestFixed+key || w.lay.Uint64 && key != 8,
		secret.K0 == 0 || secret.K1 == 0,
		w.at.Swizzled() || w.at.Server() == 0:
		return errRequest
	}
	w.lay.Secret, w.lay.Sums = secret, x.sumsOf(secret)
	w.key, w.out, w.node = b[requestFixed:], answer, answer[answerFixed:answerFixed+size]
	clear(answer[:answerFixed])
	return nil
}

// run descends from the first node while nodes are on this server.
func (w *walk) run(near verbs.Near) (int, error) {
	server := w.at.Server()
	for range mostNodes {
		if w.at.Server() != server || w.at.Swizzled() {
			return w.answer(elsewhere, nil), nil
		}
		if err := near.Read(verbs.RegionData, w.at.Offset(), w.node); err != nil {
			return 0, err
		}
		if w.level > 0 {
			if !w.inner() && unit.IsDead(w.at, w.node) {
				break
			}
		} else if n := w.leaf(); n > 0 {
			return n, nil
		} else if unit.IsDead(w.at, w.node) {
			break
		}
		if w.misled {
			break
		}
	}
	return w.answer(noWay, nil), nil
}

// answer writes an answer and returns its length. content is a part of the node, or nil.
func (w *walk) answer(o byte, content []byte) int {
	w.out[atOutcome], w.out[atWayLevel] = o, w.level
	binary.LittleEndian.PutUint64(w.out[atWay:], uint64(w.at))
	return answerFixed + copy(w.node, content)
}

// inner continues from an inner node to its child or its sibling. It returns false if the node does
// not verify.
func (w *walk) inner() bool {
	var h fence.Header
	if !h.Decode(w.node, &w.lay) || h.Level != w.level || h.Count == 0 {
		return false
	}
	if !btree.VerifyInner(&w.lay, &h, w.at, w.node) {
		return false
	}
	if w.misled = h.Below(w.key); w.misled {
		return false
	}
	if h.Above(w.key) {
		w.at = h.Sibling
		return true
	}
	child, ok := btree.ChildIn(&w.lay, &h, w.node, w.key)
	if !ok {
		return false
	}
	w.at = child
	w.level--
	return true
}

// leaf ends the walk in a leaf. It returns the length of the answer, or 0 if the leaf does not
// verify or the search continues at its sibling.
func (w *walk) leaf() int {
	var l slotted.Leaf
	if !l.Open(&w.lay, w.at, w.node) {
		return 0
	}
	if w.misled = l.Below(w.key); w.misled {
		return 0
	}
	if l.Above(w.key) {
		w.at = l.Sibling
		return 0
	}
	switch _, e, o := l.Find(w.key, w.lay.Fingerprint(w.key)); o {
	case slotted.Present:
		return w.answer(foundEntry, e)
	case slotted.Absent:
		return w.answer(foundNone, nil)
	}
	return 0
}
