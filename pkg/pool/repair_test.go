package pool_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// wreck is what a client left that died in the middle of a rewrite, on a server with one word of
// locks: all of them say Repair, and the one of node has a record.
type wreck struct {
	*testing.T
	c           *pooltest.Cluster
	p           *pool.Pool
	s           *pool.Session
	node, image pool.Addr
	old, new    []byte
	data        []byte // memory of the server
	locks       []byte
	record      []byte
}

func newWreck(t *testing.T) *wreck {
	w := &wreck{T: t, c: pooltest.New(t, pooltest.Options{Servers: 1, Locks: 4})}
	w.p = w.c.Open(t)
	w.s = session(t, w.p)
	for _, a := range []*pool.Addr{&w.node, &w.image} {
		var err error
		*a, err = w.p.Allocate(256, pool.Nil)
		must(t, err)
	}
	w.old, w.new = bytes.Repeat([]byte("old "), 64), bytes.Repeat([]byte("new "), 64)
	w.data, w.locks = w.c.Memory(1, verbs.RegionData), w.c.Memory(1, verbs.RegionLocks)
	copy(w.data[w.node.Offset():], w.old)
	copy(w.data[w.image.Offset():], w.new)

	// Which lock, and so which record, is the node's shows when it is locked.
	w.lock(256)
	for i := range 4 {
		if binary.LittleEndian.Uint16(w.locks[2*i:]) == uint16(w.p.Client()) {
			grant, err := w.c.Control().Connect(1, 99, pool.DefaultLimit)
			must(t, err)
			w.record = w.data[grant.Repair+uint64(32*i):][:32]
		}
	}
	must(t, w.s.PostUnlock())
	binary.LittleEndian.PutUint64(w.locks, 1<<64-1)
	binary.LittleEndian.PutUint64(w.record, uint64(w.image))
	binary.LittleEndian.PutUint64(w.record[8:], uint64(w.node))
	binary.LittleEndian.PutUint32(w.record[16:], 256)
	w.seal()
	return w
}

// seal computes the record's checksums.
func (w *wreck) seal() {
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint32(w.record[20:], crc32.Checksum(w.data[w.image.Offset():][:binary.LittleEndian.Uint32(w.record[16:])], table))
	binary.LittleEndian.PutUint32(w.record[24:], crc32.Checksum(w.record[:24], table))
}

// lock takes the node's lock, with room for so many bytes, and returns what it read.
func (w *wreck) lock(room int) []byte {
	w.Helper()
	b := buffer(w.T, w.s, room)
	must(w.T, w.s.Lock(w.node, b))
	return b
}

// finds fails unless who takes the lock finds want, and leaves nothing to repair behind.
func (w *wreck) finds(room int, want []byte, repaired uint64) {
	w.Helper()
	if got := w.lock(room); !bytes.Equal(got, want[:room]) {
		w.Errorf("under the lock the node is %q, want %q", got, want[:room])
	}
	if all := w.data[w.node.Offset():][:256]; !bytes.Equal(all, want) {
		w.Errorf("the node is %q, want %q", all, want)
	}
	if image := binary.LittleEndian.Uint64(w.record); image != 0 {
		w.Errorf("the record still names an image at %#x", image)
	}
	if n := w.p.Repaired(); n != repaired {
		w.Errorf("%d changes were repaired, want %d", n, repaired)
	}
	if err := w.s.PostUnlock(); err != nil {
		w.Error(err)
	}
	if word := binary.LittleEndian.Uint64(w.locks); bytes.Count(w.locks[:8], []byte{0xff}) != 6 || bytes.Count(w.locks[:8], []byte{0}) != 2 {
		w.Errorf("the locks are %#x: one should be free, three to repair", word)
	}
}

// TestRepairAll: records of locks that are not free are READ together, however little room there
// is, and what they say is done.
func TestRepairAll(t *testing.T) {
	for room, trips := range map[int]uint64{256: 2, 2 * 32: 3, 32: 4} {
		w := newWreck(t)
		table, part := buffer(t, w.s, 8), buffer(t, w.s, room)
		must(t, w.s.RepairAll(table, part, part))
		if got := w.data[w.node.Offset():][:256]; !bytes.Equal(got, w.new) || w.p.Repaired() != 1 {
			t.Errorf("with room for %d bytes: %d repairs, and the node is %.8q", room, w.p.Repaired(), got)
		}
		before := w.s.Counters()
		must(t, w.s.RepairAll(table, part, part))
		if n := w.s.Counters().RoundTrips - before.RoundTrips; n != trips || w.p.Repaired() != 1 {
			t.Errorf("with room for %d bytes and nothing to repair: %d round trips, not %d; %d repairs", room, n, trips, w.p.Repaired())
		}
		w.finds(256, w.new, 1)
	}
}

