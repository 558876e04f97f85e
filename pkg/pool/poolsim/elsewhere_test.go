package poolsim_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/dmindex/dmindex/pkg/env/simenv"
	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/pool/poolsim"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/sim"
)

// TestImageBeforeRecord: what a repair record names is complete before the record is posted: it was
// written before, in the same list or in one to another server that is over.
func TestImageBeforeRecord(t *testing.T) {
	fabric := sim.Options{Capabilities: verbs.Capabilities{MaskedAtomics: true, WholeWrite: 8}}
	inLimbo(t, poolsim.Options{Servers: 3, Locks: 64, Chunks: 3, ChunkBytes: 16 << 10, Fabric: fabric}, func(c *poolsim.Cluster, p *simenv.Process) {
		filler, err := c.Open(p)
		must(t, err)
		var nodes []pool.Addr
		for range 3 {
			a, err := filler.Allocate(bundleNode, pool.Nil)
			must(t, err)
			nodes = append(nodes, a)
		}
		fill(t, filler, nodes[0])
		j := recordJudge{t: t, written: map[uint64]uint32{}}
		cl, err := pool.Open(pool.Config{
			Env: p, Control: c.Control(p), Identity: poolsim.Identity,
			Devices: []verbs.Device{&hookedDevice{Device: c.Fabric.Device(p), posts: j.posts, done: j.done}},
		})
		must(t, err)
		b := newBundler(t, cl, nodes)
		for i := range nodes {
			b.one(i)
			b.all(i)
		}
		// Of the first node a change alone, two bundles as another one's member, and one as the
		// main one with its list.
		if j.elsewhere != 4 || j.same != 8 {
			t.Errorf("%d records name what is on another server, %d what is on theirs", j.elsewhere, j.same)
		}
	})
}

// recordJudge looks at the lists of a client.
type recordJudge struct {
	t               *testing.T
	written         map[uint64]uint32 // checksums of WRITEs that are over, by offset
	elsewhere, same int
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (j *recordJudge) posts(list []verbs.Request) error {
	before := map[uint64]uint32{}
	for _, r := range list {
		if r.Op != verbs.Write {
			continue
		}
		b := r.Local
		if len(b) == 32 && binary.LittleEndian.Uint32(b[24:]) == crc32.Checksum(b[:24], castagnoli) && binary.LittleEndian.Uint64(b) != 0 {
			image, sum := pool.Addr(binary.LittleEndian.Uint64(b)).Offset(), binary.LittleEndian.Uint32(b[20:])
			if had, is := before[image]; is && had == sum {
				j.same++
			} else if j.elsewhere++; j.written[image] != sum {
				j.t.Errorf("a record names %#x, which is not complete", image)
			}
		}
		before[r.Remote] = crc32.Checksum(b, castagnoli)
	}
	return nil
}

func (j *recordJudge) done(list []verbs.Request) {
	for _, r := range list {
		if r.Op == verbs.Write {
			j.written[r.Remote] = crc32.Checksum(r.Local, castagnoli)
		}
	}
}
