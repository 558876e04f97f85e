package index

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/podstate"
	"github.com/dmindex/dmindex/controllers/internal/report"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
	"github.com/dmindex/dmindex/controllers/internal/servers"
	"github.com/dmindex/dmindex/controllers/internal/volume"
)

// Memory servers join an index that was made before they were there. pkg/pool/join.go has the
// protocol, and why each of its steps stands where it does. Here they are done in the order of the
// following table, each at every look, so that an operator that died left nothing undone:
//
//	annotation      what is done                                               by
//	none            Joining is written, for a server that answers and has room  chooseJoining
//	Joining         it admits the index, with no chunks                         admit
//	                the home notes it as Joining; clients follow                joinServer
//	                the home notes it as a Member; clients have followed        joinServer
//	                it fences the clients that the home has fenced              fenceAtNew
//	                Member is written                                           joinServer
//	Member          it gets its quota, and counts as the others do              admit
//	Joining, lost   the home notes it as Left; Left is written                  leave
//
// The home decides between Member and Left. A server that is a Member there, and is lost before the
// annotation says so, is lost data, although nothing may have been there yet.

// judgeJoined puts the servers that joined beside those on which the index was made, and finds
// those that may join.
func (s *scope) judgeJoined(joined map[uint16]decision.Joined, observed []memoryObserved, podName func(uint16) string) {
	if !s.verdict.recorded {
		return
	}
	of := func(state decision.JoinState) []memoryServer {
		some := map[uint16]uint64{}
		for id, j := range joined {
			if j.State == state {
				some[id] = j.Incarnation
			}
		}
		return judgeMemory(some, nil, observed, nil, podName).servers
	}
	for _, o := range observed {
		_, known := joined[o.id]
		made := slices.ContainsFunc(s.verdict.servers, func(m memoryServer) bool { return m.id == o.id })
		if o.answered && !o.gone && !known && !made {
			s.candidates = append(s.candidates, memoryServer{id: o.id, pod: o.pod, incarnation: o.incarnation, state: dmv1.ServerJoining})
		}
	}
	s.verdict.servers = append(s.verdict.servers, of(decision.Member)...) // behind the home
	s.joining = of(decision.Joining)
}

// joinMemory lets memory servers join that are new in the index's pools.
func (r *Reconciler) joinMemory(ctx context.Context, s *scope) error {
	if !s.made() || decision.Loading(s.index) {
		return nil
	}
	if err := r.chooseJoining(ctx, s); err != nil {
		return err
	}
	var waits []string
	var failed outcome.List
	failed.Add(r.renewJoined(ctx, s))
	for _, m := range s.joining {
		wait, err := r.joinServer(ctx, s, m)
		failed.Add(err)
		if wait == "" && err != nil {
			wait = "it is tried again"
		}
		if wait != "" {
			waits = append(waits, names([]memoryServer{{id: m.id, pod: m.pod}})+" joins the index: "+wait)
		}
	}
	s.joins = strings.Join(waits, "; ")
	return failed.Err()
}

// chooseJoining writes down which servers join, before anything is written to them.
func (r *Reconciler) chooseJoining(ctx context.Context, s *scope) error {
	of := map[int][]int{}
	for _, m := range s.candidates {
		p, pod, d := s.memoryPod(m)
		home, _, first := s.memoryPod(s.verdict.servers[0])
		is, _ := podstate.Ready(pod)
		switch {
		case !is || d == nil || first == nil || d.Draining || d.ChunkBytes != first.ChunkBytes:
			continue // it does not answer yet, or never can
		case home == nil || d.ChunksTotal-min(d.ChunksTotal, d.ChunksGranted) < max(1, min(quota(p.spec, d), d.ChunksTotal)):
			continue // others have it
		}
		ordinal, id := build.MemoryServerVolume(m.id)
		of[ordinal] = append(of[ordinal], id)
		s.joining = append(s.joining, m)
	}
	if len(of) == 0 {
		return nil
	}
	for ordinal, ids := range of {
		if err := volume.MarkUsed(ctx, &r.Base, s.memoryPools[ordinal].pool, s.memoryPools[ordinal].pods, ids); err != nil {
			return err
		}
	}
	joined, err := decision.JoinedTo(s.index)
	if err != nil {
		return err
	}
	joined = maps.Clone(joined)
	if joined == nil {
		joined = map[uint16]decision.Joined{}
	}
	for _, m := range s.joining {
		if _, known := joined[m.id]; !known {
			joined[m.id] = decision.Joined{Incarnation: m.incarnation, State: decision.Joining}
		}
	}
	return r.writeJoined(ctx, s, joined)
}

func (r *Reconciler) writeJoined(ctx context.Context, s *scope, joined map[uint16]decision.Joined) error {
	text, err := json.Marshal(joined)
	if err != nil {
		return err
	}
	return r.Annotate(ctx, s.index, map[string]string{dmv1.AnnotationJoined: string(text)})
}