func TestRepairOfHalfWrittenNode(t *testing.T) {
	for _, written := range []int{0, 8, 136, 248, 256} { // up to there the node is new
		w := newWreck(t)
		copy(w.data[w.node.Offset():], w.new[:written])
		w.finds(256, w.new, 1)
	}
}

func TestRepairInParts(t *testing.T) {
	w := newWreck(t) // with less room than the image takes
	w.finds(64, w.new, 1)
}

func TestRepairWithoutRecord(t *testing.T) {
	w := newWreck(t)
	binary.LittleEndian.PutUint64(w.record, 0)
	w.finds(256, w.old, 0)
}

// TestRepairOfTornRecord: whoever died while it wrote the record did not touch the node.
func TestRepairOfTornRecord(t *testing.T) {
	for at := 8; at < 32; at += 8 {
		w := newWreck(t)
		binary.LittleEndian.PutUint64(w.record[at:], 0x1234)
		w.finds(256, w.old, 0)
	}
}

// TestRepairOfAnotherNode: a lock is that of many nodes, and who takes it need not want the one
// that is half written.
func TestRepairOfAnotherNode(t *testing.T) {
	w := newWreck(t)
	half := append(append([]byte(nil), w.new[:128]...), w.old[128:]...)
	copy(w.data[w.node.Offset():], half)
	buf := buffer(t, w.s, 256)
	for range 1000 { // until one has the same lock
		other, err := w.p.Allocate(256, pool.Nil)
		must(t, err)
		must(t, w.s.Lock(other, buf))
		must(t, w.s.PostUnlock())
		if w.p.Repaired() > 0 {
			if got := w.data[w.node.Offset():][:256]; !bytes.Equal(got, w.new) {
				t.Errorf("the node is %q", got)
			}
			return
		}
	}
	t.Error("no other node had the lock")
}

// TestRepairOfRevivedRecord: a record that was cleared names its image again once the first word of
// the next one is there, which is the same if it is for the same node and uses the same place; the
// image is that of the next one. Its writer did not touch the node. (Found by the simulator.)
func TestRepairOfRevivedRecord(t *testing.T) {
	w := newWreck(t)
	copy(w.data[w.image.Offset():], "newer")
	w.finds(256, w.old, 0)
}

// TestRepairRefusesDamage: a record that fits, but is of another lock's node, is not carried out;
// the error says so, and the client is given up: it has a lock that it cannot give to anybody.
func TestRepairRefusesDamage(t *testing.T) {
	w := newWreck(t)
	hash := func(a pool.Addr) uint64 { return (a.Offset() >> 6) * 0x9E3779B97F4A7C15 >> 32 % 4 }
	other := w.node
	for hash(other) == hash(w.node) {
		other += 256
	}
	binary.LittleEndian.PutUint64(w.record[8:], uint64(other))
	w.seal()
	if err := w.s.Lock(w.node, buffer(t, w.s, 256)); !errors.Is(err, pool.ErrFormat) {
		t.Errorf("lock: %v", err)
	}
	if !bytes.Equal(w.data[w.node.Offset():][:256], w.old) {
		t.Error("the node was changed")
	}
	if err := w.p.Alive(); !errors.Is(err, pool.ErrFenced) {
		t.Errorf("the client lives on: %v", err)
	}
}

// TestRewriteIsWhole: the node is the image, nothing is left to repair, and the image's place is
// used again.
func TestRewriteIsWhole(t *testing.T) {
	w := newWreck(t)
	w.finds(256, w.new, 1)
	before := w.c.UsedChunks()
	image, node := buffer(t, w.s, 256), buffer(t, w.s, 256)
	for n := range 5000 { // far more than a chunk has places
		must(t, w.s.Lock(w.node, node))
		must(t, w.s.ReserveRewrite(w.node, 256))
		binary.LittleEndian.PutUint64(image, uint64(n))
		w.s.Rewrite(w.node, image)
		must(t, w.s.PostUnlock())
		if got := w.data[w.node.Offset():][:256]; !bytes.Equal(got, image) || binary.LittleEndian.Uint64(w.record) != 0 {
			t.Fatalf("rewrite %d: the node is %x, the record %x", n, got, w.record)
		}
	}
	if n := w.c.UsedChunks(); n != before {
		t.Errorf("5000 rewrites took %d chunks", n-before)
	}
}
