//env:real gRPC runs each call on a goroutine of its own

package memserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/memserver/persist"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// topicView is what calls wait for that wait for a view (waits).
const topicView = "\x00view"

const maxCopies = 8 // of a volume, in a request

// check refuses calls that mean another volume.
func (v *volume) check(number uint32) error {
	if number != 0 && v.id != 0 && number != uint32(v.id) {
		return status.Errorf(codes.NotFound, "this process holds volume %d, not %d", v.id, number)
	}
	return nil
}

// Report implements rpcv1.VolumeServer.
func (v *volume) Report(_ context.Context, q *rpcv1.ReportVolumeRequest) (*rpcv1.ReportVolumeReply, error) {
	if err := v.check(q.Volume); err != nil {
		return nil, err
	}
	r := v.member.Report()
	if r.Proc.Pod == "" && r.Role == volumes.Joining && q.Pod != "" {
		// Its pod lost its memory, and its name with it. What it may become goes by that name.
		if err := v.remember(q.Pod, nil); err != nil {
			return nil, err
		}
		r = v.member.Report()
	}
	if r.Role == volumes.Primary && !v.server.control.opened.Load() {
		// Its content could not be opened, as with a port in use. It is told the view again as long
		// as it reports that it opens.
		r.Role = volumes.Opening
	}
	reply := control.ReportOut(r)
	reply.LagBytes, reply.Differences, reply.Mirror = v.lag(), differences.Load(), v.server.Addresses().Mirror
	reply.Version = v.server.control.version
	if r.Joins != (volumes.Proc{}) {
		reply.Percent = v.percent()
	}
	if f := v.server.control.files; f != nil {
		reply.TrustedAuthorities, reply.CertificateSigner = f.Trust()
		reply.Identity = f.Identity()
	}
	if r.Role == volumes.Primary || r.Role == volumes.Stopped || r.Role == volumes.Joining && r.Source == (volumes.Proc{}) {
		reply.Problem = v.problem.get()
	}
	if v.server.control.opened.Load() {
		reply.Incarnation = v.server.region.Incarnation
	}
	if r.Proc.Pod == "" { // nobody but the caller knows its name
		reply.Process.Pod = q.Pod
		if r.View.Number == 0 {
			reply.View.Primary = reply.Process
		}
	}
	return reply, nil
}

// Obey implements rpcv1.VolumeServer.
func (v *volume) Obey(_ context.Context, q *rpcv1.ObeyViewRequest) (*rpcv1.ObeyViewReply, error) {
	if err := v.check(q.Volume); err != nil {
		return nil, err
	}
	view, err := control.ViewIn(q.View)
	if err != nil {
		return nil, err
	}
	if err := checkCopies(q.Copies); err != nil {
		return nil, err
	}
	if err := v.obey(view, q.Copies); err != nil {
		return nil, volumeError(err)
	}
	return &rpcv1.ObeyViewReply{}, nil
}

// obey obeys a view and acts by it.
func (v *volume) obey(view volumes.View, copies []*rpcv1.VolumeCopy) error {
	now, begun := v.member.Report(), time.Now()
	pod := ""
	if now.View.Number == 0 && view.Number == 1 && now.Role == volumes.Primary {
		pod = view.Primary.Pod // of a server that was told none
	}
	if view.Number < now.View.Number {
		copies = nil
	}
	if err := v.remember(pod, copies); err != nil {
		return err
	}
	var err error
	if now.Role == volumes.Stopped && view.Primary.Pod == now.Proc.Pod && view.Backup == (volumes.Proc{}) && view.Number > now.View.Number {
		if err = v.server.readPersist(); err != nil {
			v.problem.set(err)
			return err
		}
	}
	if view != now.View || now.Role == volumes.Opening {
		err = v.member.Obey(view)
	}
	now = v.member.Report()
	if now.Role == volumes.Replaced {
		// also where the view was obeyed before, and where nothing is connected to this process
		// that would notice
		v.server.withdraw()
		defer v.server.fail(ErrReplaced)
	}
	if err == nil && now.Role == volumes.Primary {
		err = v.server.openContent()
	}
	if now.View != view && err == nil {
		err = fmt.Errorf("obey view %v: it is in view %v: %w", view, now.View, volumes.ErrOldView)
	}
	if err != nil {
		return err
	}
	v.mu.Lock()
	if view.Number >= v.told.Number {
		v.told = view
	}
	v.mu.Unlock()
	v.server.control.waits.changed(topicView)
	v.server.log.Info("a view was obeyed", "view", view.Number, "primary", view.Primary.String(), "backup", view.Backup.String(), "role", now.Role.String(), "took", time.Since(begun))
	return nil
}

