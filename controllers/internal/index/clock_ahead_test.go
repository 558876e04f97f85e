package index

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/passwords"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
)

// TestStampsOfAClockThatWasAhead: they count from when they were stored, and nothing waits until
// the clock gets there.
func TestStampsOfAClockThatWasAhead(t *testing.T) {
	left := &scope{index: &dmv1.DMIndex{}, compute: []computeServer{{pod: operatortest.AheadPod(dmv1.AnnotationLeaving)}}}
	left.observe(operatortest.Noon)
	if s := left.view.Servers[0]; s.LeftFor != time.Hour || s.ReadyFor != time.Hour {
		t.Errorf("a server left %v and was ready %v ago, want 1h each", s.LeftFor, s.ReadyFor)
	}
}

// TestFormerPasswordOfAClockThatWasAhead ends with the grace.
func TestFormerPasswordOfAClockThatWasAhead(t *testing.T) {
	r, index := ownerOf(t)
	text, err := json.Marshal(passwords.State{Former: []passwords.Former{{Digest: "a", Until: operatortest.Stored.Add(operatortest.Ahead)}, {Digest: "b", Until: operatortest.Noon.Add(time.Minute)}}})
	if err != nil {
		t.Fatal(err)
	}
	secret := build.AuthSecret(index, "", text)
	secret.CreationTimestamp = metav1.NewTime(operatortest.Stored)
	if err := r.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	p, err := (&Reconciler{Base: *r}).storedPasswords(t.Context(), index)
	if err != nil || len(p.Former) != 2 || !p.Former[0].Until.Equal(operatortest.Stored.Add(defaultPasswordGrace)) || !p.Former[1].Until.Equal(operatortest.Noon.Add(time.Minute)) {
		t.Errorf("%+v, %v", p, err)
	}
}

// ownerOf is what reconcilers have at noon, and an index.
func ownerOf(t *testing.T) (*reconciler.Base, *dmv1.DMIndex) {
	t.Helper()
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "ns", UID: "u"}}
	c := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(index).Build()
	return &reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: c, Live: c}}, Events: &operatortest.LastNote{}, Now: func() time.Time { return operatortest.Noon }}, index
}
