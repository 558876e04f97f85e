package memserver

import (
	"context"
	"errors"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// TestServerIsNamed: a server that was told no pod takes its name with the first view, and keeps
// it.
func TestServerIsNamed(t *testing.T) {
	c := volumeConfig(t, t.TempDir(), "")
	for process := uint64(1); process <= 2; process++ {
		s, stop := start(t, c)
		v := asked(t, s.Addresses().Control, nil)
		wantReport(t, v, rpcv1.ReportVolumeReply_PRIMARY, "pod-a", process, process-1)
		must(v.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(process, "pod-a")}))
		r := must(v.Report(t.Context(), &rpcv1.ReportVolumeRequest{}))
		if r.Process.Pod != "pod-a" || r.View.Number != process || r.Role != rpcv1.ReportVolumeReply_PRIMARY {
			t.Errorf("it reports %v", r)
		}
		stop()
	}
}

// TestNameThatWasLost: a server that was told no pod learned its name with the first view, and lost
// it with its memory. It has it again before it joins.
func TestNameThatWasLost(t *testing.T) {
	s, stop := start(t, volumeConfig(t, t.TempDir(), ""))
	must(asked(t, s.Addresses().Control, nil).Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(1, "pod-a")}))
	stop()
	c := volumeConfig(t, t.TempDir(), "")
	s = must(New(c))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	v := asked(t, s.Addresses().Control, nil)
	wantReport(t, v, rpcv1.ReportVolumeReply_PRIMARY, "pod-a", 1, 0)
	must(v.Obey(t.Context(), &rpcv1.ObeyViewRequest{View: view(3, "pod-b")}))
	if err := <-ended; !errors.Is(err, ErrReplaced) {
		t.Fatalf("it ends with %v", err)
	}
	for range 2 {
		s, stop = start(t, c)
		must(asked(t, s.Addresses().Control, nil).Report(t.Context(), &rpcv1.ReportVolumeRequest{Pod: "pod-a"}))
		if self := s.volume.member.Self(); self.Pod != "pod-a" {
			t.Errorf("the process is %v, and no other one can send changes to it", self)
		}
		stop()
	}
}
