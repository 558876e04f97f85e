package build

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/pkg/settings"
)

// TestSettle: the Secret of a pool has a file with its settings, which servers understand; none if
// it says nothing; and the one of before while it is paused.
func TestSettle(t *testing.T) {
	index := testIndex()
	pool := ComputePool(index, index.Spec.ComputePools[0], "i")
	before := &corev1.Secret{Data: map[string][]byte{}}
	f := func(paused bool, want string) {
		t.Helper()
		secret := &corev1.Secret{Data: map[string][]byte{}}
		if err := Settle(secret, before, paused, ComputeSettings(pool)); err != nil {
			t.Fatal(err)
		}
		got, has := secret.Data[settings.FileName]
		if string(got) != want || has != (want != "") {
			t.Errorf("%q, want %q", got, want)
		}
		if has {
			if _, err := settings.Parse(got, settings.Settings{}); err != nil {
				t.Errorf("servers do not take %q: %v", got, err)
			}
		}
		before = secret
	}
	f(false, "")
	f(true, "")
	var everyOne int32
	pool.Spec.Settings.SlowLogMicroseconds = &everyOne
	f(true, "")
	f(false, `{"slowLogMicroseconds":0}`+"\n")
	pool.Spec.Settings.MaxConnections, pool.Spec.Settings.IdleTimeoutSeconds, pool.Spec.Settings.LogLevel = 10_000, 604_800, "warn"
	f(true, `{"slowLogMicroseconds":0}`+"\n")
	f(false, `{"maxConnections":10000,"idleTimeoutSeconds":604800,"slowLogMicroseconds":0,"logLevel":"warn"}`+"\n")

	pool.Spec.Settings.MaxSessions = 8
	if args := ComputePod(pool, 0, 0, "uid", "i", "h").Spec.Containers[0].Args; !slices.Contains(args, "--max-sessions=8") {
		t.Error(args)
	}
}
