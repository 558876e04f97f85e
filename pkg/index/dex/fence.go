package dex

import "github.com/dmindex/dmindex/pkg/index"

var _ index.Fences = (*session)(nil)

// LowFence implements index.Fences.
func (s *session) LowFence(key, dst []byte) ([]byte, bool) {
	if s.x.lay.CheckKey(key) != nil {
		return dst, false
	}
	s.b.Begin()
	defer s.b.End()
	p, err := s.b.Descend(key)
	if err != nil {
		return dst, false
	}
	f := s.x.cache.find(p.Addr())
	if f == nil {
		return dst, false
	}
	version, before := f.version.Load(), len(dst)
	var v view
	if version&1 != 0 || f.addr.Load() != uint64(p.Addr()) || !f.open(&v) || f.below(&v, key, s.x.lay.Uint64) || f.above(&v, key, s.x.lay.Uint64) {
		return dst, false
	}
	dst = f.bytes(8*fenceWord, v.lowLen, dst)
	if f.version.Load() != version {
		return dst[:before], false
	}
	return dst, true
}
