package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dmindex/dmindex/computeserver/expiry"
	"github.com/dmindex/dmindex/computeserver/ownership"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// dexShape is what the index of a run looks like when it is no toy.
type dexShape struct {
	keys       int // how many there are
	chunkBytes uint64
	node       int
	cache      int
	inline     int         // longest value that lies beside its key; 0 = all do
	open       []*dexOwner // not closed
	serving    []*dexOwner // whatever took keys and did not give them back
	owner      map[chunkName]uint32
	returned   int // logs of dead clients whose memory came back, as of the end
}

type chunkName struct {
	server uint16
	number uint32
}

const (
	dexKeys     = 40 // of which there are at most as many in the toy
	dexChunks   = 400
	ownMaxValue = 200
	ownShort    = 24 // of values that all lie beside their keys
)

// Of the data region when the index is DEX: superblock and repair records as above, then chunks.
const dexChunksAt = 64 << 10

func newDexShape(seed uint64, r *rand.Rand) *dexShape {
	d := &dexShape{keys: dexKeys, chunkBytes: 8 << 10 << r.IntN(3), node: 256 << r.IntN(2), cache: 12 << 10 << (4 * r.IntN(2)), owner: map[chunkName]uint32{}}
	if seed%4 == 0 { // long values lie in blocks
		d.inline = 1 + int(seed/4%ownShort)
	}
	return d
}

func (w *ownWorld) chunkBytes() uint64 {
	if w.dex == nil {
		return 1 << 20
	}
	return w.dex.chunkBytes
}

func (w *ownWorld) chunks() int {
	if w.dex == nil {
		return 4
	}
	return dexChunks
}

func (w *ownWorld) dataBytes() uint64 {
	if w.dex == nil {
		return ownLogsAt + 8*ownLogWords*uint64(w.clients())
	}
	return w.chunkAt(dexChunks + 1)
}

func (w *ownWorld) chunkAt(number uint32) uint64 {
	return dexChunksAt + uint64(max(number, 1)-1)*w.chunkBytes()
}

func (w *ownWorld) chunkNumber(offset uint64) uint32 {
	return uint32((offset-dexChunksAt)/w.chunkBytes()) + 1
}

// keys is how many there are.
func (w *ownWorld) keys() int {
	if w.dex == nil {
		return toyKeys
	}
	return w.dex.keys
}

// key is one of them; those of DEX are of several lengths.
func (w *ownWorld) key(n int) []byte {
	if w.dex == nil {
		return toyKey(n)
	}
	if w.dex.keys > dexKeys {
		return append(binary.BigEndian.AppendUint16(nil, uint16(n*(1<<16)/w.dex.keys)), "longer"[:n%7]...)
	}
	return append([]byte{byte(n * 256 / dexKeys)}, "longer"[:n%7]...)
}

// value is what is written for a number: those of DEX are of several lengths, and where long ones
// lie in blocks some are long.
func (w *ownWorld) value(n uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, n)
	if w.dex == nil {
		return b
	}
	most := uint32(ownShort)
	if w.dex.inline > 0 && n%3 == 0 {
		most = ownMaxValue
	}
	for more := n % (most - 3); more > 0; more-- {
		b = append(b, b[len(b)-4]+1)
	}
	return b
}

// number is what a value was written for. A value that was not written, as one of parts of two, is
// told.
func (w *ownWorld) number(key int, value []byte) uint32 {
	n := binary.LittleEndian.Uint32(append(value[:len(value):len(value)], make([]byte, 4)...))
	if !bytes.Equal(value, w.value(n)) {
		w.Report("key %d has value %x, which nobody wrote", key, value)
	}
	return n
}

func (w *ownWorld) openIndex(p *simenv.Process, k *path, eng *Sessions) (ownership.Opened, error) {
	if w.dex == nil {
		return w.openToy(p, k, eng)
	}
	opened, err := w.openPool(p, k)
	if err != nil {
		return nil, err
	}
	x, err := dex.Open(opened, w.dexOptions())
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	o := &dexOwner{Pool: opened, w: w, p: p, x: x.(index.Partitioned)}
	w.dex.open = append(w.dex.open, o)
	return o, nil
}

