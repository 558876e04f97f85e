package codec

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// ordered checks that some keys, in any order, come back from their encodings, which are ordered as
// the keys are, and of which none begins with another one.
func ordered[K any](t *testing.T, name string, c Key[K], compare func(a, b K) int, keys []K) {
	t.Helper()
	for _, a := range keys {
		text := c.Encode(a)
		if back, err := c.Decode(text); err != nil || compare(a, back) != 0 {
			t.Errorf("%s: %#v came back as %#v, %v", name, a, back, err)
		}
		if k, rest, err := c.Cut(append(bytes.Clone(text), "rest"...)); err != nil || compare(a, k) != 0 || string(rest) != "rest" {
			t.Errorf("%s: %#v before others came back as %#v, %q, %v", name, a, k, rest, err)
		}
		if _, err := c.Decode(append(bytes.Clone(text), 0)); !errors.Is(err, ErrEncoding) {
			t.Errorf("%s: %#v and one byte more gave the error %v", name, a, err)
		}
		for n := range text {
			if _, err := c.Decode(text[:n]); !errors.Is(err, ErrEncoding) {
				t.Errorf("%s: the first %d bytes of %#v gave the error %v", name, n, a, err)
			}
		}
		for _, b := range keys {
			other := c.Encode(b)
			if got, want := bytes.Compare(text, other), compare(a, b); got != want {
				t.Errorf("%s: the encodings of %#v and %#v compare as %d, want %d", name, a, b, got, want)
			}
			if !bytes.Equal(text, other) && bytes.HasPrefix(text, other) {
				t.Errorf("%s: the encoding of %#v begins with that of %#v", name, a, b)
			}
		}
	}
}

// many are given keys, and others by chance.
func many[K any](given []K, another func() K) []K {
	for range 60 {
		given = append(given, another())
	}
	return given
}

// TestOrder: encodings are ordered as what they encode is, and come back.
func TestOrder(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(uint64(seed), 1))
	bits := func() uint64 { return rnd.Uint64() >> rnd.IntN(64) }
	signed := func() int64 { return int64(bits()) * int64(1-2*rnd.IntN(2)) }
	text := func() string {
		b := make([]byte, rnd.IntN(5))
		for i := range b {
			b[i] = []byte{0, 1, 'a', 0xfe, 0xff}[rnd.IntN(5)]
		}
		return string(b)
	}
	floats := func(a, b float64) int { return cmp.Compare(a, b) }
	moments := func(a, b time.Time) int { return a.Compare(b) }

	ordered(t, "Uint64", Uint64, cmp.Compare[uint64], many([]uint64{0, 1, math.MaxUint64, 1 << 63}, bits))
	ordered(t, "Int64", Int64, cmp.Compare[int64], many([]int64{0, 1, -1, math.MaxInt64, math.MinInt64}, signed))
	ordered(t, "Float64", Float64, floats, many([]float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64, math.MaxFloat64, -math.MaxFloat64},
		func() float64 {
			if f := math.Float64frombits(rnd.Uint64()); !math.IsNaN(f) { // cmp has them first
				return f
			}
			return rnd.NormFloat64()
		}))
	ordered(t, "String", String, strings.Compare, many([]string{"", "\x00", "a", "a\x00", "a\x00b", "ab", "\xff", "a\x01", "a\x00\xff"}, text))
	ordered(t, "Bytes", Bytes, bytes.Compare, many([][]byte{{}, {0}, {0, 1}, {0, 0xff}, {1}}, func() []byte { return []byte(text()) }))
	ordered(t, "Time", Time, moments, many([]time.Time{{}, time.Unix(0, 0), time.Unix(0, -1), time.Unix(1<<40, 999_999_999), time.Date(-5000, 1, 1, 0, 0, 0, 1, time.UTC)},
		func() time.Time { return time.Unix(signed()>>8, rnd.Int64N(1e9)) }))
	type two = Two[string, int64]
	ordered(t, "Pair", Pair(String, Int64), func(a, b two) int { return cmp.Or(strings.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) },
		many([]two{{}, {"a", -1}, {"a", 1}, {"a\x00", -1}}, func() two { return two{text(), signed()} }))
	type three = Three[uint64, string, Two[string, string]]
	ordered(t, "Triple", Triple(Uint64, String, Pair(String, String)), func(a, b three) int {
		return cmp.Or(cmp.Compare(a.A, b.A), strings.Compare(a.B, b.B), strings.Compare(a.C.A, b.C.A), strings.Compare(a.C.B, b.C.B))
	}, many(nil, func() three { return three{rnd.Uint64N(3), text(), Two[string, string]{text(), text()}} }))
}

// TestNaN: every NaN is one key, behind all numbers, and comes back as NaN.
func TestNaN(t *testing.T) {
	text := Float64.Encode(math.NaN())
	if !bytes.Equal(text, Float64.Encode(math.Copysign(math.NaN(), -1))) || bytes.Compare(text, Float64.Encode(math.Inf(1))) <= 0 {
		t.Errorf("NaN is %x", text)
	}
	if back, err := Float64.Decode(text); err != nil || !math.IsNaN(back) {
		t.Errorf("NaN came back as %v, %v", back, err)
	}
}

// TestFormats: indexes have these bytes.
func TestFormats(t *testing.T) {
	for _, row := range []struct {
		got  []byte
		want string
	}{
		{Uint64.Encode(258), "\x00\x00\x00\x00\x00\x00\x01\x02"},
		{Int64.Encode(-2), "\x7f\xff\xff\xff\xff\xff\xff\xfe"},
		{Float64.Encode(1), "\xbf\xf0\x00\x00\x00\x00\x00\x00"},
		{Float64.Encode(-1), "\x40\x0f\xff\xff\xff\xff\xff\xff"},
		{Time.Encode(time.Unix(1, 2)), "\x80\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02"},
		{String.Encode("a\x00b"), "a\x00\xffb\x00\x01"},
		{Pair(String, Uint64).Encode(Two[string, uint64]{"a", 1}), "a\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01"},
	} {
		if string(row.got) != row.want {
			t.Errorf("%x, want %x", row.got, row.want)
		}
	}
}

// FuzzDecode: bytes of any kind are an error of this package, or the encoding of what they give;
// but for NaN, which has several.
func FuzzDecode(f *testing.F) {
	all := Triple(Float64, Pair(String, Bytes), Pair(Time, Pair(Int64, Uint64)))
	type part = Two[time.Time, Two[int64, uint64]]
	for _, s := range []string{"", "a\x00\xff", "\x00"} {
		f.Add(all.Encode(Three[float64, Two[string, []byte], part]{-1.5, Two[string, []byte]{s, []byte("b" + s)}, part{time.Unix(7, 8), Two[int64, uint64]{-9, 10}}}))
	}
	f.Add([]byte("\x00\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := all.Decode(b)
		switch {
		case err != nil && !errors.Is(err, ErrEncoding):
			t.Errorf("%x gave the error %v", b, err)
		case err == nil && !math.IsNaN(k.A) && k.A != 0 && !bytes.Equal(all.Encode(k), b):
			t.Errorf("%x gave %v, which is %x", b, k, all.Encode(k))
		}
	})
}
