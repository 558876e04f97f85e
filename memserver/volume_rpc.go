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
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// topicView is what calls wait for that wait for a view (waits).
const topicView = "\x00view"

const (
	maxCopies = 8   // of a volume, in a request
	maxPod    = 253 // bytes of a pod's name, and of an address
)

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
	reply := &rpcv1.ReportVolumeReply{
		Process: procOut(r.Proc), Role: rolesOut[r.Role], View: viewOut(r.View), Source: procOut(r.Source),
		Joins: procOut(r.Joins), Waits: r.Waits, InSync: r.InSync, MissesMilliseconds: uint32(min(max(r.Misses, 0), time.Hour) / time.Millisecond),
		Version: v.server.control.version,
	}
	if v.server.control.opened.Load() {
		reply.Incarnation = v.server.region.incarnation
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
	view, err := viewIn(q.View)
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
	now := v.member.Report()
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
	if view != now.View || now.Role == volumes.Opening {
		err = v.member.Obey(view)
	}
	now = v.member.Report()
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
	v.server.log.Info("a view was obeyed", "view", view.Number, "primary", view.Primary.String(), "backup", view.Backup.String(), "role", now.Role.String())
	if now.Role == volumes.Replaced {
		v.server.fail(ErrReplaced)
	}
	return nil
}

// Join implements rpcv1.VolumeServer.
func (v *volume) Join(_ context.Context, q *rpcv1.JoinCopyRequest) (*rpcv1.JoinCopyReply, error) {
	if err := v.check(q.Volume); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.FailedPrecondition, "this program sends its changes to no copy")
}

// Stop implements rpcv1.VolumeServer.
func (v *volume) Stop(_ context.Context, q *rpcv1.StopPrimaryRequest) (*rpcv1.StopPrimaryReply, error) {
	if err := v.check(q.Volume); err != nil {
		return nil, err
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
		reply.View, reply.Copies = viewOut(v.told), v.stored.Copies
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
	for _, refusal := range []error{volumes.ErrOldView, volumes.ErrNoContent, volumes.ErrReplaced, volumes.ErrNotPrimary, volumes.ErrPromised} {
		if errors.Is(err, refusal) {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
	}
	return status.Error(codes.Unavailable, err.Error()+"; ask again")
}

// rolesOut are the roles as the RPC names them.
var rolesOut = map[volumes.Role]rpcv1.ReportVolumeReply_Role{
	volumes.Joining: rpcv1.ReportVolumeReply_JOINING, volumes.Backup: rpcv1.ReportVolumeReply_BACKUP, volumes.Opening: rpcv1.ReportVolumeReply_OPENING,
	volumes.Primary: rpcv1.ReportVolumeReply_PRIMARY, volumes.Stopped: rpcv1.ReportVolumeReply_STOPPED, volumes.Replaced: rpcv1.ReportVolumeReply_REPLACED,
}

// procOut is a process as the RPC has it; nil for nobody.
func procOut(p volumes.Proc) *rpcv1.VolumeProcess {
	if p == (volumes.Proc{}) {
		return nil
	}
	return &rpcv1.VolumeProcess{Pod: p.Pod, Process: p.Process}
}

func viewOut(v volumes.View) *rpcv1.VolumeView {
	return &rpcv1.VolumeView{Number: v.Number, Primary: procOut(v.Primary), Backup: procOut(v.Backup), Earlier: procOut(v.Earlier)}
}

func procIn(p *rpcv1.VolumeProcess) (volumes.Proc, error) {
	if len(p.GetPod()) > maxPod {
		return volumes.Proc{}, fmt.Errorf("%w: a pod's name of %d bytes; at most %d are possible", ledger.ErrInvalid, len(p.GetPod()), maxPod)
	}
	return volumes.Proc{Pod: p.GetPod(), Process: p.GetProcess()}, nil
}

func viewIn(v *rpcv1.VolumeView) (view volumes.View, err error) {
	view.Number = v.GetNumber()
	var errs [3]error
	view.Primary, errs[0] = procIn(v.GetPrimary())
	view.Backup, errs[1] = procIn(v.GetBackup())
	view.Earlier, errs[2] = procIn(v.GetEarlier())
	err = errors.Join(errs[:]...)
	if err == nil && (view.Number == 0 || view.Primary.Pod == "") {
		err = fmt.Errorf("%w: view %d with primary %v: it needs a number and a primary", ledger.ErrInvalid, view.Number, view.Primary)
	}
	return view, err
}

func checkCopies(all []*rpcv1.VolumeCopy) error {
	if len(all) > maxCopies {
		return fmt.Errorf("%w: %d copies; at most %d are possible", ledger.ErrInvalid, len(all), maxCopies)
	}
	for _, c := range all {
		if len(c.GetPod()) > maxPod || len(c.GetControl()) > maxPod {
			return fmt.Errorf("%w: a copy's pod or address is longer than %d bytes", ledger.ErrInvalid, maxPod)
		}
	}
	return nil
}
