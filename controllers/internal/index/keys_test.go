package index

import (
	"strings"
	"testing"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

func authorityOf(t *testing.T) *pki.Authority {
	t.Helper()
	pair, err := pki.NewAuthority("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.ParseAuthority(pair)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestKeyNames: keys are digests unless the index shows them. A digest is the same in every look,
// in notes and in the map of the status, and another one for another index.
func TestKeyNames(t *testing.T) {
	scope := func(a *pki.Authority, show bool) *scope {
		s := &scope{index: &dmv1.DMIndex{}, authority: a}
		s.index.Spec.Security.ShowKeys = show
		return s
	}
	a, b := authorityOf(t), authorityOf(t)
	hidden := scope(a, false).keys()
	span := hidden.span([]byte("a"), []byte("m"))
	if strings.Contains(span, `"`) || span != scope(a, false).keys().span([]byte("a"), []byte("m")) || span == scope(b, false).keys().span([]byte("a"), []byte("m")) {
		t.Errorf("span %s", span)
	}
	if got := hidden.text(`keys ["a", "m") wait`); got != "keys "+span+" wait" {
		t.Errorf("%s; want the digests of %s", got, span)
	}
	var at dmv1.PartitionRange
	if hidden.start(&at, []byte("a")); at.Start != "" || !strings.Contains(span, "#"+at.Digest+",") {
		t.Errorf("%+v; want the digest of %s", at, span)
	}
	shown := scope(a, true).keys()
	if shown.start(&at, []byte("a")); at.Start != "YQ==" || shown.span([]byte("a"), nil) != `["a", end)` || shown.text(`["a", end)`) != `["a", end)` {
		t.Errorf("%+v", at)
	}
	// before there is an authority, nobody recognizes a key
	if got := scope(nil, false).keys().span([]byte("a"), nil); strings.Contains(got, `"`) {
		t.Error(got)
	}
}

// TestTakeOversHideKeys: an event that names keys names their digests.
func TestTakeOversHideKeys(t *testing.T) {
	var events operatortest.Recorder
	r := &Reconciler{Base: reconciler.Base{Events: &events}}
	s := withRanges(nil)
	s.index.Spec.Security.ShowKeys = false
	s.compute[0].described = &rpcv1.DescribeComputeReply{TakeOvers: []*rpcv1.TakeOver{{Start: []byte("customer"), Epoch: 7, Clients: []uint32{3}}},
		Ranges: []*rpcv1.OwnedRange{waitsForMemory("customer", "", 7)}}
	r.tellTakeOvers(t.Context(), s)
	r.tellFullPool(s)
	if all := strings.Join(events.Notes, "\n"); len(events.Notes) != 2 || strings.Contains(all, "customer") || !strings.Contains(all, s.keys().span([]byte("customer"), nil)) {
		t.Errorf("%q", events.Notes)
	}
}