// Join implements rpcv1.VolumeServer.
func (v *volume) Join(_ context.Context, q *rpcv1.JoinCopyRequest) (*rpcv1.JoinCopyReply, error) {
	if err := v.check(q.Volume); err != nil {
		return nil, err
	}
	p, err := control.ProcIn(q.Copy)
	switch {
	case err != nil:
		return nil, err
	case p.Pod == "" || p.Process == 0 || q.Mirror == "" || len(q.Mirror) > control.MaxPod:
		return nil, fmt.Errorf("%w: let %v at %q join: a process and an address are needed", ledger.ErrInvalid, p, q.Mirror)
	case !v.server.control.opened.Load() || v.primary == nil:
		return nil, status.Error(codes.FailedPrecondition, "this memory server sends its changes to nobody: that needs the fabric tcp alone")
	}
	v.pace.Store(q.BytesPerSecond)
	v.noteAddress(p, q.Mirror)
	if err := v.member.Join(q.View, p); err != nil {
		return nil, volumeError(err)
	}
	return &rpcv1.JoinCopyReply{}, nil
}

// Stop implements rpcv1.VolumeServer.
func (v *volume) Stop(_ context.Context, q *rpcv1.StopPrimaryRequest) (*rpcv1.StopPrimaryReply, error) {
	if err := v.check(q.Volume); err != nil {
		return nil, err
	}
	if !v.server.control.opened.Load() {
		return nil, volumeError(fmt.Errorf("stop in view %d: nothing is served: %w", q.View, volumes.ErrNotPrimary))
	}
	if err := v.member.Stop(q.View); err != nil {
		return nil, volumeError(err)
	}
	return &rpcv1.StopPrimaryReply{}, nil
}

// AwaitView implements rpcv1.VolumeServer.
func (v *volume) AwaitView(ctx context.Context, q *rpcv1.AwaitViewRequest) (*rpcv1.AwaitViewReply, error) {
	if err := v.check(q.Volume); err != nil {
		return nil, err
	}
	c := v.server.control
	waiting, cancel := context.WithTimeout(ctx, min(maxMapWait, time.Duration(q.WaitMilliseconds)*time.Millisecond))
	defer cancel()
	defer context.AfterFunc(c.stopping, cancel)()
	reply := &rpcv1.AwaitViewReply{}
	c.waits.until(waiting, topicView, func() (done bool) {
		v.mu.Lock()
		defer v.mu.Unlock()
		reply.View, reply.Copies = control.ViewOut(v.told), v.stored.Copies
		return v.told.Number > q.After
	})
	reply.Serves = c.opened.Load() && v.member.Role() == volumes.Primary && c.stopping.Err() == nil
	return reply, nil
}

// primary refuses calls of the memory's service where this process is not the primary.
func (c *service) primary(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !free[info.FullMethod] && !(c.opened.Load() && c.member.Executes()) {
		return nil, status.Errorf(codes.Unavailable, "this process is not the primary of its volume: it is %v, in view %d; ask another copy, or again",
			c.member.Role(), c.member.Report().View.Number)
	}
	return next(ctx, request)
}

// volumeError is the status of an error of a member: what the caller cannot repeat, and what it
// can.
func volumeError(err error) error {
	for _, refusal := range []error{volumes.ErrOldView, volumes.ErrNoContent, volumes.ErrReplaced, volumes.ErrNotPrimary, volumes.ErrPromised, persist.ErrMayLack} {
		if errors.Is(err, refusal) {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
	}
	return status.Error(codes.Unavailable, err.Error()+"; ask again")
}

func checkCopies(all []*rpcv1.VolumeCopy) error {
	if len(all) > maxCopies {
		return fmt.Errorf("%w: %d copies; at most %d are possible", ledger.ErrInvalid, len(all), maxCopies)
	}
	for _, c := range all {
		if len(c.GetPod()) > control.MaxPod || len(c.GetControl()) > control.MaxPod {
			return fmt.Errorf("%w: a copy's pod or address is longer than %d bytes", ledger.ErrInvalid, control.MaxPod)
		}
	}
	return nil
}
