package servers

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/volumes"
)

// TestVolume: a real memory server as the only copy of its volume. It is the primary without a
// view, and takes its pod's name from the first who asks; it obeys a first view, and no lower one.
func TestVolume(t *testing.T) {
	a := newAuthority(t)
	target := Target{Namespace: "ns", Pod: "pool-0", UID: "uid-0", Address: memoryServer(t, a), Name: "pool-0.pool.ns.svc", Authority: a}
	v, err := NewGRPC().Volume(target)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	ctx := t.Context()
	r, err := v.Report(ctx, 1, target.UID)
	if err != nil || r.Role != volumes.Primary || r.Proc.Pod != target.UID || r.Proc.Process == 0 || r.View.Number != 0 || r.Incarnation == 0 {
		t.Fatalf("before the first view: %+v, %v", r, err)
	}
	if _, err := v.Report(ctx, 2, target.UID); err == nil {
		t.Error("it reports for volume 2, and holds volume 1")
	}
	first := volumes.View{Number: 1, Primary: volumes.Proc{Pod: target.UID}}
	copies := []VolumeCopy{{Pod: target.UID, Control: "pool-0.pool.ns.svc:7471"}}
	for range 2 { // it can be repeated
		if err := v.Obey(ctx, 1, first, copies); err != nil {
			t.Errorf("the first view: %v", err)
		}
	}
	other := volumes.Proc{Pod: "uid-1", Process: 1}
	next := volumes.View{Number: 3, Primary: volumes.Proc{Pod: target.UID, Process: r.Proc.Process}, Earlier: other}
	if err := v.Obey(ctx, 1, next, copies); err != nil {
		t.Errorf("a later view: %v", err)
	}
	if err := v.Obey(ctx, 1, volumes.View{Number: 2, Primary: other}, copies); err == nil {
		t.Error("view 2 is obeyed after view 3")
	}
	if r, err := v.Report(ctx, 1, target.UID); err != nil || r.Role != volumes.Primary || r.View != next || r.Misses != 0 || r.Joins != (volumes.Proc{}) {
		t.Errorf("after view %v: %+v, %v", next, r, err)
	}
	if err := v.Stop(ctx, 1, next.Number); err == nil {
		t.Error("a primary without a backup stops")
	}
	if err := v.Join(ctx, 1, 2, other, "pool-1.pool.ns.svc:7473", 0); err == nil {
		t.Error("a copy joins in a view that is over")
	}
}
