package pool

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// A chunk is divided into slabs, and a slab into nodes of one size. The size and the memory
// server's chunk size say all about the layout: a client that knows an address and a size finds the
// slab, the node's place in it and its lock word without asking anybody.
//
//	chunk:  | table | slab 0, what is left of it | slab 1 | slab 2 ... slab n-1 |
//	table:  one word of 8 bytes for each slab, little-endian; see slabWord
//	run:    1, 2, 4 ... slabs side by side, which begin at a multiple of their number; or all
//	nodes:  | strip, if the class has one | node 0 | node 1 | ... |
//	strip:  one lock word of 8 bytes for each node, up to the next multiple of 64
//
// Slabs have 64 KiB where a chunk has at least 1 MiB, and 1/1024 of a chunk that is larger than 64
// MiB. Smaller chunks, as tests have them, are divided by 16. Nodes of one size lie in runs: the
// shortest in which at most an eighth is left over. So a node of 64 bytes to 8 KiB lies in one
// slab, and a node as large as half a chunk in a run of its own. The first run of a chunk begins
// behind the table.
//
// The header of a slab lies in the table and not at the slab's begin. A node of 1 KiB then lies at
// a multiple of its size, and 64 of them fill a slab. And nobody who writes nodes can forge a
// header: the begin of a slab in the middle of an old run has been a node's content.
//
// # Who writes the table, and who may see what
//
// Only the owner of a chunk writes its table. A slab's word is 0 until the slab is opened. The
// requests of opening a run, in one list or several, in order of effect (G1, G3):
//
//  1. WRITE of 0 over the words of closed runs that the new one overlaps;
//  2. WRITE of zero over the run, unless the chunk has been zero there since the server gave it;
//  3. WRITE of the run's word, at the first of its slabs;
//  4. only when the list is confirmed, nodes are handed out.
//
// An adopter reads the table of a client which is fenced there. Cut off before 3 is complete, the
// slabs read as never used. Behind 3 all nodes read as never written, until their own WRITEs. Each
// word is written whole (G2).
//
// Closing a run changes nothing in the memory: its word stays until another run overlaps it. An
// adopter then finds nodes that are free. They look dead, or as if never written; one that was
// given back without a mark looks used, as ever, and is lost with the dead client.
//
// # Why an address keeps its meaning
//
// A run is closed only when all of its nodes are free. A node is free when it was never handed out,
// when only this client ever knew it, or when everybody dropped its address (reclaim.go). So nobody
// holds an address into a closed run, and the next class may divide it otherwise. A run with a
// strip is closed only with its chunk, so that a lock word stays one; and then only when no word of
// it is held or says Repair (strip.go). Intent slots forget names before an epoch is passed
// (wordslot.go).

// slabsOfChunk is how many slabs a chunk has at least; mostSlabs how many at most.
const (
	slabBytes    = 64 << 10
	slabsOfChunk = 16
	mostSlabs    = 1024
)

// wasteShare is the part of a run that may be left over.
const wasteShare = 8

// geometry is how chunks of one size are divided.
type geometry struct {
	chunk  uint64
	slab   uint64
	slabs  int
	tables uint64 // bytes of the table, a multiple of nodeAlign
}

func geometryOf(chunk uint64) geometry {
	g := geometry{chunk: chunk, slab: slabBytes}
	if chunk < slabsOfChunk*slabBytes {
		g.slab = max(nodeAlign, chunk/slabsOfChunk&^(nodeAlign-1))
	}
	if chunk/g.slab > mostSlabs {
		g.slab = (chunk/mostSlabs + nodeAlign - 1) &^ (nodeAlign - 1)
	}
	g.slabs = int(chunk / g.slab)
	g.tables = uint64(roundNode(8 * g.slabs))
	return g
}

// shape is how nodes of one size lie in a run.
type shape struct {
	size  int
	strip bool
	run   int // slabs
}

// stripBytes is what the strip of a run of n nodes takes.
func (s shape) stripBytes(n int) uint64 {
	if !s.strip {
		return 0
	}
	return uint64(roundNode(8 * n))
}

