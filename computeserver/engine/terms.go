package engine

import (
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// A process that stood still for longer than its leases (stopped, or its machine suspended) finds
// requests in its sockets that were sent before. Their senders have given up since, and asked
// another server; a write that is done now would undo what was acknowledged after it. Nobody can
// tell such a request from a new one on the same connection. So every connection belongs to a term:
// a standstill raises the term and cuts all connections, and requests of an earlier term are
// refused, wherever they are by then.

// errStoodStill is the failure of a request of an earlier term: nothing was done.
var errStoodStill error = &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "this server stood still since it was asked; connect again and try again"}

// isTerm reports whether requests of a term may be run; 0 is every term. Called under mu.
func (g *Sessions) isTerm(term uint64) bool { return term == 0 || term == g.term }

// inTerm is errStoodStill unless term is this one.
func (g *Sessions) inTerm(term uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.look()
	if !g.isTerm(term) {
		return errStoodStill
	}
	return nil
}

// NewConnection is the term of a connection that is accepted now. It is false until the index is
// open again after a standstill: a connection that waited to be accepted during it may hold old
// requests.
func (g *Sessions) NewConnection() (term uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.look()
	return g.term, !g.stood
}
