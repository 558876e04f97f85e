package serverstest

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// SetBehind makes clients of these names not follow when servers join.
func (f *Fleet) SetBehind(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = names
}

// JoinedAt are the addresses of a server that joined an index, as its home has them.
func (f *Fleet) JoinedAt(uid, index string, id uint32) (addresses []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.memory[f.holderLocked(uid)]; m != nil && m.indexes[index] != nil {
		for _, s := range m.indexes[index].joined.Servers {
			if s.Id == id {
				addresses = append([]string{s.Control}, s.Copies...)
			}
		}
	}
	return addresses
}

// Joined are the servers that joined an index, as its home has them: "2 MEMBER".
func (f *Fleet) Joined(uid, index string) (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.memory[f.holderLocked(uid)]; m != nil && m.indexes[index] != nil {
		for _, s := range m.indexes[index].joined.Servers {
			list = append(list, fmt.Sprintf("%d %v", s.Id, s.State))
		}
	}
	return list
}

func (c *memoryClient) JoinServer(_ context.Context, index string, s *rpcv1.JoinedServer) (now rpcv1.JoinedServer_State, err error) {
	err = c.with(func(m *memory) error {
		if c.f.Older {
			return servers.ErrNotOffered
		}
		a, err := m.admitted(index, c.t.Pod)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(a.joined.Servers, func(o *rpcv1.JoinedServer) bool { return o.Id == s.Id })
		if at < 0 {
			if s.State == rpcv1.JoinedServer_MEMBER {
				return servers.ErrLeft
			}
			a.joined.Servers = append(a.joined.Servers, proto.CloneOf(s))
		} else {
			was := a.joined.Servers[at]
			if len(s.Copies) > 0 && was.Incarnation == s.Incarnation {
				was.Control, was.Copies = s.Control, slices.Clone(s.Copies)
			}
			switch now = was.State; {
			case was.Incarnation != s.Incarnation, now == rpcv1.JoinedServer_MEMBER && s.State == rpcv1.JoinedServer_LEFT:
				return servers.ErrInUse
			case now == s.State, now == rpcv1.JoinedServer_MEMBER:
				return nil
			case now == rpcv1.JoinedServer_LEFT:
				return servers.ErrLeft
			}
			was.State = s.State
		}
		a.joined.Version++
		now = s.State
		c.f.Calls = append(c.f.Calls, fmt.Sprintf("join %d %v", s.Id, s.State))
		return nil
	})
	return now, err
}

func (c *memoryClient) ListServers(_ context.Context, index string) (list *rpcv1.ListServersReply, err error) {
	err = c.with(func(m *memory) error {
		if c.f.Older {
			return servers.ErrNotOffered
		}
		a, err := m.admitted(index, c.t.Pod)
		if err != nil {
			return err
		}
		list = proto.CloneOf(&a.joined)
		for _, use := range a.clients {
			if !use.Fenced && slices.Contains(c.f.behind, use.Name) {
				list.Behind = append(list.Behind, &rpcv1.ClientUse{Client: use.Client, Name: use.Name})
			}
		}
		return nil
	})
	return list, err
}
