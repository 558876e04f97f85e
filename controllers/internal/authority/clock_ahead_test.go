package authority

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/decision"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/operatortest"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/pkg/identity"
)

// jump is how far the clock was ahead, until a little before noon: the objects were stored then.
const jump = 70 * 24 * time.Hour

var stored = operatortest.Noon.Add(-time.Hour)

// ownerOf is what reconcilers have at noon, and an index.
func ownerOf(t *testing.T) (*reconciler.Base, *dmv1.DMIndex) {
	t.Helper()
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "ns", UID: "u"}}
	c := fake.NewClientBuilder().WithScheme(operatortest.Scheme(t)).WithObjects(index).Build()
	return &reconciler.Base{Keeper: decision.Keeper{Writer: kube.Writer{Client: c, Live: c}}, Events: &operatortest.LastNote{}, Now: func() time.Time { return operatortest.Noon }}, index
}

// TestAuthorityOfAClockThatWasAhead is taken out at once: nobody accepts it. One that is good stays
// where the clock is behind.
func TestAuthorityOfAClockThatWasAhead(t *testing.T) {
	f := func(name string, present, next time.Duration, now time.Time, renewed, nextStays bool) {
		t.Helper()
		r, index := ownerOf(t)
		r.Now = func() time.Time { return now }
		made := func(after time.Duration) pki.Pair {
			p, err := newAuthority(index, stored.Add(after))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		was, waiting := made(present), made(next)
		secret := build.AuthoritySecret(index.Name, index.Namespace, nil, was)
		secret.CreationTimestamp = metav1.NewTime(stored)
		secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(index, dmv1.GroupVersion.WithKind("DMIndex"))}
		secret.Data[build.KeyNextAuthority], secret.Data[build.KeyNextAuthorityKey] = waiting.Cert, waiting.Key
		secret.Data[build.KeyRotation] = []byte(`{"done":"monday","for":"friday","since":"2027-06-01T00:00:00Z"}`)
		if err := r.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		for range 2 { // what is right stays
			a, err := Ensure(t.Context(), r, index, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
				t.Fatal(err)
			}
			if is := string(a.PEM) != string(was.Cert); is != renewed || string(a.PEM) != string(secret.Data[identity.CertFile]) {
				t.Errorf("%s: renewed %v, want %v", name, is, renewed)
			}
			if is := len(secret.Data[build.KeyNextAuthority]) > 0; is != nextStays || (len(a.Others) > 0) != nextStays {
				t.Errorf("%s: the next one stays: %v, want %v", name, is, nextStays)
			}
			if a.Early(now, stored) {
				t.Errorf("%s: the authority is not good yet", name)
			}
		}
		var after authorities
		if err := json.Unmarshal(secret.Data[build.KeyRotation], &after); err != nil || after.Done != "monday" || (after.For != "") != nextStays {
			t.Errorf("%s: %+v, %v", name, after, err)
		}
	}
	f("both are good", 0, 0, operatortest.Noon, false, true)
	f("the next one is early", 0, jump, operatortest.Noon, false, false)
	f("both are early", jump, jump, operatortest.Noon, true, false)
	f("the clock is behind", 0, 0, operatortest.Noon.Add(-jump), false, true)
}
