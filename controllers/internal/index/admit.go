package index

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/pkg/grant"
)

// shortage is memory that an index asks for and did not get.
type shortage struct{ reason, message string }

// admit frees what earlier incarnations of the index have at the memory servers, and has this one
// admitted with its quota and its share of the lock tables, as package grant decides. Servers that
// do not answer are left for later.
func (r *Reconciler) admit(ctx context.Context, s *scope) error {
	verdict, _, err := r.decideGrants(ctx, s)
	if err != nil {
		return err
	}
	if len(verdict.Steps) > 0 {
		// One index of a namespace at a time: what was decided must still hold when it is done. Two
		// operators may overlap all the same; then the servers refuse what is too much.
		defer r.turns.take(s.index.Namespace)()
		if verdict, err = r.carryOut(ctx, s); err != nil {
			return err
		}
	}
	if len(verdict.Later) > 0 {
		return laterHeld(s.index, verdict.Later[0].Server, verdict.Later[0].Identity)
	}
	s.short = s.explainGrants(verdict)
	switch {
	case s.short == nil && len(verdict.Absent) > 0 && s.index.Annotations[dmv1.AnnotationCreated] == "":
		return outcome.WaitFor(dmv1.ReasonMemoryUnreachable, "no answer from memory pods "+strings.Join(verdict.Absent, ", "), outcome.RequeueSoon)
	case s.short == nil, s.index.Annotations[dmv1.AnnotationCreated] != "":
		// what is served goes on being served
		return nil
	}
	return outcome.WaitFor(s.short.reason, s.short.message, outcome.RequeueSoon*5)
}

// laterHeld says that a memory server holds more of an index than is known of it: what is known is
// old, and whatever follows from it would be done to data that is served.
func laterHeld(index *dmv1.DMIndex, pod, held string) error {
	return outcome.WaitFor(dmv1.ReasonStateConflict, fmt.Sprintf("memory pod %s holds %s, and the index is known as %s: what the operator wrote down of the index is lost or old. Nothing is taken back, and nothing is made anew: "+
		"give the index back its annotations from a copy that was made later (kubectl apply), or delete it and load a backup into another one", pod, held, decision.Identity(index)), outcome.Recheck)
}

// compareHeld looks, before anything follows from what is known of an index, whether memory servers
// hold what is not known: a later incarnation, or memory of an index that has not chosen any. The
// choice is written down before the first server is asked to admit the index (chooseMemory), so who
// holds some of it shows that there was one.
func (s *scope) compareHeld(chosen bool) error {
	uid := string(s.index.UID)
	force := grant.Incarnation(decision.Identity(s.index), uid)
	for _, p := range s.memoryPools {
		for _, pod := range p.pods {
			for _, use := range p.described[podstate.VolumeOf(pod)].GetIndexes() {
				if !grant.Of(use.Index, uid) {
					continue
				}
				if held := grant.Incarnation(use.Index, uid); held > force || held == force && !chosen {
					return laterHeld(s.index, pod.Name, use.Index)
				}
			}
		}
	}
	return nil
}

// carryOut does what is decided about the index until nothing is left to do, and looks at the
// servers anew before each decision.
func (r *Reconciler) carryOut(ctx context.Context, s *scope) (v grant.Verdict, err error) {
	const rounds = 4 // evict, admit, see that it is so; one more
	var told grantNotes
	defer func() { r.tellGrants(s, told) }()
	for range rounds {
		describePools(ctx, &r.Base, s.pools()...)
		var pods map[string]*grantServer
		if v, pods, err = r.decideGrants(ctx, s); err != nil || len(v.Steps) == 0 {
			return v, err
		}
		for _, step := range v.Steps {
			at := pods[step.Server]
			err := serverpod.WithMemory(&r.Base, at.pod, at.pool.authority, func(m servers.Memory) error {
				if step.Evict {
					return m.Evict(ctx, step.Identity)
				}
				return m.Admit(ctx, step.Identity, step.Chunks, step.Locks, step.HostLocks)
			})
			switch {
			case errors.Is(err, servers.ErrNoRoom):
				// locks in one piece, or somebody was faster
				return v, outcome.WaitFor(dmv1.ReasonMemoryPending, err.Error(), outcome.RequeueSoon*5)
			case errors.Is(err, servers.ErrInUse):
				return v, outcome.WaitFor(dmv1.ReasonQuotaRefused, fmt.Sprintf("%v: raise quota again", err), outcome.RequeueSoon*5)
			case err != nil:
				return v, err
			}
			told.add(at, step)
		}
	}
	return v, nil
}

// grantNotes are what was granted and taken back. Events that differ in their notes only are one to
// the API server, which keeps the first note: so there is one event for each kind and pool.
type grantNotes []grantNote

type grantNote struct {
	pool   *memoryPool
	reason string
	texts  []string
}