// nodesIn is how many nodes fit into so many bytes, the strip included.
func (s shape) nodesIn(room uint64) int {
	n := int(room) / s.size
	for n > 0 && s.stripBytes(n)+uint64(n*s.size) > room {
		n--
	}
	return n
}

// shapeOf is the shape of nodes of a size in chunks like g. Its run is 0 where no chunk has room
// for one.
func (g *geometry) shapeOf(size int, strip bool) shape {
	s, least := shape{size: size, strip: strip}, uint64(0)
	if size == 0 {
		return s
	}
	for run := 1; run <= g.slabs; run *= 2 {
		room := uint64(run) * g.slab
		switch {
		case run == g.slabs:
			room = g.chunk - g.tables
		case 2*run > g.slabs: // there is but the first one
			room -= g.tables
		}
		n := s.nodesIn(room)
		// what is left over of each run, in parts of 2^16
		waste := (room - uint64(n*size)) << 16 / room
		if n > 0 && (s.run == 0 || waste < least) {
			s.run, least = run, waste
		}
		if n > 0 && waste <= 1<<16/wasteShare {
			return s
		}
	}
	if s.run == 0 && s.nodesIn(g.chunk-g.tables) > 0 {
		s.run = g.slabs
	}
	return s
}

// slabBytes is what the ledger knows of a chunk with runs of s: the size of its slabs. Large nodes,
// as redo logs are, do not share a chunk with small ones, and of theirs the unit is the run. Else
// nodes would take what is left of a log's chunk, or who needs nodes would adopt it, and who comes
// after a client that died would find no room for its log in a full pool.
func (g *geometry) slabBytes(s shape) uint64 {
	if 2*s.run < g.slabs && s.size < largeNode {
		return g.slab
	}
	return uint64(s.run) * g.slab
}

// largeNode is from where on nodes are large. Those that take half of a chunk are, too.
const largeNode = 1 << 20

// bounds are where the run of s at slab at begins and ends, in its chunk.
func (g *geometry) bounds(s shape, at int) (from, end uint64) {
	from, end = uint64(at)*g.slab, uint64(at+s.run)*g.slab
	if at == 0 {
		from = g.tables
	}
	if s.run == g.slabs {
		end = g.chunk
	}
	return from, max(from, end)
}

// runAt is where the nodes of the run of s at slab at lie in its chunk, and how many they are.
func (g *geometry) runAt(s shape, at int) (strip, first uint64, nodes int) {
	from, end := g.bounds(s, at)
	nodes = s.nodesIn(end - from)
	return from, from + s.stripBytes(nodes), nodes
}

// locate finds the node of s that a place in a chunk belongs to. ok is false where none begins.
func (g *geometry) locate(s shape, offset uint64) (at, index int, ok bool) {
	if s.run == 0 {
		return 0, 0, false
	}
	at = int(offset/g.slab) / s.run * s.run
	_, first, nodes := g.runAt(s, at)
	if offset < first || (offset-first)%uint64(s.size) != 0 {
		return 0, 0, false
	}
	index = int(offset-first) / s.size
	return at, index, index < nodes
}

// slabWord is a word of the table.
//
//	bits    field
//	0-23    size of the nodes, in units of 64 bytes
//	24      the run has a strip
//	25-47   0
//	48-55   1 + the binary logarithm of the slabs of the run; 255 = all of the chunk
//	56-63   0xD5
type slabWord uint64

const (
	slabMagic   = 0xD5
	wholeChunk  = 255
	slabSizeMax = 1<<24 - 1
)

func (s shape) word(g *geometry) slabWord {
	run := uint64(bits.TrailingZeros(uint(s.run))) + 1
	if s.run == g.slabs {
		run = wholeChunk
	}
	w := uint64(s.size/nodeAlign) | run<<48 | slabMagic<<56
	if s.strip {
		w |= 1 << 24
	}
	return slabWord(w)
}

// decode is the shape that a word says. ok is false if it is none.
func (w slabWord) decode(g *geometry) (s shape, ok bool) {
	s = g.shapeOf(int(w&slabSizeMax)*nodeAlign, w>>24&1 != 0)
	return s, s.size > 0 && s.run > 0 && w == s.word(g)
}

