package decision

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/state"
)

// TestPolicyNamesTheState: the admission policy keeps people from setting all annotations that are
// state.
func TestPolicyNamesTheState(t *testing.T) {
	policy, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "admission", "state.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{dmv1.AnnotationState}
	for _, object := range []client.Object{&dmv1.DMIndex{}, &dmv1.DMMemoryPool{}, &dmv1.DMComputePool{}, &dmv1.DMBackup{}} {
		keys = append(keys, stateOf(object)...)
	}
	for _, key := range keys {
		if !strings.Contains(string(policy), "'"+key+"'") {
			t.Errorf("it does not name %s", key)
		}
	}
}

// TestStateInForce: what becomes of annotations without a stamp, or with that of another object.
func TestStateInForce(t *testing.T) {
	const uid = "u"
	values := map[string]string{dmv1.AnnotationCreated: "true", dmv1.AnnotationMemory: `{"1":7}`}
	index := func(change func(*dmv1.DMIndex)) *dmv1.DMIndex {
		i := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: uid, Annotations: maps.Clone(values)}}
		i.Annotations["people"] = "x"
		change(i)
		return i
	}
	f := func(name string, i *dmv1.DMIndex, want string) {
		t.Helper()
		got := "conflict"
		if s, err := stateInForce(i, nil); err == nil {
			takeState(i, s)
			got = strings.Join(slices.Sorted(maps.Keys(i.Annotations)), " ")
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	const all = dmv1.AnnotationCreated + " " + dmv1.AnnotationMemory + " people"
	f("a copy", index(func(*dmv1.DMIndex) {}), "people")
	f("a copy of one with a stamp", index(func(i *dmv1.DMIndex) { i.Annotations[dmv1.AnnotationState] = state.Stamp("v", 3, values) }), "people")
	f("of an operator before records", index(func(i *dmv1.DMIndex) { i.Status.Identity, i.Status.Map = uid, &dmv1.PartitionMap{} }), all)
	f("of one that is being made", index(func(i *dmv1.DMIndex) { i.Status.Identity = uid }), all)
	f("made anew since", index(func(i *dmv1.DMIndex) { i.Status.Identity, i.Status.Map = uid+"/2", &dmv1.PartitionMap{} }), "conflict")
	f("restored with the status of the other one", index(func(i *dmv1.DMIndex) {
		i.Annotations[dmv1.AnnotationState], i.Status.Identity, i.Status.Map = state.Stamp("v", 3, values), "v", &dmv1.PartitionMap{}
	}), "people")
	f("the annotations of another one in one that was made", index(func(i *dmv1.DMIndex) {
		i.Annotations[dmv1.AnnotationState], i.Status.Identity, i.Status.Map = state.Stamp("v", 3, values), uid, &dmv1.PartitionMap{}
	}), "conflict")
	f("nothing of one that was made", index(func(i *dmv1.DMIndex) {
		i.Annotations, i.Status.Identity, i.Status.Map = nil, uid, &dmv1.PartitionMap{}
	}), "conflict")
	f("edited", index(func(i *dmv1.DMIndex) { i.Annotations[dmv1.AnnotationState] = state.Stamp(uid, 3, nil) }), "conflict")
}

// TestPoolsThatWereSeen: the numbers that an operator of an earlier version gave out stay given
// out, also by a pool that never had all that it asked for. Those of another pool are not this
// one's.
func TestPoolsThatWereSeen(t *testing.T) {
	values := map[string]string{dmv1.AnnotationNextID: "7"}
	seen := []metav1.Condition{{Type: dmv1.ConditionPoolReady, Status: metav1.ConditionFalse}}
	for _, c := range []struct {
		name, stamp string
		seen        []metav1.Condition
		want        map[string]string
	}{
		{"seen", "", seen, values},
		{"made from a manifest", "", nil, map[string]string{}},
		{"restored with its status", state.Stamp("v", 3, values), seen, map[string]string{}},
	} {
		meta := metav1.ObjectMeta{Name: "pool", UID: "u", Annotations: maps.Clone(values)}
		meta.Annotations[dmv1.AnnotationState] = c.stamp
		memory, compute := &dmv1.DMMemoryPool{ObjectMeta: meta}, &dmv1.DMComputePool{ObjectMeta: meta}
		memory.Status.Conditions, compute.Status.Conditions = c.seen, c.seen
		for _, pool := range []client.Object{memory, compute} {
			if s, err := stateInForce(pool, nil); err != nil || !maps.Equal(s.Values, c.want) {
				t.Errorf("%s, %T: %v, %v", c.name, pool, s.Values, err)
			}
		}
	}
}

// TestStateRecord: a record says what the object says.
func TestStateRecord(t *testing.T) {
	i := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "u"}}
	want := map[string]string{}
	for n, key := range stateOf(i) {
		want[key] = strings.Repeat("x", n+1)
	}
	stamp := state.Stamp("u", 4, want)
	record := build.StateRecord("DMIndex", "demo", "ns", "u", stamp, want)
	if s, err := stateInForce(i, record); err != nil || s.Sequence != 4 || !maps.Equal(s.Values, want) || !s.ObjectBehind {
		t.Errorf("%+v, %v", s, err)
	}
}
