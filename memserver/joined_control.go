package memserver

import (
	"context"
	"fmt"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
)

// JoinServer implements rpcv1.MemoryServer.
func (c *service) JoinServer(_ context.Context, r *rpcv1.JoinServerRequest) (*rpcv1.JoinServerReply, error) {
	s := r.GetServer()
	if s.GetId() > 1<<15-1 || s.GetState() > rpcv1.JoinedServer_LEFT {
		return nil, fmt.Errorf("%w: memory server %d in state %d", ledger.ErrInvalid, s.GetId(), s.GetState())
	}
	now, version, err := c.Core.Join(r.Index, ledger.JoinedServer{
		ID: uint16(s.GetId()), State: ledger.JoinState(s.GetState()), Control: s.GetControl(), Incarnation: s.GetIncarnation(), Provider: s.GetProvider(),
		Copies: s.GetCopies(),
	})
	if err != nil {
		return nil, err
	}
	c.Log.Info("a memory server joins", "index", r.Index, "server", s.Id, "control", s.Control, "state", rpcv1.JoinedServer_State(now).String())
	return &rpcv1.JoinServerReply{State: rpcv1.JoinedServer_State(now), Version: version}, nil
}

// ListServers implements rpcv1.MemoryServer.
func (c *service) ListServers(_ context.Context, r *rpcv1.ListServersRequest) (*rpcv1.ListServersReply, error) {
	version, all, behind, err := c.Core.Joined(r.Index, r.Client)
	if err != nil {
		return nil, err
	}
	reply := &rpcv1.ListServersReply{Version: version}
	for _, s := range all {
		reply.Servers = append(reply.Servers, &rpcv1.JoinedServer{
			Id: uint32(s.ID), State: rpcv1.JoinedServer_State(s.State), Control: s.Control, Incarnation: s.Incarnation, Provider: s.Provider,
			Copies: s.Copies,
		})
	}
	for _, b := range behind {
		reply.Behind = append(reply.Behind, &rpcv1.ClientUse{Client: b.Number, Name: b.Name})
	}
	return reply, nil
}