// Slab is a run of slabs as the table of its chunk says it: nodes of one size, side by side.
type Slab struct {
	First     Addr // node
	NodeBytes int
	Nodes     int
	Strip     Addr // lock word of the first node; those of the others follow. Nil = there is none

	at    int
	shape shape
}

// Slabs are those that the table of the chunk at first says; chunk is its content, or at least the
// table of it. unknown is how many words say nothing that makes sense.
func Slabs(chunk []byte, first Addr, chunkBytes uint64) (all []Slab, unknown int) {
	g := geometryOf(chunkBytes)
	for at := 0; at < g.slabs; {
		w := slabWord(binary.LittleEndian.Uint64(chunk[8*at:]))
		s, ok := w.decode(&g)
		if !ok || at%s.run != 0 {
			if w != 0 {
				unknown++
			}
			at++
			continue
		}
		strip, node, nodes := g.runAt(s, at)
		k := Slab{First: first + Addr(node), NodeBytes: s.size, Nodes: nodes, at: at, shape: s}
		if s.strip {
			k.Strip = first + Addr(strip)
		}
		all = append(all, k)
		at += s.run
	}
	return all, unknown
}

// TableBytes is how much of a chunk its table takes.
func TableBytes(chunkBytes uint64) int {
	g := geometryOf(chunkBytes)
	return int(g.tables)
}

// Strips finds the lock words of nodes of one size.
type Strips struct {
	pool   *Pool
	shapes []shape // by dense server number, of the servers that were there
}

// DeclareStrip says that nodes of size bytes have lock words beside them. Every client of an index
// declares the same sizes, each before its own first node of that size. What it adopted before does
// not matter: nodes of chunks that dead clients left have lock words or not, as their clients
// declared, and no node without is handed out from then on. An error: the chunks of a memory server
// have no room for such a node and its lock word.
func (p *Pool) DeclareStrip(size int) (*Strips, error) {
	a := p.alloc
	size = roundNode(size)
	for _, s := range p.servers() {
		if size <= 0 || s.geometry.shapeOf(size, true).run == 0 {
			return nil, fmt.Errorf("declare lock words for nodes of %d bytes: a chunk of memory server %d has room for %d with one",
				size, s.id, s.geometry.mostNode()-nodeAlign)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.classOf(size, true)
	if o := a.classOf(size, false); o.serves {
		panic(fmt.Sprintf("pool: nodes of %d bytes were allocated before their lock words were declared", size))
	}
	c.serves = true
	return &Strips{p, c.shapes}, nil
}

// WordOf finds the lock word of the node at a: an aligned word on the node's server, in the data
// region. It is 0 when the node is handed out for the first time, and afterwards what its last user
// left there. Safe for concurrent use.
func (t *Strips) WordOf(a Addr) (Addr, error) {
	i, ok := t.pool.serverOf(a)
	if !ok {
		return Nil, fmt.Errorf("address %v is of no memory server of this index", a)
	}
	g := &t.pool.servers()[i].geometry
	shape := t.shapes[0] // that joined later, with chunks as those of the home
	if i < len(t.shapes) {
		shape = t.shapes[i]
	}
	offset := a.Offset() % g.chunk
	at, index, ok := g.locate(shape, offset)
	if !ok {
		return Nil, fmt.Errorf("no node of %d bytes begins at %v", shape.size, a)
	}
	strip, _, _ := g.runAt(shape, at)
	return a - Addr(offset) + Addr(strip) + Addr(8*index), nil
}

// MostNodeBytes is how large a node can be: a chunk without its table. The smallest of the servers'
// counts.
func (p *Pool) MostNodeBytes() int {
	most := p.servers()[0].geometry.mostNode()
	for _, s := range p.servers()[1:] {
		most = min(most, s.geometry.mostNode())
	}
	return most
}

func (g *geometry) mostNode() int { return int(g.chunk-g.tables) &^ (nodeAlign - 1) }
