package engine

import (
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// A process that was suspended for longer than its leases (stopped, or on a suspended machine)
// finds old requests in its sockets. Their senders have given up and asked another server, so a
// write that is done now would overwrite later acknowledged ones. Such a request looks like any new
// one on the same connection. So every connection belongs to a term. A long suspension raises the
// term and cuts all connections, and requests of an earlier term are refused wherever they are.

// errStoodStill is the failure of a request of an earlier term: nothing was done.
var errStoodStill error = &Failure{Code: rpcv1.Outcome_UNAVAILABLE, Message: "this server stood still since it was asked; connect again and try again"}

// isTerm reports whether requests of a term may run; 0 stands for every term. Called under mu.
func (g *Sessions) isTerm(term uint64) bool { return term == 0 || term == g.term }

// inTerm returns errStoodStill if term is an earlier one.
func (g *Sessions) inTerm(term uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.canLend()
	if !g.isTerm(term) {
		return errStoodStill
	}
	return nil
}

// NewConnection returns the term of a connection that is accepted now. It returns false after a
// suspension until the index is open again: a connection that waited to be accepted may hold old
// requests.
func (g *Sessions) NewConnection() (term uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.canLend()
	return g.term, !g.stood
}
