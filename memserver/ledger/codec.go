package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The stored form of a ledger, little-endian:
//
//	offset  size  field
//	     0     8  magic "dmLedger"
//	     8     4  format version
//	    12     4  length of the body
//	    16     4  CRC-32C of all other bytes
//	    20        body
//
// The body is a sequence of unsigned varints; strings and maps are a length, then bytes:
//
//	incarnation, chunk bytes, chunks, slots, locks, client ids (0 = all), draining,
//	    lease in milliseconds
//	each slot: state; unless free: first lock, locks;
//	    if held: identity, quota, last client's id, n, n runs of clients, generation, map,
//	    last epoch, n, n holdings; from version 6 on: changes of joined servers, n, n joined
//	    servers
//	a run of clients, whose ids follow each other and which are alike:
//	    ids skipped before it, length, state, generation; if live: name
//	a joined server: id, state, incarnation, address, provider; from version 7 on: n, n addresses
//	a holding: start, end, client, epoch, log, n, n inherited logs: start, end, client, epoch, log
//	runs of chunks that are alike, until all are told:
//	    length, owner; if owned: client, bytes of a node
//
// So that a server can be replaced in place, older versions are read. Version 6 has one address for
// each joined server, version 5 no joined servers, version 4 no generations besides, and no number
// of client ids (read as 0), version 3 no holdings besides, and version 2 no bytes of a node either
// (read as not said, 0). The oldest version from 4 on is written by which nothing is lost, so that
// an older program can take the server over until the first client is forgotten, the first server
// joins, or the memory of one that joined is kept more than once.
const (
	magic      = "dmLedger"
	version    = 7
	uncopied   = 6 // with one address for each joined server
	unjoined   = 5 // without joined servers
	plain      = 4 // without generations, too
	oldest     = 2 // that is read
	headerSize = 20
)

// Version is the latest format version that Append writes. Decode reads it and the five before.
const Version = version

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends the stored form of l to dst.
func (l *Ledger) Append(dst []byte) []byte {
	start, v := len(dst), l.storedVersion()
	dst = append(dst, make([]byte, headerSize)...)
	dst = l.appendBody(dst, v)
	seal(dst[start:], v)
	return dst
}

// storedVersion is the oldest version that can say all of l.
func (l *Ledger) storedVersion() uint32 {
	joins := false
	for i := range l.places {
		joins = joins || l.places[i].joins > 0
		for k := range l.places[i].joined {
			if len(l.places[i].joined[k].Copies) > 0 {
				return version
			}
		}
	}
	if joins {
		return uncopied
	}
	if l.shape.Clients != 0 {
		return unjoined
	}
	for i := range l.places {
		for _, c := range l.places[i].clients {
			if c.generation > 0 || c.state == clientForgotten {
				return unjoined
			}
		}
	}
	return plain
}

// seal fills in the header.
func seal(b []byte, version uint32) {
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(b)-headerSize))
	binary.LittleEndian.PutUint32(b[16:], checksum(b))
}

func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:16], castagnoli), castagnoli, b[headerSize:])
}

func (l *Ledger) appendBody(dst []byte, version uint32) []byte {
	u := binary.AppendUvarint
	s := l.shape
	dst = u(u(u(u(u(dst, s.Incarnation), s.ChunkBytes), uint64(s.Chunks)), uint64(s.Slots)), s.Locks)
	if version > plain {
		dst = u(dst, uint64(s.Clients))
	}
	if l.draining {
		dst = u(dst, 1)
	} else {
		dst = u(dst, 0)
	}
	dst = u(dst, l.lease)
	for i := range l.places {
		dst = l.places[i].append(dst, version)
	}
	for at := uint32(1); at <= s.Chunks; {
		c, end := l.chunks[at], at+1
		for end <= s.Chunks && l.chunks[end] == c {
			end++
		}
		dst = u(u(dst, uint64(end-at)), uint64(c.owner))
		if c.owner != chunkFree && c.owner != chunkDirty {
			dst = u(u(dst, uint64(c.client)), uint64(c.node))
		}
		at = end
	}
	return dst
}

func (p *place) append(dst []byte, version uint32) []byte {
	u := binary.AppendUvarint
	dst = u(dst, uint64(p.state))
	if p.state == placeFree {
		return dst
	}
	dst = u(u(dst, p.firstLock), p.locks)
	if p.state == placeDirty {
		return dst
	}
	dst = append(u(dst, uint64(len(p.identity))), p.identity...)
	dst = u(u(dst, p.quota), uint64(p.lastClient))
	dst = p.appendClients(dst, version)
	dst = u(dst, p.generation)
	dst = append(u(dst, uint64(len(p.partition))), p.partition...)
	dst = appendHoldings(u(dst, p.epoch), p.holdings)
	if version <= unjoined {
		return dst
	}
	return p.appendJoined(dst, version)
}

func appendHoldings(dst []byte, all []Holding) []byte {
	u := binary.AppendUvarint
	b := func(dst, b []byte) []byte { return append(u(dst, uint64(len(b))), b...) }
	dst = u(dst, uint64(len(all)))
	for i := range all {
		h := &all[i]
		dst = b(u(u(b(b(dst, h.Start), h.End), uint64(h.Client)), h.Epoch), h.Log)
		dst = u(dst, uint64(len(h.Inherits)))
		for _, in := range h.Inherits {
			dst = b(u(u(b(b(dst, in.Start), in.End), uint64(in.Client)), in.Epoch), in.Log)
		}
	}
	return dst
}

