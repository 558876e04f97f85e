package blocks

import "github.com/dmindex/dmindex/pkg/index/internal/op"

// Entries are the verified entries of a node in the order of their keys.
type Entries interface {
	Len() int
	Entry(i int) []byte
}

// ahead are the values that a scan has READ together, in the order in which it visits them.
type ahead struct {
	n, next int
	entries [MostTogether]int
	at      [MostTogether]int // in the session's room
}

// BeginScan forgets what was READ ahead for another node's entries.
func (s *Session) BeginScan() { s.ahead.n, s.ahead.next = 0, 0 }

// Next returns the value of entry i of list, which has a reference. The session READs it together
// with those of the entries that a scan in steps of step visits next, of left at most: one round
// trip for as many as there is room for. nil: the block does not hold it.
func (s *Session) Next(list Entries, i, step, left int) ([]byte, error) {
	f := &s.ahead
	for f.next < f.n && f.entries[f.next] != i {
		f.next++ // the scan passed over it: the key was there twice
	}
	if f.next == f.n {
		if err := s.readAhead(list, i, step, left); err != nil || f.n == 0 {
			return nil, err
		}
	}
	r, _ := ReferenceIn(s.codec, list.Entry(i))
	b := s.room[f.at[f.next]:][:r.Length]
	f.next++
	return s.intact(&r, b), nil
}

func (s *Session) readAhead(list Entries, i, step, left int) error {
	f, at := &s.ahead, 0
	f.n, f.next = 0, 0
	for ; i >= 0 && i < list.Len() && left > 0 && f.n < MostTogether; i, left = i+step, left-1 {
		r, ok := ReferenceIn(s.codec, list.Entry(i))
		if !ok {
			continue
		}
		n := align(r.Length)
		if r.Length > s.codec.MaxValue || at+n > len(s.room) {
			break
		}
		s.op.PS.Read(r.Addr+HeadBytes, s.room[at:at+r.Length])
		f.entries[f.n], f.at[f.n] = i, at
		f.n++
		at += n
	}
	if err := s.op.PS.Post(); err != nil {
		return op.Failure(err, false)
	}
	s.op.Pause()
	return nil
}
