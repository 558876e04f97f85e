package pool

import "fmt"

// Addr is a global address: a byte of the disaggregated memory (DESIGN: one pointer size for all
// designs).
//
//	bit 63      swizzled: the rest is an address in the holder's cache, without meaning elsewhere
//	bits 48-62  memory server id, 1 to 32767
//	bits 0-47   offset in the server's data region
//
// Nil, zero, points nowhere: server ids start at 1.
type Addr uint64

// Nil is the address of nothing.
const Nil Addr = 0

// MaxServer is the highest memory server id.
const MaxServer = 1<<15 - 1

// swizzledBit marks an address that only its holder understands.
const swizzledBit Addr = 1 << 63

const offsetBits = 48

// NewAddr is the address of offset on a server. It panics if either is out of range: both come from
// a ledger that knows.
func NewAddr(server uint16, offset uint64) Addr {
	if server == 0 || server > MaxServer || offset >= 1<<offsetBits {
		panic(fmt.Sprintf("pool: no address for offset %#x of server %d", offset, server))
	}
	return Addr(server)<<offsetBits | Addr(offset)
}

// Server is the id of the memory server.
func (a Addr) Server() uint16 { return uint16(a>>offsetBits) & MaxServer }

// Offset is the offset in the server's data region.
func (a Addr) Offset() uint64 { return uint64(a) & (1<<offsetBits - 1) }

// Swizzled reports whether a is an address in a cache.
func (a Addr) Swizzled() bool { return a&swizzledBit != 0 }

// String is "server:offset".
func (a Addr) String() string {
	if a == Nil {
		return "nil"
	}
	return fmt.Sprintf("%d:%#x", a.Server(), a.Offset())
}