// Decode reads what Append wrote; the ledger keeps nothing of b. Errors: ErrVersion, ErrDamaged.
func Decode(b []byte) (*Ledger, error) {
	if len(b) < headerSize || string(b[:8]) != magic {
		return nil, fmt.Errorf("%w: %d bytes that do not start with %q", ErrDamaged, len(b), magic)
	}
	v := binary.LittleEndian.Uint32(b[8:])
	if v < oldest || v > version {
		return nil, fmt.Errorf("%w: it has version %d, this program reads versions %d to %d", ErrVersion, v, oldest, version)
	}
	if n := uint64(binary.LittleEndian.Uint32(b[12:])); n != uint64(len(b)-headerSize) {
		return nil, fmt.Errorf("%w: it should have %d bytes and has %d", ErrDamaged, n+headerSize, len(b))
	}
	if want, got := binary.LittleEndian.Uint32(b[16:]), checksum(b); want != got {
		return nil, fmt.Errorf("%w: its checksum is %#x, its bytes give %#x", ErrDamaged, want, got)
	}
	r := reader{version: v, rest: b[headerSize:]}
	l := r.ledger()
	if r.failed != "" || len(r.rest) != 0 {
		return nil, fmt.Errorf("%w: %s, %d bytes before the end", ErrDamaged, r.failed, len(r.rest))
	}
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return l, nil
}

// reader takes the body apart. After the first failure all reads give zero.
type reader struct {
	version uint32
	rest    []byte
	failed  string
}

func (r *reader) fail(what string) {
	if r.failed == "" {
		r.failed = what
	}
}

// upTo reads a number of at most limit.
func (r *reader) upTo(limit uint64, what string) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > limit || r.failed != "" {
		r.fail(what)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// bytes reads a length of at most limit and as many bytes; the result is a copy.
func (r *reader) bytes(limit uint64, what string) []byte {
	n := r.upTo(limit, what)
	if n > uint64(len(r.rest)) {
		r.fail(what)
		return nil
	}
	b := append([]byte(nil), r.rest[:n]...)
	r.rest = r.rest[n:]
	return b
}

const anyUint64 = 1<<64 - 1

func (r *reader) ledger() *Ledger {
	shape := Shape{
		Incarnation: r.upTo(anyUint64, "incarnation"),
		ChunkBytes:  r.upTo(anyUint64, "chunk size"),
		Chunks:      uint32(r.upTo(MaxChunks, "number of chunks")),
		Slots:       int(r.upTo(MaxSlots, "number of slots")),
		Locks:       r.upTo(anyUint64, "number of locks"),
	}
	if r.version > plain {
		shape.Clients = uint16(r.upTo(MaxClients, "number of client ids"))
	}
	l, err := New(shape)
	if err != nil {
		r.fail(err.Error())
		return nil
	}
	l.draining = r.upTo(1, "draining") == 1
	l.lease = r.upTo(MaxLease, "lease")
	for i := range l.places {
		r.readPlace(&l.places[i])
	}
	for at := uint32(1); at <= shape.Chunks && r.failed == ""; {
		n := r.upTo(uint64(shape.Chunks-at+1), "run of chunks")
		c := chunk{owner: uint8(r.upTo(chunkDirty, "owner of chunks"))}
		switch {
		case n == 0:
			r.fail("run of no chunks")
		case c.owner == chunkDirty:
			l.dirty += n
		case int(c.owner) > len(l.places):
			r.fail("owner of chunks")
		case c.owner != chunkFree:
			c.client = uint16(r.upTo(1<<16-1, "client of chunks"))
			if r.version > 2 {
				c.node = uint32(r.upTo(min(shape.ChunkBytes, 1<<32-1), "bytes of a node"))
			}
			l.used += n
			l.places[c.owner-1].used += n
		}
		for range n {
			l.chunks[at] = c
			at++
		}
	}
	return l
}

func (r *reader) readPlace(p *place) {
	p.state = placeState(r.upTo(uint64(placeDirty), "state of a slot"))
	if p.state == placeFree {
		return
	}
	p.firstLock = r.upTo(anyUint64, "first lock")
	p.locks = r.upTo(anyUint64, "locks")
	if p.state == placeDirty {
		return
	}
	p.identity = string(r.bytes(MaxIdentity, "identity"))
	p.quota = r.upTo(MaxChunks, "quota")
	p.lastClient = uint16(r.upTo(1<<16-1, "last client"))
	r.clients(p)
	p.generation = r.upTo(anyUint64, "generation")
	p.partition = r.bytes(MaxMap, "map")
	if r.version > 3 {
		p.epoch = r.upTo(anyUint64, "last epoch")
		r.holdings(p)
	}
	if r.version > unjoined {
		r.joined(p)
	}
}

func (r *reader) holdings(p *place) {
	for range r.upTo(MaxHoldings, "number of holdings") {
		var h Holding
		h.Start, h.End, h.Client, h.Epoch, h.Log = r.readPart("holding")
		for range r.upTo(MaxInherits, "number of inherited logs") {
			var in Inherited
			in.Start, in.End, in.Client, in.Epoch, in.Log = r.readPart("inherited log")
			h.Inherits = append(h.Inherits, in)
		}
		if r.failed != "" {
			return
		}
		p.holdings = append(p.holdings, h)
	}
}

// readPart reads what holdings and inherited logs have in common.
func (r *reader) readPart(what string) (start, end []byte, client uint32, epoch uint64, log []byte) {
	start, end = r.bytes(MaxHoldingKey, what), r.bytes(MaxHoldingKey, what)
	client = uint32(r.upTo(1<<32-1, what))
	epoch = r.upTo(anyUint64, what)
	return start, end, client, epoch, r.bytes(MaxLog, what)
}
