package index

import (
	"context"
	"errors"
	"slices"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// Where clients of an index find its memory servers. Of those that it was made on index.json says
// it, of those that joined since the home's list. Both name the pods of a volume's view, the
// primary first: a client that knows one of them hears of the next view there. So a new pod is
// named while it is the backup, before the primary stops.

// addressesOf are the control addresses of a server: of the pod that answers, and of the others
// that the view of its volume names.
func (s *scope) addressesOf(m memoryServer) (control string, copies []string) {
	ordinal, volume := build.MemoryServerVolume(m.id)
	pool := build.MemoryPoolOf(s.index, s.index.Spec.MemoryPools[ordinal])
	view := s.memoryPools[ordinal].record.Views[volume]
	if view.Number == 0 {
		return build.Control(m.pod, pool, s.index.Namespace), nil
	}
	for _, named := range view.Named() {
		copies = append(copies, build.Control(named.Pod, pool, s.index.Namespace))
	}
	return copies[0], slices.Compact(copies)[1:]
}

// renewJoined tells the home of other addresses of servers that joined. A list of addresses that
// has one is not taken for one of an operator that knows no copies, so the address that the home
// has stays in it, where the server has no other.
func (r *Reconciler) renewJoined(ctx context.Context, s *scope) error {
	var moved []memoryServer
	for _, m := range s.verdict.servers {
		ordinal, volume := build.MemoryServerVolume(m.id)
		if _, is := s.memoryPools[ordinal].record.Views[volume]; is && s.joinedMember(m.id) {
			moved = append(moved, m)
		}
	}
	if len(moved) == 0 {
		return nil
	}
	identity, transports := decision.Identity(s.index), s.transports()
	return r.atHome(s, func(home servers.Memory) error {
		list, err := home.ListServers(ctx, identity)
		if err != nil {
			return err
		}
		for _, m := range moved {
			at := slices.IndexFunc(list.GetServers(), func(j *rpcv1.JoinedServer) bool { return j.GetId() == uint32(m.id) })
			if at < 0 {
				continue // joinServer tells
			}
			noted := list.GetServers()[at]
			control, copies := s.addressesOf(m)
			if len(copies) == 0 && control != noted.GetControl() {
				copies = []string{noted.GetControl()}
			}
			if control == noted.GetControl() && (len(copies) == 0 || slices.Equal(copies, noted.GetCopies())) {
				continue
			}
			ordinal, _ := build.MemoryServerVolume(m.id)
			_, err := home.JoinServer(ctx, identity, &rpcv1.JoinedServer{
				Id: uint32(m.id), State: rpcv1.JoinedServer_MEMBER, Incarnation: m.incarnation, Provider: transports[ordinal], Control: control, Copies: copies})
			if errors.Is(err, servers.ErrInUse) {
				return outcome.WaitFor(dmv1.ReasonMemoryJoining, "the home memory server does not note where "+names([]memoryServer{{id: m.id, pod: m.pod}})+" is now: change the image of the memory pool to a newer one", outcome.RequeueSoon)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// joinedMember reports whether a server joined the index and is a member of it.
func (s *scope) joinedMember(id uint16) bool {
	joined, err := decision.JoinedTo(s.index)
	return err == nil && joined[id].State == decision.Member
}
