//env:real calls of gRPC are of the machine

package keeper

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/control"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// pod is a memory server that reports as a pod.
type pod struct {
	rpcv1.UnimplementedVolumeServer
	name string
}

func (p pod) Report(context.Context, *rpcv1.ReportVolumeRequest) (*rpcv1.ReportVolumeReply, error) {
	return control.ReportOut(volumes.Report{Proc: volumes.Proc{Pod: p.name, Process: 1}}), nil
}

// TestReportOfAnother: what answers at the address of a pod counts only if it says that it is that
// pod.
func TestReportOfAnother(t *testing.T) {
	for name, number := range map[string]uint64{"pod-a": 1, "pod-b": 0} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		rpcv1.RegisterVolumeServer(s, pod{name: name})
		go s.Serve(l)
		k := New(Config{
			Volume: 1, Copies: 1, Suspect: time.Minute, Look: time.Minute, Logger: slog.New(slog.DiscardHandler), Make: func() error { return nil },
			Pods: func() []Pod { return []Pod{{Name: "pod-a", Control: l.Addr().String()}} },
		})
		k.step(t.Context())
		if v, status, _ := k.View(); v.Number != number {
			t.Errorf("%s answers: view %v, %s", name, v, status)
		}
		for _, c := range k.conns {
			c.Close()
		}
		s.Stop()
	}
}
