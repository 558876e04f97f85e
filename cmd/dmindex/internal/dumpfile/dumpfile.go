// Package dumpfile is the format in which dmindex dump writes an index to a file and dmindex
// restore reads it back.
//
// A file is
//
//	offset  size  field
//	0       8     magic "DMDUMP\x00\x04": the last byte is the format version
//	8       4     length of the description
//	12      ...   description: JSON of Description
//	        ...   records: uvarint 1 + length of the key, key, uvarint length of the value, value,
//	              uvarint of when the pair expires: milliseconds since 1970, 0 = it does not,
//	              1 byte: the value's type, 0 = a string, 1 = a hash, 2 = a member of a sorted
//	              set, behind which are 8 bytes: its score
//	        1     0: the end of the records
//	        8     count of the records
//	        32    SHA-256 of everything before it
//
// Integers are little-endian. A file that was cut off or changed is recognized by its end: no end,
// no digest. Versions 1 to 3 are read, too: version 3 has no sorted sets, the pairs of 1 and 2 are
// strings, and those of version 1, which has no times, do not expire.
package dumpfile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"time"

	"github.com/dmindex/dmindex/client"
)

var magic = [8]byte{'D', 'M', 'D', 'U', 'M', 'P', 0, 4}

// Earlier versions.
const (
	endless = 1 // records have no times
	untyped = 2 // and no types
)

// Types of values.
const (
	isString = 0
	isHash   = 1
	isMember = 2
)

// Limits of what is read, well above what an index can hold.
const (
	maxDescription = 64 << 10
	maxItem        = 1 << 20
)

// ErrDamaged is returned when a file is not a whole, unchanged dump.
var ErrDamaged = errors.New("dump is damaged")

// Description says what was dumped.
type Description struct {
	Index   string    `json:"index"`
	Created time.Time `json:"created"`
	Program string    `json:"program"` // version of the program that wrote it
}

// Writer writes a dump. Not safe for concurrent use.
type Writer struct {
	out   *bufio.Writer
	sum   hash.Hash
	count uint64
	buf   []byte
}

// NewWriter begins a dump.
func NewWriter(w io.Writer, d Description) (*Writer, error) {
	sum := sha256.New()
	dw := &Writer{out: bufio.NewWriterSize(io.MultiWriter(w, sum), 1<<20), sum: sum}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("describe the dump: %w", err)
	}
	dw.buf = append(dw.buf, magic[:]...)
	dw.buf = binary.LittleEndian.AppendUint32(dw.buf, uint32(len(text)))
	dw.buf = append(dw.buf, text...)
	_, err = dw.out.Write(dw.buf)
	return dw, err
}

// Add writes one pair.
func (w *Writer) Add(p client.Pair) error {
	w.buf = binary.AppendUvarint(w.buf[:0], uint64(len(p.Key))+1)
	w.buf = append(w.buf, p.Key...)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(p.Value)))
	w.buf = append(w.buf, p.Value...)
	var deadline int64
	if !p.Expires.IsZero() {
		deadline = max(p.Expires.UnixMilli(), 1) // 0 would be none
	}
	w.buf = binary.AppendUvarint(w.buf, uint64(deadline))
	switch {
	case p.Hash:
		w.buf = append(w.buf, isHash)
	case p.Member:
		w.buf = binary.LittleEndian.AppendUint64(append(w.buf, isMember), math.Float64bits(p.Score))
	default:
		w.buf = append(w.buf, isString)
	}
	w.count++
	_, err := w.out.Write(w.buf)
	return err
}

// Close ends the dump and returns count and digest. The underlying writer stays open.
func (w *Writer) Close() (count uint64, digest [sha256.Size]byte, err error) {
	w.buf = binary.LittleEndian.AppendUint64(append(w.buf[:0], 0), w.count)
	if _, err = w.out.Write(w.buf); err == nil {
		err = w.out.Flush()
	}
	if err != nil {
		return 0, digest, err
	}
	w.sum.Sum(digest[:0])
	// The digest goes to the file as it is: adding it to the sum changes nothing that is used any
	// more.
	if _, err = w.out.Write(digest[:]); err == nil {
		err = w.out.Flush()
	}
	return w.count, digest, err
}

