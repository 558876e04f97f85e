package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// An encoded map, integers little-endian:
//
//	0   4  "DMPM"
//	4   2  format version: 1, or 2 with planned moves
//	6   8  generation
//	14     index: 2 bytes of length, text
//	       2 bytes: number of servers; each: ID (4), name, RPC, RESP (each text: 2 bytes of length
//	       and the text)
//	       2 bytes: number of ranges; each: owner (4), epoch (8), start (2 bytes of length, bytes)
//	       version 2: 2 bytes: number of planned moves, at least 1; each: to (4), start, end (2
//	       bytes of length and bytes each)
//	-4  4  CRC-32C of all before
//
// There is one encoding of a map, so two maps are equal when their bytes are.
const (
	magic          = "DMPM"
	formatVersion  = 1
	plannedVersion = 2
)

// ErrFormat is returned by Unmarshal when the bytes are not a map of a version that this program
// knows.
var ErrFormat = errors.New("not a partition map that this version can read")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Marshal appends the encoding of m to dst. It fails if m is not valid or takes more than MaxBytes.
func (m *Map) Marshal(dst []byte) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return dst, err
	}
	from := len(dst)
	b := append(dst, magic...)
	version := uint16(formatVersion)
	if len(m.Planned) > 0 {
		version = plannedVersion
	}
	b = binary.LittleEndian.AppendUint16(b, version)
	b = binary.LittleEndian.AppendUint64(b, m.Generation)
	b = appendText(b, m.Index)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Servers)))
	for _, s := range m.Servers {
		b = binary.LittleEndian.AppendUint32(b, s.ID)
		b = appendText(b, s.Name)
		b = appendText(b, s.RPC)
		b = appendText(b, s.RESP)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Ranges)))
	for _, r := range m.Ranges {
		b = binary.LittleEndian.AppendUint32(b, r.Owner)
		b = binary.LittleEndian.AppendUint64(b, r.Epoch)
		b = appendText(b, r.Start)
	}
	if version == plannedVersion {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Planned)))
		for _, p := range m.Planned {
			b = binary.LittleEndian.AppendUint32(b, p.To)
			b = appendText(appendText(b, p.Start), p.End)
		}
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
	if n := len(b) - from; n > MaxBytes {
		return dst, fmt.Errorf("partition map takes %d bytes encoded; at most %d are possible: use fewer or shorter boundaries", n, MaxBytes)
	}
	return b, nil
}

func appendText[T string | []byte](b []byte, s T) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// Unmarshal decodes and validates a map. It keeps nothing of data. Errors wrap ErrFormat unless the
// map itself is invalid.
func Unmarshal(data []byte) (*Map, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes; at most %d are possible", ErrFormat, len(data), MaxBytes)
	}
	if len(data) < len(magic)+2+4 || string(data[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not start with %q", ErrFormat, magic)
	}
	version := binary.LittleEndian.Uint16(data[len(magic):])
	if version != formatVersion && version != plannedVersion {
		return nil, fmt.Errorf("%w: it has version %d, this program knows %d and %d", ErrFormat, version, formatVersion, plannedVersion)
	}
	body, sum := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, fmt.Errorf("%w: its checksum is wrong", ErrFormat)
	}
	d := decoder{rest: body[len(magic)+2:]}
	m := &Map{Generation: d.u64(), Index: string(d.text())}
	for range d.count(MaxServers) {
		m.Servers = append(m.Servers, Server{ID: d.u32(), Name: string(d.text()), RPC: string(d.text()), RESP: string(d.text())})
	}
	for range d.count(MaxRanges) {
		r := Range{Owner: d.u32(), Epoch: d.u64()}
		r.Start = append([]byte(nil), d.text()...)
		m.Ranges = append(m.Ranges, r)
	}
	if version == plannedVersion {
		n := d.count(MaxRanges)
		d.short = d.short || n == 0
		for range n {
			p := Planned{To: d.u32(), Start: append([]byte(nil), d.text()...)}
			p.End = append([]byte(nil), d.text()...)
			m.Planned = append(m.Planned, p)
		}
	}
	if d.short || len(d.rest) != 0 {
		return nil, fmt.Errorf("%w: its lengths do not fit its size", ErrFormat)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// decoder reads fields from the front of rest. If one is missing short is set, and every later
// field is zero.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) next(n int) []byte {
	if d.short || len(d.rest) < n {
		d.short = true
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) u16() uint16 {
	if b := d.next(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.next(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.next(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) text() []byte { return d.next(int(d.u16())) }

// count returns how many elements follow. A number beyond limit marks the map as damaged, and
// counts as none.
func (d *decoder) count(limit int) int {
	n := int(d.u16())
	if n > limit {
		d.short = true
		return 0
	}
	return n
}
