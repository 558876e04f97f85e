package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// Items are numbers; the key of an item is its number scrambled over all 64 bits, so that
// neighbours in popularity or age are no neighbours in the index. The scrambling is one to one: no
// two items share a key, and a key names its item.

// scramble is a Feistel network of four rounds.
func scramble(x uint64) uint64 {
	l, r := uint32(x>>32), uint32(x)
	for i := range uint32(4) {
		l, r = r, l^round(r, i)
	}
	return uint64(l)<<32 | uint64(r)
}

// unscramble is the inverse of scramble.
func unscramble(x uint64) uint64 {
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

// keys makes the keys of items.
type keys struct {
	bytes  int
	prefix string // of text keys; "" = the number itself, big-endian, and zeros behind it
}

// digits of a scrambled number in a text key.
const digits = 16

// newKeys makes keys of so many bytes: from 16 on text, whose last 16 characters are hexadecimal
// digits and whose first ones all keys share.
func newKeys(bytes int) (keys, error) {
	if bytes < 8 {
		return keys{}, fmt.Errorf("keys of %d bytes: at least 8 are needed to tell items apart", bytes)
	}
	k := keys{bytes: bytes}
	const pattern = "users/by-id/"
	for len(k.prefix) < bytes-digits {
		k.prefix += pattern[:min(len(pattern), bytes-digits-len(k.prefix))]
	}
	return k, nil
}

// append adds the key of item to dst.
func (k *keys) append(dst []byte, item uint64) []byte { return k.scrambled(dst, scramble(item)) }

// scrambled adds the key of the item whose scrambled number is x. Keys compare as these numbers do.
func (k *keys) scrambled(dst []byte, x uint64) []byte {
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

var errNoKey = errors.New("the key is no item's")

// item is the inverse of append.
func (k *keys) item(key []byte) (uint64, error) {
	x, err := k.number(key)
	if err != nil {
		return 0, err
	}
	return unscramble(x), nil
}

// number is the inverse of scrambled.
func (k *keys) number(key []byte) (uint64, error) {
	if len(key) != k.bytes {
		return 0, errNoKey
	}
	if k.bytes < digits {
		for _, b := range key[8:] {
			if b != 0 {
				return 0, errNoKey
			}
		}
		return binary.BigEndian.Uint64(key), nil
	}
	x, err := strconv.ParseUint(string(key[len(k.prefix):]), 16, 64)
	if err != nil || string(key[:len(k.prefix)]) != k.prefix {
		return 0, errNoKey
	}
	return x, nil
}

// A value says who wrote it: a word of 40 bits for the operation (0 = the load, else its place in
// the stream plus one) and 24 that follow from the item; the bytes behind the word follow from it.
const (
	writerBits = 40
	maxWriter  = 1<<writerBits - 1
)

func tag(item uint64) uint64 { return mix(item+1) << writerBits }

// appendValue adds the value of n bytes that a writer gives an item.
func appendValue(dst []byte, n int, item, writer uint64) []byte {
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

// writerOf is who wrote a value of n bytes to an item; false if nobody did. It looks at the word
// alone unless thorough.
func writerOf(value []byte, n int, item uint64, thorough bool) (uint64, bool) {
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
	return word & maxWriter, true
}
