package computeserver

import (
	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/partition"
)

// A user that may not read every key sees no key of others, on whatever way:
//
//   - Pairs, and answers about one key, need a right to the key, or to all of a range.
//   - The partition map has only boundaries that the user may read, and the beginnings of the
//     user's prefixes (partition.Map.Shown). A request that it leads to a wrong server is sent on.
//   - Messages of errors name ranges by digests, as the status of the index does. The engine does
//     not know who asks, so the front ends hide keys where they write a message into an answer.
//   - Describe is what the port of metrics shows: no sampled keys, and digests of bounds.
//
// Holders of certificates of the index, which are its servers, and of the operator see all.

// seesAll reports whether a caller may see every key; a nil user is the holder of a certificate.
func seesAll(u *users.User) bool { return u == nil || u.ReadsAll() }

// shownMap is the map as a user may see it.
func shownMap(u *users.User, m *partition.Map) *partition.Map {
	if seesAll(u) {
		return m
	}
	return m.Shown(u.MayRead, u.Prefixes())
}

// visibleTo are outcomes as a user may see them. Outcomes may be shared with other callers, so they
// are not changed.
func (r *rpcServer) visibleTo(u *users.User, outcomes []*rpcv1.Outcome) []*rpcv1.Outcome {
	if seesAll(u) {
		return outcomes
	}
	for i, o := range outcomes {
		outcomes[i] = r.shownOutcome(u, o)
	}
	return outcomes
}

func (r *rpcServer) shownOutcome(u *users.User, o *rpcv1.Outcome) *rpcv1.Outcome {
	if seesAll(u) || o.Message == "" {
		return o
	}
	return &rpcv1.Outcome{Code: o.Code, Value: o.Value, Message: r.hider().Texts(o.Message)}
}
