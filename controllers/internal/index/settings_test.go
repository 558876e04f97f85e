package index

import (
	"strings"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// TestSettingsRefusedEvents: settings that a server has not taken are told of once, and again when
// others are refused.
func TestSettingsRefusedEvents(t *testing.T) {
	var events operatortest.Recorder
	r := &Reconciler{Base: reconciler.Base{Events: &events, Logged: report.NewLogged()}}
	s := withRanges([]*rpcv1.OwnedRange{}, []*rpcv1.OwnedRange{})
	look := func(want int) {
		t.Helper()
		if r.tellSettings(s); len(events.Notes) != want {
			t.Fatalf("%d events, want %d: %q", len(events.Notes), want, events.Notes)
		}
	}
	look(0)
	s.compute[0].described.SettingsRefused = "maxConnections: 0 is not a number from 1 to 10000"
	look(1)
	look(1)
	if !strings.HasPrefix(events.Notes[0], dmv1.ReasonSettingsRefused+": pod x-compute-0 goes on with its former settings: maxConnections: 0") {
		t.Error(events.Notes[0])
	}
	s.compute[0].described.SettingsRefused = "tomorrow: this version does not know it"
	look(2)
	s.compute[1].described = nil // it did not answer
	look(2)
}