func (g *grantNotes) add(at *grantServer, step grant.Step) {
	if step.Chunks == 0 && step.Had == 0 && !step.Evict {
		return // a server that joins
	}
	reason, text := "MemoryGranted", fmt.Sprintf("pod %s grants %d chunks of %d bytes, before %d", step.Server, step.Chunks, at.described.ChunkBytes, step.Had)
	switch {
	case step.Evict:
		reason, text = "MemoryTakenBack", fmt.Sprintf("pod %s takes back %d chunks of %s, an earlier index of this name", step.Server, step.Had, step.Identity)
	case step.Chunks < step.Had:
		reason, text = "MemoryTakenBack", fmt.Sprintf("pod %s takes back %d of %d chunks", step.Server, step.Had-step.Chunks, step.Had)
	}
	for i := range *g {
		if n := &(*g)[i]; n.pool == at.pool && n.reason == reason {
			n.texts = append(n.texts, text)
			return
		}
	}
	*g = append(*g, grantNote{at.pool, reason, []string{text}})
}

// tellGrants makes the events.
func (r *Reconciler) tellGrants(s *scope, told grantNotes) {
	for _, n := range told {
		r.Events.Eventf(s.index, n.pool.pool, corev1.EventTypeNormal, n.reason, "Admit", "%s", strings.Join(n.texts, "; "))
	}
}

// explainGrants says what the index asks for and did not get; nil = nothing.
func (s *scope) explainGrants(v grant.Verdict) *shortage {
	if len(v.Missing)+len(v.Refused) == 0 {
		return nil
	}
	what := &shortage{reason: dmv1.ReasonMemoryPending}
	var texts []string
	for _, m := range v.Refused {
		what.reason = dmv1.ReasonQuotaRefused
		texts = append(texts, fmt.Sprintf("%s cannot lower the quota to %d chunks: the index uses %d, and keeps its quota of %d: write at least that much, or delete keys first", s.serverName(m.Server), m.Asked, m.Used, m.Has))
	}
	for _, m := range v.Missing {
		texts = append(texts, s.serverName(m.Server)+" "+s.missingText(m))
	}
	what.message = strings.Join(texts, "; ")
	return what
}

func (s *scope) missingText(m grant.Missing) string {
	things := m.What
	if m.What == grant.Chunks {
		if d := s.describedPod(m.Server); d != nil {
			things = fmt.Sprintf("chunks of %d bytes", d.ChunkBytes)
		}
	}
	switch {
	case m.Never():
		return fmt.Sprintf("has %d %s in all, the index asks for %d: lower quota, or use a pool of larger servers", m.Total, things, m.Asked)
	case m.Draining:
		return fmt.Sprintf("is draining and gives no %s: use another pool", things)
	}
	text := fmt.Sprintf("has %d %s left, the index asks for %d", m.Left, things, m.Asked)
	if m.Has > 0 {
		text = fmt.Sprintf("has %d %s left, the index has %d and asks for %d", m.Left, things, m.Has, m.Asked)
	}
	text += fmt.Sprintf(": %d are missing", m.Lacks)
	if m.Kept > 0 {
		text += fmt.Sprintf(", since %d are reserved for older indexes that wait (%s)", m.Kept, strings.Join(m.Older, ", "))
	}
	return text + "; lower quota, free memory of another index, or use another pool"
}

// serverName is a memory server for people.
func (s *scope) serverName(pod string) string {
	for _, m := range s.verdict.servers {
		if m.pod == pod {
			return fmt.Sprintf("memory server %d (pod %s)", m.id, pod)
		}
	}
	return "memory pod " + pod
}

// describedPod is what the server of a pod of the index's pools said.
func (s *scope) describedPod(name string) *rpcv1.DescribeMemoryReply {
	for i := range s.memoryPools {
		p := &s.memoryPools[i]
		for _, pod := range p.pods {
			if pod.Name == name {
				return p.described[podstate.VolumeOf(pod)]
			}
		}
	}
	return nil
}

// memoryPod finds the pod of a memory server and what it said.
func (s *scope) memoryPod(m memoryServer) (*memoryPool, *corev1.Pod, *rpcv1.DescribeMemoryReply) {
	ordinal, volume := build.MemoryServerVolume(m.id)
	if ordinal >= len(s.memoryPools) {
		return nil, nil, nil
	}
	p := &s.memoryPools[ordinal]
	for _, pod := range p.pods {
		if podstate.VolumeOf(pod) == volume {
			return p, pod, p.described[volume]
		}
	}
	return p, nil, nil
}

// earlier are the identities at a server that belong to the same object, but to what it was before
// its data was lost.
func earlier(d *rpcv1.DescribeMemoryReply, uid, identity string) (old []string) {
	for _, use := range d.Indexes {
		if grant.Of(use.Index, uid) && use.Index != identity {
			old = append(old, use.Index)
		}
	}
	return old
}

func useOf(d *rpcv1.DescribeMemoryReply, identity string) *rpcv1.IndexUse {
	for _, use := range d.GetIndexes() {
		if use.Index == identity {
			return use
		}
	}
	return nil
}

// turns lets one at a time act in a namespace. Namespaces in which nobody acts take no memory.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

// turn is of a namespace.
type turn struct {
	sync.Mutex
	users int // who have it, or wait for it; under turns.mu
}

func newTurns() *turns { return &turns{of: map[string]*turn{}} }

// take waits for the turn; what it returns ends it.
func (t *turns) take(namespace string) (done func()) {
	t.mu.Lock()
	m := t.of[namespace]
	if m == nil {
		m = &turn{}
		t.of[namespace] = m
	}
	m.users++
	t.mu.Unlock()
	m.Lock()
	return func() {
		m.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if m.users--; m.users == 0 {
			delete(t.of, namespace)
		}
	}
}
