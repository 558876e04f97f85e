package hello

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Code is how a server answers a hello.
type Code uint16

// The codes.
const (
	OK         Code = iota
	BadVersion      // the server speaks another version, which the answer names
	Refused         // the token is not known or was used
	Lost            // the incarnation is another one, which the answer names
	Full            // all connections are in use
	Malformed       // the hello makes no sense
)

// Answer is the server's half. Only the code, and the incarnation with Lost, are of meaning unless
// the code is OK.
type Answer struct {
	Code         Code
	Incarnation  uint64
	Session      uint64 // names the connection in a later hello
	Capabilities verbs.Capabilities
	MaxQPs       uint32
	Regions      []verbs.Region
}

// CodeOf is the code that tells a client about err, with which its hello failed.
func CodeOf(err error) Code {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, verbs.ErrVersion):
		return BadVersion
	case errors.Is(err, verbs.ErrLostMemory):
		return Lost
	case errors.Is(err, verbs.ErrTooMany):
		return Full
	case errors.Is(err, ErrMalformed):
		return Malformed
	}
	return Refused
}

// Err is what a code means to the client that expected an incarnation.
func (a *Answer) Err(expected uint64) error {
	switch a.Code {
	case OK:
		return nil
	case Refused:
		return verbs.ErrRefused
	case Lost:
		return fmt.Errorf("incarnation %#x, expected %#x: %w", a.Incarnation, expected, verbs.ErrLostMemory)
	case Full:
		return fmt.Errorf("all connections of the memory server are in use: %w", verbs.ErrTooMany)
	}
	return fmt.Errorf("answer code %d: %w", a.Code, ErrMalformed)
}

// The capability bits.
const (
	bitCacheLineAtomic = 1 << iota
	bitOrderedWrite
	bitOrderedReads
	bitReleaseByWrite
	bitMaskedAtomics
	bitCalls
	bitWholeAlways
)

func capabilityBits(c *verbs.Capabilities) (bits uint32) {
	for bit, on := range map[uint32]bool{
		bitCacheLineAtomic: c.CacheLineAtomic, bitOrderedWrite: c.OrderedWrite, bitOrderedReads: c.OrderedReads,
		bitReleaseByWrite: c.ReleaseByWrite, bitMaskedAtomics: c.MaskedAtomics, bitCalls: c.Calls,
		bitWholeAlways: c.WholeAlways,
	} {
		if on {
			bits |= bit
		}
	}
	return bits
}

// Append encodes a.
func (a *Answer) Append(dst []byte) []byte {
	dst = appendPrefix(dst, Version)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(a.Code))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(a.Regions)))
	dst = binary.LittleEndian.AppendUint64(dst, a.Incarnation)
	dst = binary.LittleEndian.AppendUint64(dst, a.Session)
	dst = binary.LittleEndian.AppendUint32(dst, capabilityBits(&a.Capabilities))
	dst = binary.LittleEndian.AppendUint32(dst, a.MaxQPs)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(a.Capabilities.DeviceMemory))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(a.Capabilities.WholeWrite))
	for _, r := range a.Regions {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(r.ID))
		dst = binary.LittleEndian.AppendUint64(dst, r.Size)
	}
	return dst
}

// ReadAnswer reads the server's half. An error wraps verbs.ErrVersion, ErrMalformed or what r
// returned; a code that refuses is no error here.
func ReadAnswer(r io.Reader) (*Answer, error) {
	if err := readPrefix(r); err != nil {
		return nil, err
	}
	var b [answerSize - prefixSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(b[2:])
	if n > maxRegions {
		return nil, fmt.Errorf("%d regions, %d allowed: %w", n, maxRegions, ErrMalformed)
	}
	bits := binary.LittleEndian.Uint32(b[22:])
	a := &Answer{
		Code:        Code(binary.LittleEndian.Uint16(b[0:])),
		Incarnation: binary.LittleEndian.Uint64(b[6:]),
		Session:     binary.LittleEndian.Uint64(b[14:]),
		Capabilities: verbs.Capabilities{
			CacheLineAtomic: bits&bitCacheLineAtomic != 0,
			OrderedWrite:    bits&bitOrderedWrite != 0,
			OrderedReads:    bits&bitOrderedReads != 0,
			ReleaseByWrite:  bits&bitReleaseByWrite != 0,
			MaskedAtomics:   bits&bitMaskedAtomics != 0,
			Calls:           bits&bitCalls != 0,
			WholeAlways:     bits&bitWholeAlways != 0,
			DeviceMemory:    int(binary.LittleEndian.Uint64(b[30:])),
			WholeWrite:      int(binary.LittleEndian.Uint64(b[38:])),
		},
		MaxQPs: binary.LittleEndian.Uint32(b[26:]),
	}
	list := make([]byte, n*regionSize)
	if _, err := io.ReadFull(r, list); err != nil {
		return nil, err
	}
	for i := 0; i < len(list); i += regionSize {
		id, size := binary.LittleEndian.Uint64(list[i:]), binary.LittleEndian.Uint64(list[i+8:])
		if id > uint64(verbs.RegionLocks) || size == 0 {
			return nil, fmt.Errorf("region %d of %d bytes: %w", id, size, ErrMalformed)
		}
		a.Regions = append(a.Regions, verbs.Region{ID: verbs.RegionID(id), Size: size})
	}
	return a, nil
}
