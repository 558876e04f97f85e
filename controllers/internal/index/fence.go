package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// Compute servers are clients of the memory servers under the names of their pods. When a pod is
// gone for good its clients are fenced at every memory server, the home last: what is still to be
// done is what the home lists, so an operator that dies in between leaves it to the next one.
// Clients whose process started anew in the same pod are its own business, and all others that of
// their leases.

// mostSuspects bounds the clients that one look concerns itself with: the pod of each is looked up
// at the API server. A memory server runs the image that its pool's author names, and lists what it
// likes, tens of thousands of clients in one reply. Those that were fenced are none of the next.
const mostSuspects = servers.MaxFence / 2

// fenceGone fences the clients of pods that are gone. It never stops the steps after it: what it
// could not do is told, and tried again.
func (r *Reconciler) fenceGone(ctx context.Context, s *scope) error {
	clients, more, err := r.clientsOfGone(ctx, s)
	switch {
	case err != nil:
		s.unfenced = err.Error()
		return nil
	case more > 0:
		s.unfenced = fmt.Sprintf("%d more clients that are listed as those of pods that may be gone are looked at next", more)
	}
	if len(clients) == 0 {
		return nil
	}
	if problems := r.fenceEverywhere(ctx, s, clients); len(problems) > 0 {
		s.unfenced = fmt.Sprintf("fence %s: %s", clientNames(clients), strings.Join(problems, ", "))
		if r.Logged.Once(s.index.UID, s.unfenced) {
			logf.FromContext(ctx).Info("clients cannot be fenced yet", "clients", clientNames(clients), "reason", strings.Join(problems, ", "))
		}
		return nil
	}
	r.Events.Eventf(s.index, nil, corev1.EventTypeNormal, "ClientsFenced", "Fence", "fenced at all memory servers: %s", clientNames(clients))
	logf.FromContext(ctx).Info("fence clients", "clients", clientNames(clients), "servers", len(s.verdict.servers), "reason", "their pods are gone")
	return nil
}

// clientsOfGone lists the clients that are to be fenced, and says how many more it has not looked
// at. Pods are looked up after the list was read, at the API server: whoever is in the list
// registered before, from a pod that was there, and a pod's name is never used again.
func (r *Reconciler) clientsOfGone(ctx context.Context, s *scope) (_ []*rpcv1.ClientUse, more int, _ error) {
	home := s.verdict.servers[0]
	p, pod, described := s.memoryPod(home)
	if described == nil {
		return nil, 0, nil // the next step tells
	}
	var listed []*rpcv1.ClientUse
	err := serverpod.WithMemory(&r.Base, pod, p.authority, func(m servers.Memory) (err error) {
		listed, err = m.ListClients(ctx, decision.Identity(s.index))
		return err
	})
	if errors.Is(err, servers.ErrNotOffered) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	s.clients = r.told.names(client.ObjectKeyFromObject(s.index), decision.Identity(s.index), listed)
	there := map[string]bool{}
	for i := range s.compute {
		there[s.compute[i].pod.Name] = alive(s.compute[i].pod, r.Now())
	}
	suspects, more := suspectClients(listed, s.computePoolNames(), there)
	gone := map[string]bool{}
	for _, c := range suspects {
		if _, known := gone[c.Name]; known {
			continue
		}
		live := &corev1.Pod{}
		switch err := r.Live.Get(ctx, types.NamespacedName{Namespace: s.index.Namespace, Name: c.Name}, live); {
		case apierrors.IsNotFound(err):
			gone[c.Name] = true
		case err != nil:
			return nil, 0, err
		default:
			gone[c.Name] = !alive(live, r.Now())
		}
	}
	return slices.DeleteFunc(suspects, func(c *rpcv1.ClientUse) bool { return !gone[c.Name] }), more, nil
}

// suspectClients are those that are not fenced and bear the name of a pod of these pools which is
// not there: the first mostSuspects of them, and how many more there are.
func suspectClients(listed []*rpcv1.ClientUse, pools []string, there map[string]bool) (suspects []*rpcv1.ClientUse, more int) {
	for _, c := range listed {
		ours := slices.ContainsFunc(pools, func(pool string) bool { return build.IsPodName(pool, c.Name) })
		if ours && !c.Fenced && !there[c.Name] {
			suspects = append(suspects, c)
		}
	}
	looked := min(len(suspects), mostSuspects)
	return suspects[:looked], len(suspects) - looked
}

