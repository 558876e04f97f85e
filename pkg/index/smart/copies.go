package smart

import "github.com/dmindex/dmindex/pkg/index/internal/art"

// copyAt returns the copy of the node where w leads, if this operation may follow it.
func (s *inner) copyAt(w art.Slot) *art.Copy {
	if w.Addr() == s.t.rootAddr() {
		return s.rootCopied()
	}
	h := s.t.cache.Get(w.Addr(), s.Floor)
	if h == nil || art.CopyOf(h).Kind != art.NodeType(w.Code()) {
		return nil
	}
	s.PS.Follows(h.Stamp)
	return art.CopyOf(h)
}

// mayRenew reports whether words that this operation READ before it got c may be stored there: the
// operation is not older than the copy, so the words are not older than the copy's stamp says.
func (s *inner) mayRenew(c *art.Copy) bool { return c.Stamp <= s.PS.Stamp() }

// keep makes b, READ from where w leads by this operation, what the node's copy says. A copy that a
// later operation made meanwhile stays as it is.
func (s *inner) keep(w art.Slot, b []byte) {
	if c := s.copyAt(w); c != nil {
		if s.mayRenew(c) {
			c.Renew(b)
		}
		return
	}
	if !s.fresh.Decode(&s.t.lay, w.Addr(), art.NodeType(w.Code()), b) {
		return
	}
	s.fresh.Stamp = s.PS.Stamp()
	c := s.fresh.Clone()
	if w.Addr() == s.t.rootAddr() {
		s.keepRoot(c)
		return
	}
	s.t.cache.Put(&c.Head)
}

// readFrame READs the node where w leads to f.
func (s *inner) readFrame(f *art.Frame, w art.Slot) error {
	for {
		if err := s.Read(w.Addr(), s.node[:art.NodeType(w.Code()).Bytes()]); err != nil {
			return err
		}
		if f.Take(&s.t.lay, w, s.node); !f.Dead {
			return nil
		}
		if err := s.Reread(w.Addr()); err != nil {
			return err
		}
	}
}
