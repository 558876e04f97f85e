package pool

import (
	"slices"
	"time"
)

// Forgetter is the part of the control path by which memory servers forget clients that ended, so
// that their ids can be given to other clients. A Control may have it. Every call ends within
// limit.
type Forgetter interface {
	// Forget lets a server forget those of the clients of which nothing is left there, and returns
	// them, and those that it forgot before. next are others that the server would like to be
	// forgotten; only those of the home server matter. Without clients it only returns these. The
	// home server may be asked only about clients that all other servers of the index have
	// forgotten: then it gives their ids to others. memserver/ledger/forget.go says why that is
	// safe.
	Forget(server uint16, clients []uint32, limit time.Duration) (gone, next []uint32, err error)
}

// forgetRounds bounds the calls of one opening. Each opening takes one id, and a round gives back
// up to as many as a server names at once.
const forgetRounds = 4

// forgetEnded lets the servers forget clients that ended, the home last, if it runs short of ids.
// It returns how many the home forgot. Servers that join are asked, too: those of which the home
// knows once it has said that the clients are fenced are all that they ever used (join.go). So each
// round asks for the list anew. What fails is tried again by the next client that opens the index.
func (p *Pool) forgetEnded(stopped func() bool) (n int) {
	f, ok := p.control.(Forgetter)
	if !ok {
		return 0
	}
	_, next, err := f.Forget(p.control.Servers()[0], nil, p.limit)
	for range forgetRounds {
		if err != nil || len(next) == 0 {
			return n
		}
		var servers []uint16
		servers, err = p.joinedBehind(slices.Clone(p.control.Servers()))
		gone := next
		for i := len(servers) - 1; i >= 0; i-- {
			if err != nil || len(gone) == 0 || stopped() {
				return n
			}
			gone, next, err = f.Forget(servers[i], gone, p.limit)
		}
		n += len(gone)
	}
	return n
}
