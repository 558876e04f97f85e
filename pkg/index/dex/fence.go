package dex

import (
	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
)

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
	f := s.x.cache.Find(p.Addr())
	if f == nil {
		return dst, false
	}
	version, before := f.Version(), len(dst)
	var v frame.View
	if version&1 != 0 || f.Addr() != p.Addr() || !f.Open(&v) || f.Below(&v, key, s.x.lay.Uint64) || f.Above(&v, key, s.x.lay.Uint64) {
		return dst, false
	}
	dst = f.LowFence(&v, dst)
	if f.Version() != version {
		return dst[:before], false
	}
	return dst, true
}
