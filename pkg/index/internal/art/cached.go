package art

// CopyAt returns the copy of the node where w leads, if this operation may follow it.
func (s *Session) CopyAt(w Slot) *Copy {
	if w.Addr() == s.t.RootAddr() {
		return s.rootCopied()
	}
	h := s.t.Cache.Get(w.Addr(), s.Floor)
	if h == nil || copyOf(h).Kind != NodeType(w.Code()) {
		return nil
	}
	s.PS.Follows(h.Stamp)
	return copyOf(h)
}

// MayRenew reports whether words that this operation READ before it got c may be stored there: the
// operation is not older than the copy, so the words are not older than the copy's stamp says.
func (s *Session) MayRenew(c *Copy) bool { return c.Stamp <= s.PS.Stamp() }

// Keep makes b, READ from where w leads by this operation, what the node's copy says. A copy that a
// later operation made meanwhile stays as it is.
func (s *Session) Keep(w Slot, b []byte) {
	if c := s.CopyAt(w); c != nil {
		if s.MayRenew(c) {
			s.Renew(c, b)
		}
		return
	}
	if !s.Fresh.Decode(&s.t.lay, w.Addr(), NodeType(w.Code()), b) {
		return
	}
	s.Fresh.Stamp = s.PS.Stamp()
	c := s.Fresh.Clone()
	if w.Addr() == s.t.RootAddr() {
		s.keepRoot(c)
		return
	}
	s.t.Cache.Put(&c.Head)
}

// readFrame READs the node where w leads to f.
func (s *Session) readFrame(f *Frame, w Slot) error {
	for {
		if err := s.Read(w.Addr(), s.Node[:NodeType(w.Code()).Bytes()]); err != nil {
			return err
		}
		if f.Take(&s.t.lay, w, s.Node); !f.Dead {
			return nil
		}
		if err := s.Reread(w.Addr()); err != nil {
			return err
		}
	}
}
