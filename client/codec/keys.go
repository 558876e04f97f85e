package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// sign is the bit that is turned so that negative numbers are below the others.
const sign = 1 << 63

// eight is an encoding in eight bytes, by two functions that are the reverse of each other.
func eight[K any](to func(K) uint64, from func(uint64) K) Key[K] {
	return Key[K]{
		Append: func(dst []byte, k K) []byte { return binary.BigEndian.AppendUint64(dst, to(k)) },
		Cut: func(b []byte) (k K, rest []byte, err error) {
			if len(b) < 8 {
				return k, nil, fmt.Errorf("%w: %d bytes, where a number has 8", ErrEncoding, len(b))
			}
			return from(binary.BigEndian.Uint64(b)), b[8:], nil
		},
	}
}

// Keys of numbers.
var (
	Uint64 = eight(func(k uint64) uint64 { return k }, func(n uint64) uint64 { return n })
	Int64  = eight(func(k int64) uint64 { return uint64(k) ^ sign }, func(n uint64) int64 { return int64(n ^ sign) })
	// Float64 has -Inf first and +Inf last. -0 is the key 0. Every NaN is one key, behind +Inf.
	Float64 = eight(floatBits, floatOf)
)

func floatBits(k float64) uint64 {
	switch {
	case k == 0:
		k = 0 // not -0
	case math.IsNaN(k):
		k = math.NaN()
	}
	if n := math.Float64bits(k); n&sign == 0 {
		return n | sign
	} else {
		return ^n
	}
}

func floatOf(n uint64) float64 {
	if n&sign != 0 {
		return math.Float64frombits(n &^ sign)
	}
	return math.Float64frombits(^n)
}

// Time has times by the moment that they are, to the nanosecond, without their place and their
// monotonic clock: what comes back is in UTC. Any time of Go has one.
var Time = Key[time.Time]{
	Append: func(dst []byte, k time.Time) []byte {
		return binary.BigEndian.AppendUint32(Int64.Append(dst, k.Unix()), uint32(k.Nanosecond()))
	},
	Cut: func(b []byte) (k time.Time, rest []byte, err error) {
		if len(b) < 12 {
			return k, nil, fmt.Errorf("%w: %d bytes, where a time has 12", ErrEncoding, len(b))
		}
		seconds, _, _ := Int64.Cut(b)
		nanos := binary.BigEndian.Uint32(b[8:])
		if nanos >= 1e9 {
			return k, nil, fmt.Errorf("%w: a time of %d nanoseconds within its second", ErrEncoding, nanos)
		}
		return time.Unix(seconds, int64(nanos)).UTC(), b[12:], nil
	},
}

// Keys of text, which may have any bytes.
var (
	Bytes = Key[[]byte]{
		Append: appendText[[]byte],
		Cut:    cutText,
	}
	String = Key[string]{
		Append: appendText[string],
		Cut: func(b []byte) (string, []byte, error) {
			k, rest, err := cutText(b)
			return string(k), rest, err
		},
	}
)

// The end of a text is below everything that may go on there: a zero byte in a text is 0 255.
const textEnd, textZero = 1, 0xff

func appendText[K string | []byte](dst []byte, k K) []byte {
	for i := range len(k) {
		if dst = append(dst, k[i]); k[i] == 0 {
			dst = append(dst, textZero)
		}
	}
	return append(dst, 0, textEnd)
}

func cutText(b []byte) (k, rest []byte, err error) {
	k = []byte{}
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 || i+1 == len(b) {
			return nil, nil, fmt.Errorf("%w: a text without its end", ErrEncoding)
		}
		k = append(k, b[:i]...)
		switch b[i+1] {
		case textEnd:
			return k, b[i+2:], nil
		case textZero:
			k = append(k, 0)
		default:
			return nil, nil, fmt.Errorf("%w: a zero byte before %d in a text", ErrEncoding, b[i+1])
		}
		b = b[i+2:]
	}
}

// Two is a key of two parts, ordered by the first one, then by the second one.
type Two[A, B any] struct {
	A A
	B B
}

// Three is a key of three parts.
type Three[A, B, C any] struct {
	A A
	B B
	C C
}

// Pair makes keys of two parts. One part may be a Pair, too.
func Pair[A, B any](a Key[A], b Key[B]) Key[Two[A, B]] {
	return Key[Two[A, B]]{
		Append: func(dst []byte, k Two[A, B]) []byte { return b.Append(a.Append(dst, k.A), k.B) },
		Cut: func(text []byte) (k Two[A, B], rest []byte, err error) {
			if k.A, rest, err = a.Cut(text); err == nil {
				k.B, rest, err = b.Cut(rest)
			}
			return k, rest, err
		},
	}
}

// Triple makes keys of three parts.
func Triple[A, B, C any](a Key[A], b Key[B], c Key[C]) Key[Three[A, B, C]] {
	return Key[Three[A, B, C]]{
		Append: func(dst []byte, k Three[A, B, C]) []byte {
			return c.Append(b.Append(a.Append(dst, k.A), k.B), k.C)
		},
		Cut: func(text []byte) (k Three[A, B, C], rest []byte, err error) {
			if k.A, rest, err = a.Cut(text); err == nil {
				k.B, rest, err = b.Cut(rest)
			}
			if err == nil {
				k.C, rest, err = c.Cut(rest)
			}
			return k, rest, err
		},
	}
}