func (w *ownWorld) openPool(p *simenv.Process, k *path) (*pool.Pool, error) {
	return pool.Open(pool.Config{Env: p, Control: w.control(k), Devices: []verbs.Device{w.fabric.Device(p)}, Identity: ownIndex, Limit: ownLimit, RenewEvery: ownLease / 4, Guard: k.guard})
}

func (w *ownWorld) dexOptions() index.Options {
	o := index.Options{MaxKeyBytes: 8, MaxValueBytes: ownShort, NodeBytes: w.dex.node, CacheBytes: w.dex.cache}
	if w.dex.inline > 0 {
		o.MaxValueBytes, o.InlineBytes = ownMaxValue, w.dex.inline
	}
	if w.sets.is {
		o.MaxKeyBytes, o.MaxValueBytes = setsMaxKey, max(o.MaxValueBytes, setsMaxValue)+expiry.Bytes
	}
	return o
}

// writeBack lets all owners write back what they have changed, since the check follows what leaves
// in the memory servers refer to. An owner that finds its connection gone is given up, as it would
// be by the next request that needs it. It reports whether all have done so.
func (w *ownWorld) writeBack() (all bool) {
	all = true
	for _, o := range slices.Clone(w.dex.open) {
		if o.p.Dead() {
			continue
		}
		over := w.main.NewEvent()
		o.p.Go("write back", func() {
			defer over.Set()
			// of all else that it finds others may have the remedy still
			if _, err := o.x.(index.Checker).Check(); errors.Is(err, verbs.ErrDisconnected) {
				o.Condemn(err)
				all = false
			}
		})
		all = over.Wait(ownLimit) && all
	}
	return all
}

// atRest is who holds what, which clients there are, and how much was asked for. It is empty while
// a range is on its way, or a request is, which a program may have sent before the trouble ended.
func (w *ownWorld) atRest() string {
	stored, err := ledger.Decode(w.memory[0].disk.Stored)
	if err != nil {
		return ""
	}
	var b strings.Builder
	held, _ := stored.Holdings(ownIndex)
	for _, h := range held {
		if stored.Live(ownIndex, h.Client) != nil || len(h.Inherits) > 0 {
			return ""
		}
		fmt.Fprintf(&b, "%x-%x %d %d;", h.Start, h.End, h.Client, h.Epoch)
	}
	for _, o := range w.dex.open {
		if w.serving[o.p] > 0 && !o.p.Dead() {
			return ""
		}
		fmt.Fprintf(&b, "%d,", o.Client())
	}
	fmt.Fprintf(&b, ";%d", w.asked)
	return b.String()
}

// checkTree looks at the structure of the tree in the memory servers, with a client of its own that
// owns nothing.
func (w *ownWorld) checkTree() {
	p := w.NewProcess("checker")
	over := w.main.NewEvent()
	p.Go("check", func() {
		defer over.Set()
		if err := w.check(p); err != nil {
			w.Report("the tree at the end: %v", err)
		}
	})
	if !over.Wait(settleBound) {
		w.Report("the check of the tree does not end")
	}
}

func (w *ownWorld) openTree(p *simenv.Process) (*pool.Pool, index.Index, error) {
	opened, err := w.openPool(p, &path{w: w, p: p, name: p.Name()})
	if err != nil {
		return nil, nil, err
	}
	x, err := dex.Open(opened, w.dexOptions())
	if err != nil {
		return nil, nil, errors.Join(err, opened.Close())
	}
	return opened, x, nil
}

func (w *ownWorld) check(p *simenv.Process) error {
	opened, x, err := w.openTree(p)
	// Servers of keys may need no memory server for a while. So one may begin anew still.
	for begun := p.Now(); errors.Is(err, verbs.ErrDisconnected) && p.Now()-begun < settleBound/4; opened, x, err = w.openTree(p) {
		p.Sleep(time.Second)
	}
	if err != nil {
		return err
	}
	for begun := p.Now(); ; p.Sleep(time.Second) {
		before := w.atRest()
		back := w.writeBack()
		var found index.Structure
		found, err = x.(index.Checker).Check()
		w.counts.blocks = found.Blocks
		if err == nil || p.Now()-begun > settleBound/2 {
			break
		}
		// nothing was on its way that could make it look wrong
		if back && before != "" && before == w.atRest() {
			err = fmt.Errorf("nobody changes it, and %w", err)
			break
		}
	}
	return errors.Join(err, x.Close(), opened.Close())
}

var _ ownership.Owner = (*dexOwner)(nil)