// turn writes down how far a server is.
func (r *Reconciler) turn(ctx context.Context, s *scope, m memoryServer, state decision.JoinState, reason, note string) error {
	joined, err := decision.JoinedTo(s.index)
	if err != nil {
		return err
	}
	joined[m.id] = decision.Joined{Incarnation: m.incarnation, State: state}
	if err := r.writeJoined(ctx, s, joined); err != nil {
		return err
	}
	r.Events.Eventf(s.index, nil, corev1.EventTypeNormal, reason, report.Numbered("Join", uint64(m.id)), "memory server %d (pod %s) %s", m.id, m.pod, note)
	return nil
}

// joinServer brings a server further that joins. It says what is waited for.
func (r *Reconciler) joinServer(ctx context.Context, s *scope, m memoryServer) (wait string, err error) {
	identity := decision.Identity(s.index)
	ordinal, _ := build.MemoryServerVolume(m.id)
	server := &rpcv1.JoinedServer{Id: uint32(m.id), Incarnation: m.incarnation, Provider: s.transports()[ordinal]}
	server.Control, server.Copies = s.addressesOf(m)
	_, _, described := s.memoryPod(m)
	switch {
	case m.state == dmv1.ServerLost:
		return "", r.leave(ctx, s, m, server)
	case described == nil || m.state == dmv1.ServerUnreachable:
		return "it does not answer", nil
	case useOf(described, identity) == nil:
		return "it has not admitted the index yet", nil
	}
	note := func(state rpcv1.JoinedServer_State) (now rpcv1.JoinedServer_State, behind string, err error) {
		server.State = state
		err = r.atHome(s, func(home servers.Memory) error {
			if now, err = home.JoinServer(ctx, identity, server); err != nil {
				return err
			}
			list, err := home.ListServers(ctx, identity)
			behind = behindText(list.GetBehind())
			return err
		})
		return now, behind, err
	}
	now, behind, err := note(rpcv1.JoinedServer_JOINING)
	switch {
	case errors.Is(err, servers.ErrLeft):
		return "", r.turn(ctx, s, m, decision.Left, "MemoryLeft", "left the index before it held anything")
	case errors.Is(err, servers.ErrNotOffered):
		return "the home memory server runs an image that knows nothing of servers that join: change the image of the memory pool", nil
	case err != nil || behind != "":
		return behind, err
	}
	if now != rpcv1.JoinedServer_MEMBER {
		if _, behind, err = note(rpcv1.JoinedServer_MEMBER); err != nil || behind != "" {
			return behind, err
		}
	}
	if err := r.fenceAtNew(ctx, s, m); err != nil {
		return "", err
	}
	return "its quota is being raised", r.turn(ctx, s, m, decision.Member, "MemoryJoined", "joined the index")
}

// behindText says which clients do not reach a server that joins; empty if all do.
func behindText(behind []*rpcv1.ClientUse) string {
	if len(behind) == 0 {
		return ""
	}
	var list []string
	for _, c := range behind {
		list = append(list, cmp.Or(c.Name, fmt.Sprintf("client %d", c.Client)))
	}
	return fmt.Sprintf("%s do not reach it yet; if that lasts, their image does not know how, or the network is in the way", report.Listed(list))
}

// fenceAtNew fences at a server that joins the clients that it knows and the home does not know to
// live. The server is asked first: who is in its list registered at the home before.
func (r *Reconciler) fenceAtNew(ctx context.Context, s *scope, m memoryServer) error {
	identity := decision.Identity(s.index)
	p, pod, _ := s.memoryPod(m)
	return serverpod.WithMemory(&r.Base, pod, p.authority, func(joining servers.Memory) error {
		there, err := joining.ListClients(ctx, identity)
		if err != nil {
			return err
		}
		alive := map[uint32]bool{}
		err = r.atHome(s, func(home servers.Memory) error {
			list, err := home.ListClients(ctx, identity)
			for _, c := range list {
				alive[c.Client] = !c.Fenced
			}
			return err
		})
		if err != nil {
			return err
		}
		var ids []uint32
		for _, c := range there {
			if !alive[c.Client] {
				ids = append(ids, c.Client) // again if it is fenced: until that is complete
			}
		}
		for some := range slices.Chunk(ids, servers.MaxFence) {
			if err := joining.Fence(ctx, identity, some); err != nil {
				return err
			}
		}
		return nil
	})
}

// leave gives a server up that was lost before it held anything.
func (r *Reconciler) leave(ctx context.Context, s *scope, m memoryServer, server *rpcv1.JoinedServer) error {
	server.State = rpcv1.JoinedServer_LEFT
	err := r.atHome(s, func(home servers.Memory) error {
		_, err := home.JoinServer(ctx, decision.Identity(s.index), server)
		return err
	})
	if errors.Is(err, servers.ErrInUse) {
		return r.turn(ctx, s, m, decision.Member, "MemoryJoined", "joined the index")
	}
	if err != nil && !errors.Is(err, servers.ErrNotOffered) {
		return err
	}
	return r.turn(ctx, s, m, decision.Left, "MemoryLeft", "left the index before it held anything: "+m.why)
}
