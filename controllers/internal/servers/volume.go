package servers

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Volume is a memory server as a copy of a volume (package volumes). Volumes are numbered as in
// global addresses of one pool, from 1 on.
type Volume interface {
	// Report asks what the process is for its volume. ErrNotOffered: it is of an older version,
	// which has the only copy of its volume.
	Report(ctx context.Context, volume int, pod string) (VolumeReport, error)
	// Obey tells of a recorded view and of where all copies are. It may take longer than the call.
	Obey(ctx context.Context, volume int, v volumes.View, copies []VolumeCopy) error
	// Join lets a copy join the primary of a view. mirror is where the copy takes changes.
	Join(ctx context.Context, volume int, view uint64, copy volumes.Proc, mirror string, bytesPerSecond uint64) error
	// Stop makes the primary of a view ready to be replaced by its backup.
	Stop(ctx context.Context, volume int, view uint64) error
	Close()
}

// VolumeCopy is where the control service of a copy is.
type VolumeCopy struct{ Pod, Control string }

// VolumeReport is what a process says of itself and of its copies.
type VolumeReport struct {
	volumes.Report
	Percent     int    // of the memory that was sent to the joining copy
	Lag         uint64 // bytes of changes that a copy is not known to have
	Differences uint64
	Mirror      string // host:port as the process listens; empty = it cannot be a copy
	Incarnation uint64 // 0 = it has no content
	Identity    string // that its certificate says; empty = none
	Problem     string // that it has with a copy, or as a copy; empty = none
	// fingerprints of the authorities that it trusts, and the one that signed its certificate
	Trusted [][]byte
	Signer  []byte
}

// Limits of calls about volumes. A report is asked for every moment, and says how long others were
// not heard. A backup that opens waits for a second and more, and goes on if nobody waits for it.
const (
	reportLimit = time.Second
	obeyLimit   = 3 * time.Second
)

type volume struct {
	client rpcv1.VolumeClient
	done   func()
	pod    string
}

// Volume implements Dialer.
func (g *GRPC) Volume(t Target) (Volume, error) {
	conn, err := g.dial(t)
	if err != nil {
		return nil, err
	}
	return &volume{rpcv1.NewVolumeClient(conn), func() { g.giveBack(conn) }, t.Pod}, nil
}

func (v *volume) Close() { v.done() }

func (v *volume) Report(ctx context.Context, number int, pod string) (VolumeReport, error) {
	r, err := call(ctx, reportLimit, v.pod, "ask for the role of memory server", v.client.Report,
		&rpcv1.ReportVolumeRequest{Volume: uint32(number), Pod: pod}, map[codes.Code]error{codes.Unimplemented: ErrNotOffered})
	if err != nil {
		return VolumeReport{}, err
	}
	role := volumes.Role(r.GetRole() - rpcv1.ReportVolumeReply_JOINING)
	if r.GetRole() < rpcv1.ReportVolumeReply_JOINING || role > volumes.Replaced {
		return VolumeReport{}, fmt.Errorf("ask for the role of memory server %s: its role %v is not known to this version: update the operator", v.pod, r.GetRole())
	}
	return VolumeReport{
		Report: volumes.Report{Proc: procOf(r.GetProcess()), First: r.GetFirst(), Role: role, View: viewOf(r.GetView()), Source: procOf(r.GetSource()), Was: procOf(r.GetWas()), MayLack: r.GetMayLack(), Joins: procOf(r.GetJoins()),
			Waits: r.GetWaits(), InSync: r.GetInSync(), Misses: time.Duration(r.GetMissesMilliseconds()) * time.Millisecond},
		Percent: int(min(r.GetPercent(), 100)), Lag: r.GetLagBytes(), Differences: r.GetDifferences(), Mirror: r.GetMirror(), Incarnation: r.GetIncarnation(),
		Identity: r.GetIdentity(), Problem: r.GetProblem(), Trusted: r.GetTrustedAuthorities(), Signer: r.GetCertificateSigner(),
	}, nil
}

func (v *volume) Obey(ctx context.Context, number int, view volumes.View, copies []VolumeCopy) error {
	q := &rpcv1.ObeyViewRequest{Volume: uint32(number), View: &rpcv1.VolumeView{
		Number: view.Number, Primary: sent(view.Primary), Backup: sent(view.Backup), Earlier: sent(view.Earlier)}}
	for _, c := range copies {
		q.Copies = append(q.Copies, &rpcv1.VolumeCopy{Pod: c.Pod, Control: c.Control})
	}
	_, err := call(ctx, obeyLimit, v.pod, fmt.Sprintf("tell of view %v memory server", view), v.client.Obey, q, nil)
	return err
}

func (v *volume) Join(ctx context.Context, number int, view uint64, copy volumes.Proc, mirror string, bytesPerSecond uint64) error {
	_, err := call(ctx, callLimit, v.pod, fmt.Sprintf("let %v join memory server", copy), v.client.Join,
		&rpcv1.JoinCopyRequest{Volume: uint32(number), View: view, Copy: sent(copy), Mirror: mirror, BytesPerSecond: bytesPerSecond}, nil)
	return err
}

func (v *volume) Stop(ctx context.Context, number int, view uint64) error {
	_, err := call(ctx, callLimit, v.pod, fmt.Sprintf("stop, in view %d, memory server", view), v.client.Stop,
		&rpcv1.StopPrimaryRequest{Volume: uint32(number), View: view}, nil)
	return err
}

func procOf(p *rpcv1.VolumeProcess) volumes.Proc {
	return volumes.Proc{Pod: p.GetPod(), Process: p.GetProcess()}
}

func viewOf(v *rpcv1.VolumeView) volumes.View {
	return volumes.View{Number: v.GetNumber(), Primary: procOf(v.GetPrimary()), Backup: procOf(v.GetBackup()), Earlier: procOf(v.GetEarlier())}
}

// sent is nil for nobody.
func sent(p volumes.Proc) *rpcv1.VolumeProcess {
	if p == (volumes.Proc{}) {
		return nil
	}
	return &rpcv1.VolumeProcess{Pod: p.Pod, Process: p.Process}
}