// afterGrace is how long a pod that is being deleted may take, beyond its grace period, until its
// kubelet is taken for dead.
const afterGrace = 30 * time.Second

// alive reports whether a pod's containers may still run.
func alive(p *corev1.Pod, now time.Time) bool {
	return !podstate.Ended(p) && !(podstate.Going(p) && now.After(p.DeletionTimestamp.Add(afterGrace)))
}

// fenceEverywhere fences clients at every memory server, the home only if all others did it, and
// then those that joined meanwhile, which the home knows (pkg/pool/join.go). It says what could not
// be done.
func (r *Reconciler) fenceEverywhere(ctx context.Context, s *scope, clients []*rpcv1.ClientUse) (problems []string) {
	var ids []uint32
	for _, c := range clients {
		ids = append(ids, c.Client)
	}
	others := s.verdict.servers[1:]
	failed := make([]error, len(others))
	servers.Each(len(others), func(i int) { failed[i] = r.fenceAt(ctx, s, others[i], ids) })
	if errors.Join(failed...) == nil {
		failed = append(failed, r.fenceAt(ctx, s, s.verdict.servers[0], ids))
	}
	if errors.Join(failed...) == nil {
		failed = append(failed, r.fenceJoined(ctx, s, ids))
	}
	for _, err := range failed {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// fenceJoined fences clients that are fenced at the home at the members that the home knows and
// this look does not.
func (r *Reconciler) fenceJoined(ctx context.Context, s *scope, ids []uint32) error {
	var list *rpcv1.ListServersReply
	err := r.atHome(s, func(home servers.Memory) (err error) {
		list, err = home.ListServers(ctx, decision.Identity(s.index))
		return err
	})
	if errors.Is(err, servers.ErrNotOffered) {
		return nil
	}
	failed := []error{err}
	for _, j := range list.GetServers() {
		known := slices.ContainsFunc(s.verdict.servers, func(m memoryServer) bool { return uint32(m.id) == j.Id })
		if j.State == rpcv1.JoinedServer_MEMBER && !known {
			failed = append(failed, r.fenceAt(ctx, s, memoryServer{id: uint16(j.Id), pod: j.Control}, ids))
		}
	}
	return errors.Join(failed...)
}

// atHome calls the home of the index.
func (r *Reconciler) atHome(s *scope, do func(servers.Memory) error) error {
	home := s.verdict.servers[0]
	p, pod, described := s.memoryPod(home)
	if described == nil {
		return fmt.Errorf("no answer from the home of the index: %s", names([]memoryServer{home}))
	}
	return serverpod.WithMemory(&r.Base, pod, p.authority, do)
}

func (r *Reconciler) fenceAt(ctx context.Context, s *scope, m memoryServer, ids []uint32) error {
	p, pod, described := s.memoryPod(m)
	if described == nil {
		return fmt.Errorf("no answer from %s", names([]memoryServer{m}))
	}
	return serverpod.WithMemory(&r.Base, pod, p.authority, func(c servers.Memory) error { return c.Fence(ctx, decision.Identity(s.index), ids) })
}

// clientNames are clients for people.
func clientNames(clients []*rpcv1.ClientUse) string {
	var pods, ids []string
	for _, c := range clients {
		ids = append(ids, fmt.Sprint(c.Client))
		if !slices.Contains(pods, c.Name) {
			pods = append(pods, c.Name)
		}
	}
	return fmt.Sprintf("clients %s of pods that are gone (%s)", strings.Join(ids, ", "), strings.Join(pods, ", "))
}

// computePoolNames are the compute pools that the index names.
func (s *scope) computePoolNames() (pools []string) {
	for _, p := range s.index.Spec.ComputePools {
		pools = append(pools, build.ComputePoolOf(s.index, p))
	}
	return pools
}

// fenceAgain is when to try again what could not be fenced: the longer it lasts, the later.
func (s *scope) fenceAgain(now time.Time) time.Duration {
	c := apimeta.FindStatusCondition(s.index.Status.Conditions, dmv1.ConditionProgressing)
	if c == nil {
		return outcome.RequeueSoon
	}
	return min(max(outcome.RequeueSoon, now.Sub(c.LastTransitionTime.Time)), outcome.Recheck)
}
