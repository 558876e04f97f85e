package dolphin

import (
	"errors"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/index/internal/op"
	"github.com/dmindex/dmindex/pkg/pool"
)

// leaves is memory for one leaf or two that are about to be made.
type leaves struct {
	at [2]pool.Addr
	n  int
}

// allot allocates memory for n leaves near an address, or for one, where there is none for two and
// one would do. With an error nothing is allocated, and the lock that is held is released.
//
// A leaf takes some changes, and then another one takes its place. So in a full pool, too, a client
// needs memory for a leaf, to change a pair or to insert one in the place of another one. The old
// leaf's memory comes back when nobody can look at it any more. So two are allocated only where
// there is memory for a third one.
func (s *Session) allot(m *leaves, near pool.Addr, n int, oneWillDo bool) (err error) {
	*m = leaves{}
	if n == 2 {
		if err = s.allotSome(m, near, 3); err == nil {
			return nil
		}
		if !errors.Is(err, index.ErrPoolFull) || !oneWillDo {
			s.Discard()
			return err
		}
	}
	if err = s.allotSome(m, near, 1); err != nil {
		s.Discard()
	}
	return err
}

// allotSome allocates n leaves, of which m gets two at most, or none. The second one is on a
// server by chance: so leaves are spread over all of them.
func (s *Session) allotSome(m *leaves, near pool.Addr, n int) (err error) {
	var last pool.Addr
	for i := 0; i < n && err == nil; i++ {
		if i == len(m.at) {
			if last, err = s.PS.AllocateBlock(s.lay.size, near); err == nil {
				s.t.Pool.Free(last, s.lay.size)
			}
			continue
		}
		where := near
		if i > 0 {
			all := s.Pool.Servers()
			where = pool.NewAddr(all[s.Env.Uint64()%uint64(len(all))], 0)
		}
		m.at[i], _, err = s.Allocate(s.lay.size, where)
	}
	if m.n = min(n, len(m.at)); err != nil {
		s.GiveBack()
		err = op.Failure(err, false)
	}
	return err
}