// Read reads a whole dump and calls add with each pair, which is valid only during the call. It
// returns count and digest; an error wraps ErrDamaged if the file is not what was written, and is
// add's own if add failed. Pairs may have been added before the damage shows: read the file once
// with an add that does nothing, where that matters.
func Read(r io.Reader, describe func(Description) error, add func(client.Pair) error) (uint64, [sha256.Size]byte, error) {
	d := &reader{in: bufio.NewReaderSize(r, 1<<20), sum: sha256.New()}
	var digest [sha256.Size]byte
	if err := d.head(describe); err != nil {
		return 0, digest, err
	}
	var p client.Pair
	var count uint64
	for {
		n, err := d.uvarint(lengthBits)
		if err != nil {
			return count, digest, err
		}
		if n == 0 {
			break
		}
		if p.Key, err = d.bytes(p.Key, n-1); err != nil {
			return count, digest, err
		}
		if n, err = d.uvarint(lengthBits); err != nil {
			return count, digest, err
		}
		if p.Value, err = d.bytes(p.Value, n); err != nil {
			return count, digest, err
		}
		if p.Expires, err = d.expires(); err != nil {
			return count, digest, err
		}
		if err = d.readType(&p); err != nil {
			return count, digest, err
		}
		if err := add(p); err != nil {
			return count, digest, err
		}
		count++
	}
	if err := d.readFooter(count, &digest); err != nil {
		return count, digest, err
	}
	return count, digest, nil
}

type reader struct {
	in      *bufio.Reader
	sum     hash.Hash
	version byte
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// readFull reads len(b) bytes and adds them to the sum.
func (d *reader) readFull(b []byte) error {
	if _, err := io.ReadFull(d.in, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return damaged("it ends too early")
		}
		return fmt.Errorf("read the dump: %w", err)
	}
	d.sum.Write(b)
	return nil
}

func (d *reader) head(describe func(Description) error) error {
	var head [12]byte
	if err := d.readFull(head[:]); err != nil {
		return err
	}
	if !bytes.Equal(head[:7], magic[:7]) {
		return damaged("it does not begin like a dump of dmindex")
	}
	if d.version = head[7]; d.version > magic[7] || d.version < endless {
		return damaged("it is of format version %d, this program reads up to version %d", d.version, magic[7])
	}
	n := binary.LittleEndian.Uint32(head[8:])
	if n > maxDescription {
		return damaged("a description of %d bytes", n)
	}
	text := make([]byte, n)
	if err := d.readFull(text); err != nil {
		return err
	}
	var desc Description
	if err := json.Unmarshal(text, &desc); err != nil {
		return damaged("description: %v", err)
	}
	return describe(desc)
}

// expires reads when a pair expires; zero = it does not.
func (d *reader) expires() (at time.Time, err error) {
	if d.version == endless {
		return at, nil
	}
	deadline, err := d.uvarint(deadlineBits)
	if err == nil && deadline != 0 {
		at = time.UnixMilli(int64(deadline))
	}
	return at, err
}

// readType reads what the value is.
func (d *reader) readType(p *client.Pair) error {
	p.Hash, p.Member, p.Score = false, false, 0
	if d.version <= untyped {
		return nil
	}
	var b [8]byte
	if err := d.readFull(b[:1]); err != nil {
		return err
	}
	switch b[0] {
	case isString:
	case isHash:
		p.Hash = true
	case isMember:
		if err := d.readFull(b[:]); err != nil {
			return err
		}
		p.Member, p.Score = true, math.Float64frombits(binary.LittleEndian.Uint64(b[:]))
	default:
		return damaged("a value of type %d, this program knows strings, hashes and members of sorted sets", b[0])
	}
	return nil
}

// Bits of numbers, whole bytes of a uvarint.
const (
	lengthBits   = 35
	deadlineBits = 63
)

func (d *reader) uvarint(most uint) (uint64, error) {
	var n uint64
	var b [1]byte
	for shift := uint(0); shift < most; shift += 7 {
		if err := d.readFull(b[:]); err != nil {
			return 0, err
		}
		n |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return n, nil
		}
	}
	return 0, damaged("a number of over %d bits", most)
}

func (d *reader) bytes(b []byte, n uint64) ([]byte, error) {
	if n > maxItem {
		return b, damaged("a key or value of %d bytes", n)
	}
	if uint64(cap(b)) < n {
		b = make([]byte, n)
	}
	b = b[:n]
	return b, d.readFull(b)
}

func (d *reader) readFooter(count uint64, digest *[sha256.Size]byte) error {
	var b [8]byte
	if err := d.readFull(b[:]); err != nil {
		return err
	}
	if said := binary.LittleEndian.Uint64(b[:]); said != count {
		return damaged("it has %d records and says %d", count, said)
	}
	d.sum.Sum(digest[:0])
	var said [sha256.Size]byte
	if err := d.readFull(said[:]); err != nil {
		return err
	}
	if said != *digest {
		return damaged("its digest is %x, it says %x", digest[:8], said[:8])
	}
	if _, err := d.in.ReadByte(); err != io.EOF {
		return damaged("something follows its end")
	}
	return nil
}
