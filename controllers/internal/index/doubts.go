package index

import (
	"maps"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// The consequences of lost memory cannot be undone: compute servers answer nothing any more, and
// onDataLoss: Recreate empties the index. So one look is not enough for it: an API server that is
// behind or was restored, or a server that answers in the place of another one, may be believed
// once. A memory server counts as lost when each of so many looks, over a while, said so for the
// same reason. Until then it counts as unreachable, and nothing is done with the index: what is in
// the place of its memory must not be taken for it.
const (
	doubtLooks = 3
	doubtEvery = time.Second // between two looks that count
)

// doubt is a memory server that seems to be lost. A value.
type doubt struct {
	why   string
	looks int
	last  time.Time // look that counted
}

// look is the doubt after another look, and whether there is none any more.
func (d doubt) look(why string, now time.Time) (after doubt, sure bool) {
	switch {
	case d.looks == 0 || d.why != why || now.Before(d.last):
		d = doubt{why, 1, now}
	case now.Sub(d.last) >= doubtEvery:
		d.looks, d.last = d.looks+1, now
	}
	return d, d.looks >= doubtLooks
}

// doubtLoss takes servers that seem to be lost for unreachable, as long as that is not sure. What
// was said to be lost stays so.
func (r *Reconciler) doubtLoss(s *scope) {
	if said := apimeta.FindStatusCondition(s.index.Status.Conditions, dmv1.ConditionDataLost); !s.made() || !s.verdict.recorded || said != nil && said.Status == "True" {
		return
	}
	m := r.remembered.get(s.index.UID)
	was, doubts := m.doubts, map[uint16]doubt{}
	s.doubted = nil
	for i := range s.verdict.servers {
		server := &s.verdict.servers[i]
		if server.state != dmv1.ServerLost {
			continue
		}
		after, sure := was[server.id].look(server.why, r.Now())
		if doubts[server.id] = after; !sure {
			s.doubted = append(s.doubted, *server)
			server.state, server.why = dmv1.ServerUnreachable, ""
		}
	}
	if !maps.Equal(was, doubts) {
		m.doubts = doubts
		r.remembered.put(s.index.UID, m)
	}
}
