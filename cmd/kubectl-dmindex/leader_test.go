package main

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestLeaderless: one operator that leads is enough, also beside the lease of a release that is
// gone; a clock that is behind or ahead by some seconds makes no alarm.
func TestLeaderless(t *testing.T) {
	lease := func(namespace string, ago time.Duration) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-ago)))}}
	}
	for name, c := range map[string]struct {
		leases []coordinationv1.Lease
		want   string
	}{
		"leads":                  {[]coordinationv1.Lease{lease("a", 2*time.Second)}, ""},
		"ahead":                  {[]coordinationv1.Lease{lease("a", -30*time.Second)}, ""},
		"one of two":             {[]coordinationv1.Lease{lease("gone", 40*24*time.Hour), lease("a", 5*time.Second)}, ""},
		"none was there":         {nil, "no operator leads: "},
		"never renewed":          {[]coordinationv1.Lease{{}}, "no operator leads: "},
		"gone":                   {[]coordinationv1.Lease{lease("a", 7*time.Minute)}, "no operator leads for 7m: "},
		"the newest of two says": {[]coordinationv1.Lease{lease("a", 40*24*time.Hour), lease("b", 2*time.Hour)}, "kubectl -n b get pods"},
	} {
		if got := sayLeaderless(c.leases, now); got != "" != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	v := drawn()
	v.leaderless = "no operator leads for 7m: and so on."
	if got := v.status(now); !strings.HasPrefix(got, v.leaderless+"\n\n") {
		t.Errorf("status begins with %.80q", got)
	}
}
