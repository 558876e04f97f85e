package control

import (
	"errors"
	"fmt"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/memserver/ledger"
	"github.com/dmindex/dmindex/pkg/volumes"
)

// Views and reports of volumes, between pkg/volumes and service Volume.

// MaxPod is the length of the longest name of a pod in a view, and of an address.
const MaxPod = 253

var roles = map[volumes.Role]rpcv1.ReportVolumeReply_Role{
	volumes.Joining: rpcv1.ReportVolumeReply_JOINING, volumes.Backup: rpcv1.ReportVolumeReply_BACKUP, volumes.Opening: rpcv1.ReportVolumeReply_OPENING,
	volumes.Primary: rpcv1.ReportVolumeReply_PRIMARY, volumes.Stopped: rpcv1.ReportVolumeReply_STOPPED, volumes.Replaced: rpcv1.ReportVolumeReply_REPLACED,
}

// ProcOut returns a process as the service has it; nil for nobody.
func ProcOut(p volumes.Proc) *rpcv1.VolumeProcess {
	if p == (volumes.Proc{}) {
		return nil
	}
	return &rpcv1.VolumeProcess{Pod: p.Pod, Process: p.Process}
}

// ProcIn returns the process that a request names.
func ProcIn(p *rpcv1.VolumeProcess) (volumes.Proc, error) {
	if n := len(p.GetPod()); n > MaxPod {
		return volumes.Proc{}, fmt.Errorf("%w: a pod's name of %d bytes; at most %d are possible", ledger.ErrInvalid, n, MaxPod)
	}
	return procIn(p), nil
}

func procIn(p *rpcv1.VolumeProcess) volumes.Proc {
	return volumes.Proc{Pod: p.GetPod(), Process: p.GetProcess()}
}

// ViewOut returns a view as the service has it.
func ViewOut(v volumes.View) *rpcv1.VolumeView {
	return &rpcv1.VolumeView{Number: v.Number, Primary: ProcOut(v.Primary), Backup: ProcOut(v.Backup), Earlier: ProcOut(v.Earlier)}
}

// ViewIn returns the view of a request. It has a number and a primary.
func ViewIn(v *rpcv1.VolumeView) (view volumes.View, err error) {
	view = viewIn(v)
	var errs [3]error
	for i, p := range []*rpcv1.VolumeProcess{v.GetPrimary(), v.GetBackup(), v.GetEarlier()} {
		_, errs[i] = ProcIn(p)
	}
	if err = errors.Join(errs[:]...); err == nil && (view.Number == 0 || view.Primary.Pod == "") {
		err = fmt.Errorf("%w: view %d with primary %v: it needs a number and a primary", ledger.ErrInvalid, view.Number, view.Primary)
	}
	return view, err
}

func viewIn(v *rpcv1.VolumeView) volumes.View {
	return volumes.View{Number: v.GetNumber(), Primary: procIn(v.GetPrimary()), Backup: procIn(v.GetBackup()), Earlier: procIn(v.GetEarlier())}
}

// ReportOut returns what a process says of itself, as the service has it.
func ReportOut(r volumes.Report) *rpcv1.ReportVolumeReply {
	return &rpcv1.ReportVolumeReply{
		Process: ProcOut(r.Proc), First: r.First, Role: roles[r.Role], View: ViewOut(r.View), Source: ProcOut(r.Source), Was: ProcOut(r.Was), MayLack: r.MayLack,
		Joins: ProcOut(r.Joins), Waits: r.Waits, InSync: r.InSync, MissesMilliseconds: uint32(min(max(r.Misses, 0), time.Hour) / time.Millisecond),
	}
}

// ReportIn returns what a process says of itself.
func ReportIn(r *rpcv1.ReportVolumeReply) (volumes.Report, error) {
	report := volumes.Report{
		Proc: procIn(r.GetProcess()), First: r.GetFirst(), View: viewIn(r.GetView()), Source: procIn(r.GetSource()), Was: procIn(r.GetWas()), MayLack: r.GetMayLack(), Joins: procIn(r.GetJoins()),
		Waits: r.GetWaits(), InSync: r.GetInSync(), Misses: time.Duration(r.GetMissesMilliseconds()) * time.Millisecond,
	}
	for role, name := range roles { //env:real one of them fits
		if name == r.GetRole() {
			report.Role = role
			return report, nil
		}
	}
	return volumes.Report{}, fmt.Errorf("the process %v of a volume says that it is %v, which this program does not know", report.Proc, r.GetRole())
}
