package workload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strconv"
)

// Items are numbers; the key of an item is its number scrambled over all 64 bits, so that
// neighbours in popularity or age are no neighbours in the index. The scrambling is one to one: no
// two items share a key, and a key names its item.

// Scramble is a Feistel network of four rounds.
func Scramble(x uint64) uint64 {
	l, r := uint32(x>>32), uint32(x)
	for i := range uint32(4) {
		l, r = r, l^round(r, i)
	}
	return uint64(l)<<32 | uint64(r)
}

// Unscramble is the inverse of Scramble.
func Unscramble(x uint64) uint64 {
	l, r := uint32(x>>32), uint32(x)
	for i := uint32(3); i < 4; i-- {
		l, r = r^round(l, i), l
	}
	return uint64(l)<<32 | uint64(r)
}

func round(x, i uint32) uint32 { return uint32(mix(uint64(x)|uint64(i+1)<<32) >> 32) }

// mix spreads every bit of x over all bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>32) * 0x9E3779B97F4A7C15
	x = (x ^ x>>29) * 0xBF58476D1CE4E5B9
	return x ^ x>>32
}

// Keys makes the keys of items.
type Keys struct {
	bytes  int
	prefix string // of text keys; "" = the number itself, big-endian, and zeros behind it
}

// Uint64Keys are keys of 8 bytes: the scrambled numbers.
var Uint64Keys = Keys{bytes: 8}

// digits of a scrambled number in a text key.
const digits = 16

// NewKeys makes keys of so many bytes: from 16 on text, whose last 16 characters are hexadecimal
// digits and whose first ones all keys share.
func NewKeys(bytes int) (Keys, error) {
	if bytes < 8 {
		return Keys{}, fmt.Errorf("keys of %d bytes: at least 8 are needed to tell items apart", bytes)
	}
	k := Keys{bytes: bytes}
	const pattern = "users/by-id/"
	for len(k.prefix) < bytes-digits {
		k.prefix += pattern[:min(len(pattern), bytes-digits-len(k.prefix))]
	}
	return k, nil
}

// Append adds the key of item to dst.
func (k *Keys) Append(dst []byte, item uint64) []byte { return k.AppendScrambled(dst, Scramble(item)) }

// AppendScrambled adds the key of the item whose scrambled number is x. Keys compare as these
// numbers do.
func (k *Keys) AppendScrambled(dst []byte, x uint64) []byte {
	if k.bytes < digits {
		dst = binary.BigEndian.AppendUint64(dst, x)
		for range k.bytes - 8 {
			dst = append(dst, 0)
		}
		return dst
	}
	dst = append(dst, k.prefix...)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[x>>shift&15])
	}
	return dst
}

// ErrNoKey is returned for a key that Append makes of no item.
var ErrNoKey = errors.New("the key is no item's")

// Item is the inverse of Append.
func (k *Keys) Item(key []byte) (uint64, error) {
	x, err := k.Scrambled(key)
	if err != nil {
		return 0, err
	}
	return Unscramble(x), nil
}

// Scrambled is the inverse of AppendScrambled.
func (k *Keys) Scrambled(key []byte) (uint64, error) {
	if len(key) != k.bytes {
		return 0, ErrNoKey
	}
	if k.bytes < digits {
		for _, b := range key[8:] {
			if b != 0 {
				return 0, ErrNoKey
			}
		}
		return binary.BigEndian.Uint64(key), nil
	}
	x, err := strconv.ParseUint(string(key[len(k.prefix):]), 16, 64)
	if err != nil || string(key[:len(k.prefix)]) != k.prefix {
		return 0, ErrNoKey
	}
	return x, nil
}

// Floor is the lowest scrambled number whose key is not below a given one, which may be no item's;
// the highest if there is none.
func (k *Keys) Floor(key []byte) uint64 {
	if k.bytes == 8 && len(key) == 8 {
		return binary.BigEndian.Uint64(key)
	}
	b := make([]byte, 0, k.bytes)
	// The upper half first, then the lower: numbers of 64 bits are too many for sort.Search.
	high := uint64(sort.Search(1<<32-1, func(i int) bool {
		b = k.AppendScrambled(b[:0], uint64(i)<<32|(1<<32-1))
		return bytes.Compare(b, key) >= 0
	})) << 32
	low := sort.Search(1<<32-1, func(i int) bool {
		b = k.AppendScrambled(b[:0], high|uint64(i))
		return bytes.Compare(b, key) >= 0
	})
	return high | uint64(low)
}

// A value says who wrote it: a word of 40 bits for the operation (0 = the load, else its place in
// the stream plus one) and 24 that follow from the item; the bytes behind the word follow from it.
const (
	writerBits = 40
	MaxWriter  = 1<<writerBits - 1
)

// A value that is read back may be wrong in two ways.
var (
	ErrForeign = errors.New("the value is none that anybody wrote to this item")
	ErrLost    = errors.New("a later change is lost")
)

func tag(item uint64) uint64 { return mix(item+1) << writerBits }

// AppendValue adds the value of n bytes that a writer gives an item.
func AppendValue(dst []byte, n int, item, writer uint64) []byte {
	word := tag(item) | writer
	dst = binary.LittleEndian.AppendUint64(dst, word)
	for left := n - 8; left > 0; left -= 8 {
		word = mix(word)
		dst = binary.LittleEndian.AppendUint64(dst, word)
		if left < 8 {
			dst = dst[:len(dst)-8+left]
		}
	}
	return dst
}

// WriterOf is who wrote a value of n bytes to an item; false if nobody did. It looks at the word
// alone unless thorough.
func WriterOf(value []byte, n int, item uint64, thorough bool) (uint64, bool) {
	if len(value) != n {
		return 0, false
	}
	word := binary.LittleEndian.Uint64(value)
	if word>>writerBits != tag(item)>>writerBits {
		return 0, false
	}
	if thorough {
		for at, next := 8, word; at < n; at++ {
			if at%8 == 0 {
				next = mix(next)
			}
			if value[at] != byte(next>>(8*(at%8))) {
				return 0, false
			}
		}
	}
	return word & MaxWriter, true
}
