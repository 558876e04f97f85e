package redo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/sum"
	"github.com/dmindex/dmindex/pkg/sum/siphash"
)

// A log is one node of a pool: its head, then the ring. All integers are little-endian.
//
//	offset  size  field
//	0       8     magic
//	8       8     nonce: a random number that no other log has; 0 = the log was given back
//	16      4     bytes of the ring
//	20      4     number of the client whose log it is
//	24      4     CRC-32C of bytes 0 to 24
//	28      4     zero
//	32      8     tail: the position where a replay begins
//	40      24    zero
//	64      ...   the ring
//
// A position counts bytes that were ever written; it lies at position modulo ring bytes, and the
// first one is the ring's size. A batch begins at a multiple of 8:
//
//	offset  size  field
//	0       8     position of this batch
//	8       4     bytes of its records
//	12      4     sum (package sum) of two parts, bytes 0 to 12 and the records
//	16      ...   records: each 4 bytes of length, then so many bytes
//
// The key of the sums follows from the nonce. The client that has the log knows it, and whoever
// replays the log. Users choose records, and do not know it.
//
// No other batch verifies in the place of one: that of an earlier round has another position, and
// that of an earlier log in the same memory a sum under another key. A batch that was written in
// part is a mixture with what was there before, which may be records that the same user chose. So
// may the word of length and sum, which is never torn: it is that of the batch, or one that was
// there before. The sum of a mixture is that of the batch with a probability of 2^-32 + 2^-64 at
// most, whatever the records are, and a word that somebody chose with one of 2^-32.
const (
	magic = 0x33304f4445524d44 // "DMREDO03"

	headBytes   = 64
	nonceOffset = 8
	summedBytes = 24 // of the head
	tailOffset  = 32
	batchHead   = 16
	recordHead  = 4
)

// Bounds of a log.
const (
	MinBytes = 4096    // of a ring
	MaxBytes = 1 << 30 // of a ring
	// of a record with its 4 bytes of length; it also takes no more than half of the ring
	MaxRecord = 32 << 10

	batchBytes = 64 << 10 // of a batch, its head included; so also of what a replay reads at once
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumsOf returns the key of the sums of the log with a nonce.
func sumsOf(nonce uint64) *sum.Key { return sum.NewKey(siphash.Key{K0: nonce}) }

// batchSum is the sum of a batch, which has at most sum.Most bytes.
func batchSum(k *sum.Key, batch []byte) uint32 {
	return k.OfParts(0, batch[:12], batch[batchHead:], nil)
}

// sealBatch writes the head of a batch that begins at position.
func sealBatch(k *sum.Key, position uint64, batch []byte) {
	binary.LittleEndian.PutUint64(batch[0:], position)
	binary.LittleEndian.PutUint32(batch[8:], uint32(len(batch)-batchHead))
	binary.LittleEndian.PutUint32(batch[12:], batchSum(k, batch))
}

// verifyBatch is the batch at the beginning of b, if the one of position is there as a whole.
func verifyBatch(k *sum.Key, position uint64, b []byte) ([]byte, bool) {
	if len(b) < batchHead || binary.LittleEndian.Uint64(b) != position {
		return nil, false
	}
	n := binary.LittleEndian.Uint32(b[8:])
	if n == 0 || n > batchBytes-batchHead || int(n) > len(b)-batchHead {
		return nil, false
	}
	b = b[:batchHead+int(n)]
	return b, binary.LittleEndian.Uint32(b[12:]) == batchSum(k, b)
}

func align(n uint64) uint64 { return (n + 7) &^ 7 }

// Ref names a log for who may have to replay it.
type Ref struct {
	Addr  pool.Addr // of its node
	Bytes uint32    // of its ring
	Nonce uint64
}

// RefBytes is the size of an encoded Ref.
const RefBytes = 20

// Encode appends r: address (8 bytes), bytes of the ring (4), nonce (8), little-endian.
func (r Ref) Encode(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Addr))
	b = binary.LittleEndian.AppendUint32(b, r.Bytes)
	return binary.LittleEndian.AppendUint64(b, r.Nonce)
}

// DecodeRef is the inverse of Encode.
func DecodeRef(b []byte) (Ref, error) {
	if len(b) != RefBytes {
		return Ref{}, fmt.Errorf("%d bytes do not name a redo log: %w", len(b), pool.ErrFormat)
	}
	r := Ref{pool.Addr(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint64(b[12:])}
	return r, checkBytes(int(r.Bytes))
}

func checkBytes(n int) error {
	if n < MinBytes || n > MaxBytes || n%8 != 0 {
		return fmt.Errorf("a ring of %d bytes: it takes %d to %d, a multiple of 8", n, MinBytes, MaxBytes)
	}
	return nil
}

// NodeBytes is the size of the pool's node for a ring of n bytes.
func NodeBytes(n int) int { return headBytes + n }

func encodeHead(b []byte, r Ref, client uint32) {
	clear(b[:headBytes])
	binary.LittleEndian.PutUint64(b[0:], magic)
	binary.LittleEndian.PutUint64(b[nonceOffset:], r.Nonce)
	binary.LittleEndian.PutUint32(b[16:], r.Bytes)
	binary.LittleEndian.PutUint32(b[20:], client)
	binary.LittleEndian.PutUint32(b[summedBytes:], crc32.Checksum(b[:summedBytes], castagnoli))
	binary.LittleEndian.PutUint64(b[tailOffset:], uint64(r.Bytes))
}

// errNotALog is returned when there is something else at the address of a log.
var errNotALog = errors.New("this is not the head of that redo log")

// decodeHead checks that b is the head of r's log and returns its tail.
func decodeHead(b []byte, r Ref) (tail uint64, err error) {
	if found, _, ok := RefOf(r.Addr, b); !ok || found != r {
		return 0, fmt.Errorf("replay the log at %v: %w: %w", r.Addr, errNotALog, pool.ErrFormat)
	}
	tail = binary.LittleEndian.Uint64(b[tailOffset:])
	if tail < uint64(r.Bytes) || tail%8 != 0 {
		return 0, fmt.Errorf("replay the log at %v: its tail is %d: %w", r.Addr, tail, pool.ErrFormat)
	}
	return tail, nil
}

// RefOf is the log in use whose head, or the first pool.HeadBytes of it, was read at a, and whose
// client's it is. ok is false if there is none.
func RefOf(a pool.Addr, head []byte) (r Ref, client uint32, ok bool) {
	r = Ref{Addr: a, Bytes: binary.LittleEndian.Uint32(head[16:]), Nonce: binary.LittleEndian.Uint64(head[nonceOffset:])}
	ok = IsHead(head) && binary.LittleEndian.Uint32(head[summedBytes:]) == crc32.Checksum(head[:summedBytes], castagnoli)
	return r, binary.LittleEndian.Uint32(head[20:]), ok
}

// IsHead reports whether node begins like a log that is in use.
func IsHead(node []byte) bool {
	return binary.LittleEndian.Uint64(node) == magic && binary.LittleEndian.Uint64(node[nonceOffset:]) != 0
}

// Dead reports whether head, the first pool.HeadBytes of a node, is that of a log that was given
// back: for the pool's Marks.
func Dead(head []byte) bool {
	return binary.LittleEndian.Uint64(head) == magic && binary.LittleEndian.Uint64(head[nonceOffset:]) == 0
}
