package index

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/pkg/partition"
)

// Events about keys that change hands. There is one for each step of the partition map, with all of
// its moves, and one for each server and look at it that took over what dead servers left: however
// many ranges there are, events stay few.

// Of events that differ in nothing but their notes the recorder keeps the first and counts the
// others. So their actions name the generation of the map, or the epoch of the grant.

// Reasons of these events.
const (
	eventHandover   = "Handover"   // the map gives keys to other servers
	eventTakeOver   = "TakeOver"   // a server serves keys whose former owner had died
	eventMapChanged = "MapChanged" // any other change of the map
)

// anotherPlan is why a map changes if there is no other reason.
const anotherPlan = "the plan is another one"

// tellMap makes the event of a change of the map that was made. Where all servers share everything,
// nothing is handed over.
func (r *Reconciler) tellMap(s *scope, expected uint64, actions partition.Actions) {
	next := actions.Swap
	if !s.view.Owned || len(actions.Moves) == 0 {
		r.Events.Eventf(s.index, nil, corev1.EventTypeNormal, eventMapChanged, report.Numbered("SwapMapTo", next.Generation), "partition map %d -> %d: %d servers, %d ranges, %d moves, since %s",
			expected, next.Generation, len(next.Servers), len(next.Ranges), len(actions.Moves), s.keys().text(cmp.Or(actions.Reason, "the plan changed")))
		return
	}
	var moves []string
	for _, m := range actions.Moves {
		moves = append(moves, fmt.Sprintf("keys %s go from %s to %s", s.keys().span(m.Start, m.End), serverName(s.view.Map, m.From), serverName(next, m.To)))
	}
	r.Events.Eventf(s.index, nil, corev1.EventTypeNormal, eventHandover, report.Numbered("SwapMapTo", next.Generation), "partition map %d -> %d, since %s: %s", expected, next.Generation,
		s.keys().text(cmp.Or(actions.Reason, "the plan changed")), report.Listed(moves))
}

func serverName(m *partition.Map, id uint32) string {
	if s, ok := m.Server(id); ok && s.Name != "" {
		return s.Name
	}
	return fmt.Sprintf("server %d", id)
}

// told remembers of what there were events.
type told struct {
	takeOvers, full toldOf // full: ranges that wait for memory

	mu      sync.Mutex
	clients map[types.NamespacedName]known
}

// toldOf is what the servers of each index reported last, of one kind.
type toldOf struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]map[string]bool
}

// news are those of an index's reports that were not told of, by their servers' position. Where
// nothing is remembered, since the operator has just started, they are those that anew picks. What
// is not reported any more is forgotten; a server that does not answer reports nothing.
func news[R interface {
	GetEpoch() uint64
	GetStart() []byte
}](t *toldOf, index *dmv1.DMIndex, reported [][]R, anew func(R) bool) [][]R {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, again := t.seen[client.ObjectKeyFromObject(index)]
	now, news := map[string]bool{}, make([][]R, len(reported))
	for i, of := range reported {
		for _, o := range of {
			id := fmt.Sprintf("%s %d %x", decision.Identity(index), o.GetEpoch(), o.GetStart())
			now[id] = true
			if !before[id] && (again || anew(o)) {
				news[i] = append(news[i], o)
			}
		}
	}
	if t.seen == nil {
		t.seen = map[types.NamespacedName]map[string]bool{}
	}
	t.seen[client.ObjectKeyFromObject(index)] = now
	return news
}

func (t *toldOf) forget(index types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.seen, index)
}

// known are names of clients of an index.
type known struct {
	identity string
	names    map[uint32]string
}

// mostNames bounds the clients of an index that are known by name. When there are so many all are
// forgotten, and some messages name a client by its number.
const mostNames = 1024

// names are the pods of an index's clients of memory servers: of those that are listed, and of such
// as were, since the dead lose their names there.
func (t *told) names(index types.NamespacedName, identity string, listed []*rpcv1.ClientUse) map[uint32]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.clients == nil {
		t.clients = map[types.NamespacedName]known{}
	}
	k := t.clients[index]
	if k.identity != identity {
		k = known{identity, map[uint32]string{}}
		t.clients[index] = k
	}
	for _, c := range listed {
		if c.Name == "" {
			continue
		}
		if len(k.names) >= mostNames {
			clear(k.names)
		}
		k.names[c.Client] = report.Cut(c.Name, 253)
	}
	return maps.Clone(k.names)
}

// toldAnew is how long ago a take-over may have been that is told of when nothing is remembered.
const toldAnew = time.Minute

// forget is for an index that is not there any more.
func (t *told) forget(index types.NamespacedName) {
	t.takeOvers.forget(index)
	t.full.forget(index)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.clients, index)
}

// tellTakeOvers makes events of what compute servers took over from such as had died.
func (r *Reconciler) tellTakeOvers(ctx context.Context, s *scope) {
	reported := make([][]*rpcv1.TakeOver, len(s.compute))
	for i := range s.compute {
		reported[i] = s.compute[i].described.GetTakeOvers()
	}
	lately := func(o *rpcv1.TakeOver) bool { return time.Duration(o.AgeMilliseconds)*time.Millisecond < toldAnew }
	for i, news := range news(&r.told.takeOvers, s.index, reported, lately) {
		var all []string
		for _, o := range news {
			logf.FromContext(ctx).Info("keys were taken over", "pod", s.compute[i].pod.Name, "keys", s.keys().span(o.Start, o.End), "epoch", o.Epoch,
				"seconds", float64(o.TookMilliseconds)/1000, "reason", "the former owner ended: "+s.formerOwners(o.Clients))
			all = append(all, fmt.Sprintf("keys %s of %s after %.1f s", s.keys().span(o.Start, o.End), s.formerOwners(o.Clients), float64(o.TookMilliseconds)/1000))
		}
		if len(all) > 0 {
			r.Events.Eventf(s.index, s.compute[i].pod, corev1.EventTypeNormal, eventTakeOver, report.Numbered("ReplayForEpoch", news[0].Epoch), "%s replayed the log of a dead server, and serves: %s",
				s.compute[i].pod.Name, report.Listed(all))
		}
	}
}

// formerOwners are clients of memory servers by the names of their pods, as far as these are known.
func (s *scope) formerOwners(clients []uint32) string {
	var names []string
	for _, id := range clients {
		name := fmt.Sprintf("client %d", id)
		if pod := s.clients[id]; pod != "" {
			name = fmt.Sprintf("%s (client %d)", pod, id)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
