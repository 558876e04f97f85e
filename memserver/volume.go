//env:real gRPC runs each call on a goroutine of its own

package memserver

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// topicView is what calls wait for that wait for a view (waits).
const topicView = "\x00view"

// volume implements rpcv1.VolumeServer of a server that has no copy and cannot get one: it is the
// only primary of what it holds, in a view without a number.
type volume struct {
	rpcv1.UnimplementedVolumeServer
	id      uint16 // 0 = it was not said
	service *service
}

// check refuses calls that mean another volume.
func (v *volume) check(number uint32) error {
	if number != 0 && v.id != 0 && number != uint32(v.id) {
		return status.Errorf(codes.NotFound, "this process holds volume %d, not %d", v.id, number)
	}
	return nil
}

// Report implements rpcv1.VolumeServer.
func (v *volume) Report(_ context.Context, r *rpcv1.ReportVolumeRequest) (*rpcv1.ReportVolumeReply, error) {
	if err := v.check(r.Volume); err != nil {
		return nil, err
	}
	self := &rpcv1.VolumeProcess{Pod: r.Pod, Process: 1}
	return &rpcv1.ReportVolumeReply{
		Process: self, Role: rpcv1.ReportVolumeReply_PRIMARY, View: &rpcv1.VolumeView{Primary: self},
		Incarnation: v.service.region.incarnation, Version: v.service.version,
	}, nil
}

// AwaitView implements rpcv1.VolumeServer. No other view comes.
func (v *volume) AwaitView(ctx context.Context, r *rpcv1.AwaitViewRequest) (*rpcv1.AwaitViewReply, error) {
	if err := v.check(r.Volume); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, min(maxMapWait, time.Duration(r.WaitMilliseconds)*time.Millisecond))
	defer cancel()
	defer context.AfterFunc(v.service.stopping, cancel)()
	v.service.waits.until(waiting, topicView, func() (done bool) { return false })
	return &rpcv1.AwaitViewReply{View: &rpcv1.VolumeView{}, Serves: v.service.stopping.Err() == nil}, nil
}
