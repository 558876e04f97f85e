package siphash

import "testing"

// TestSum compares with vectors of the bytes 0, 1, 2, ... under the key of the bytes 0 to 15, as
// the authors' are. Indexes are stored with these hashes.
func TestSum(t *testing.T) {
	k := Key{0x0706050403020100, 0x0F0E0D0C0B0A0908}
	p := make([]byte, 64)
	for i := range p {
		p[i] = byte(i)
	}
	for n, want := range []uint64{
		0xABAC0158050FC4DC, 0xC9F49BF37D57CA93, 0x82CB9B024DC7D44D, 0x8BF80AB8E7DDF7FB,
		0xCF75576088D38328, 0xDEF9D52F49533B67, 0xC50D2B50C59F22A7, 0xD3927D989BB11140,
		0x369095118D299A8E, 0x25A48EB36C063DE4, 0x79DE85EE92FF097F, 0x70C118C1F94DC352,
		0x78A384B157B4D9A2, 0x306F760C1229FFA7, 0x605AA111C0F95D34, 0xD320D86D2A519956,
		0xCC4FDD1A7D908B66,
	} {
		if got := Sum(k, p[:n]); got != want {
			t.Errorf("%d bytes: %#X, want %#X", n, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Sum(k, p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSum8(b *testing.B) {
	p, s := make([]byte, 8), uint64(0)
	for range b.N {
		p[0] = byte(s)
		s = Sum(Key{1, 2}, p)
	}
}
