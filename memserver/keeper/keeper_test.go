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

// silentPrimary is both memory servers of a volume; the primary, pod-a, does not answer.
type silentPrimary struct {
	rpcv1.UnimplementedVolumeServer
	obeyed uint64 // the view that the backup was told last
}

func (s *silentPrimary) Report(ctx context.Context, q *rpcv1.ReportVolumeRequest) (*rpcv1.ReportVolumeReply, error) {
	if q.Pod == "pod-a" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return control.ReportOut(volumes.Report{Proc: volumes.Proc{Pod: q.Pod, Process: 1}, Role: volumes.Backup, View: volumes.View{Number: 2}, Misses: time.Minute}), nil
}

func (s *silentPrimary) Obey(_ context.Context, q *rpcv1.ObeyViewRequest) (*rpcv1.ObeyViewReply, error) {
	s.obeyed = q.View.Number
	return &rpcv1.ObeyViewReply{}, nil
}

// TestToldAtOnce: the backup hears of the view that names it in the look that recorded it. The
// primary, which does not answer, is not waited for again before that.
func TestToldAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, both := grpc.NewServer(), &silentPrimary{}
	rpcv1.RegisterVolumeServer(s, both)
	go s.Serve(l)
	k := New(Config{
		Volume: 1, Copies: 2, Suspect: 100 * time.Millisecond, Look: time.Minute, Logger: slog.New(slog.DiscardHandler), Make: func() error { return nil },
		Pods: func() []Pod {
			return []Pod{{Name: "pod-a", Control: l.Addr().String()}, {Name: "pod-b", Control: l.Addr().String()}}
		},
	})
	k.record = volumes.View{Number: 2, Primary: volumes.Proc{Pod: "pod-a", Process: 1}, Backup: volumes.Proc{Pod: "pod-b", Process: 1}}
	k.memory = k.memory.Silent("pod-a", -time.Minute)
	k.step(t.Context())
	for _, c := range k.conns {
		c.Close()
	}
	s.Stop()
	if v, status, _ := k.View(); v.Number != 3 || v.Primary.Pod != "pod-b" || both.obeyed != 3 {
		t.Errorf("view %v, %s; the backup was told of view %d", v, status, both.obeyed)
	}
}
