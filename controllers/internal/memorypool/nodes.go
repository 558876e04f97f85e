package memorypool

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// The volume of a memory pod is moved from a node that takes no new pods, since somebody is about
// to drain it, and a copy that another one took the place of from a node that is not heard of.
// Nodes are read one by one, and those that are cordoned are watched besides (nodeWatch): kubelets
// change each node every few seconds.

const (
	nodeLook  = 5 * time.Second // until a node is read again
	mostNodes = 4096            // that are remembered
)

// nodes remembers which nodes are to be left. Safe for concurrent use.
type nodes struct {
	mu      sync.Mutex
	seen    map[string]nodeSeen // by name
	forgets int                 // how often a node was forgotten
}

type nodeSeen struct {
	at time.Time
	nodeState
}

// nodeState is what is asked of a node. One that cannot be read counts as one that is well.
type nodeState struct {
	cordoned bool // takes no new pods
	away     bool // its kubelet is not heard of
}

func newNodes() *nodes { return &nodes{seen: map[string]nodeSeen{}} }

func (n *nodes) get(name string, now time.Time) (s nodeSeen, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, is := n.seen[name]
	return s, is && now.Sub(s.at) < nodeLook && !now.Before(s.at)
}

// begin is what put has to be given with what is read of nodes from now on.
func (n *nodes) begin() (forgets int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.forgets
}

// forget makes the next look read a node again.
func (n *nodes) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.seen, name)
	n.forgets++
}

// put remembers what was read of a node, unless some node was forgotten since the reading began
// (begin): it may be of before.
func (n *nodes) put(name string, s nodeSeen, begun int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.forgets != begun {
		return
	}
	if len(n.seen) >= mostNodes {
		clear(n.seen)
	}
	n.seen[name] = s
}

// lookAtNodes looks how the nodes of the pool's pods are.
func (r *Reconciler) lookAtNodes(ctx context.Context, s *scope) {
	s.nodes = map[string]nodeState{}
	if s.pool.Spec.Paused {
		return
	}
	placed := map[string]time.Time{} // when the newest pod came to the node
	for _, p := range s.pods {
		if at := placedAt(p); at.After(placed[p.Spec.NodeName]) {
			placed[p.Spec.NodeName] = at
		}
	}
	var unknown []string
	asked := map[string]bool{"": true} // a pod without a node
	for _, p := range s.pods {
		name := p.Spec.NodeName
		if asked[name] {
			continue
		}
		asked[name] = true
		if seen, known := r.nodes.get(name, r.Now()); known && !seen.at.Before(placed[name]) {
			s.nodes[name] = seen.nodeState
		} else {
			unknown = append(unknown, name)
		}
	}
	begun := r.nodes.begin()
	seen := make([]nodeSeen, len(unknown))
	servers.Each(len(unknown), func(i int) {
		node := &corev1.Node{}
		err := r.Live.Get(ctx, types.NamespacedName{Name: unknown[i]}, node)
		if err != nil && !apierrors.IsNotFound(err) {
			logf.FromContext(ctx).V(1).Info("read node", "node", unknown[i], "error", err.Error())
		}
		seen[i] = nodeSeen{r.Now(), nodeState{cordoned: node.Spec.Unschedulable}}
		for _, c := range node.Status.Conditions {
			seen[i].away = seen[i].away || c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
		}
	})
	for i, name := range unknown {
		r.nodes.put(name, seen[i], begun)
		s.nodes[name] = seen[i].nodeState
	}
}

// placedAt is when the scheduler had given a pod its node. The node was well then, whatever was
// seen of it before.
func placedAt(p *corev1.Pod) (at time.Time) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Add(time.Second) // fractions were cut off
		}
	}
	return at
}

// leavesNode reports whether a copy shall be elsewhere because of its node. The primary and the
// backup of a volume stay on a node that is not heard of until they are replaced: they may be well.
// The only copy of a volume that is on a disk is not moved: its pod goes, and comes back with it.
// Another copy without a part in the view is left as well if its disk keeps its pod from all nodes,
// or lost what was on it.
func (s *scope) leavesNode(c *volumeCopy, volume int) bool {
	if c.claim != nil && s.copies() < 2 {
		return false
	}
	var node nodeState
	if c.pod != nil {
		node = s.nodes[c.pod.Spec.NodeName]
	}
	view, recorded := s.record.Views[volume]
	part := !recorded || view.Primary.UID == c.uid || view.Backup != nil && view.Backup.UID == c.uid
	return node.cordoned || !part && (node.away || c.isTied(s.looked))
}

// tiedAfter is how long a pod must have found no node until another disk takes the place of its
// own.
const tiedAfter = 5 * time.Minute

// isTied reports whether a disk that is there keeps the pod of a copy from all nodes, as a disk of
// a node that is gone, or lost what was on it.
func (c *volumeCopy) isTied(now time.Time) bool {
	switch {
	case c.claim == nil:
		return false
	case c.claim.Status.Phase == corev1.ClaimLost:
		return true
	case c.claim.Spec.VolumeName == "" || c.pod == nil || c.pod.Spec.NodeName != "" || podstate.Unschedulable([]*corev1.Pod{c.pod}) == "":
		return false
	}
	return now.Sub(kube.Stamp(c.pod, "", c.pod.CreationTimestamp.Time, now)) > tiedAfter
}

// isMoved reports whether a drain needs only patience to get rid of a pod: what it holds is moved,
// or has another copy and is moved as soon as the node takes no new pods. Nothing of a paused pool
// is moved.
func (s *scope) isMoved(p *corev1.Pod) bool {
	if s.pool.Spec.Paused {
		return false
	}
	for _, v := range s.volumes {
		if name := s.claims.NameOf(p); v.podOf(name) != nil && v.fixed == "" && (v.moves[name] || v.view.Backup != nil) {
			return true
		}
	}
	return false
}
