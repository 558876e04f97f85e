package pool

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// Calls reports whether any memory server answers two-sided calls.
func (p *Pool) Calls() bool {
	for _, s := range p.servers() {
		if s.caps.Calls {
			return true
		}
	}
	return false
}

// Calls reports whether the memory server of a answers two-sided calls.
func (s *Session) Calls(a Addr) bool {
	i, ok := s.pool.serverOf(a)
	return ok && s.pool.servers()[i].caps.Calls
}

// Call makes a two-sided call to the memory server of a: one round trip. The first args bytes of b,
// a Buffer, are the request; the answer is a part of b. Nothing may be queued. Errors:
// verbs.ErrBusy and verbs.ErrCall, which the session survives, and those of Post.
func (s *Session) Call(a Addr, b []byte, args int) ([]byte, error) {
	i, ok := s.pool.serverOf(a)
	if !ok || s.queued > 0 {
		s.reject(fmt.Errorf("call to the server of %v, with %d requests queued", a, s.queued))
		return nil, s.broken
	}
	r := verbs.Request{Op: verbs.Call, Local: b, Args: args}
	s.queueTo(i, r)
	if err := s.Post(); err != nil {
		return nil, err
	}
	return r.Answer()
}
