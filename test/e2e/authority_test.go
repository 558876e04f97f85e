//go:build e2e

package e2e

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// TestAuthorityRotation: the certificate authority of an index is replaced while programs write and
// read. None of their requests fails, and the former authority is gone in the end.
func TestAuthorityRotation(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.kubectl("patch", "dmi", "x", "--type=merge", "-p", `{"spec":{"security":{"authorityGraceSeconds":30}}}`)
	e := s.startExercise(300)
	of := func(secret, key string) string {
		text, err := base64.StdEncoding.DecodeString(s.jsonpath("secret/"+secret, "{.data."+strings.ReplaceAll(key, ".", `\.`)+"}"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	asks := func(when string) { // by a new connection, with what is mounted
		t.Helper()
		if out, err := s.tryDmindex("put", "authority", when); err != nil {
			t.Errorf("%s: %v: %s", when, err, out)
		}
	}
	asks("before")
	first := of("x-ca", "tls.crt")
	begin := time.Now()
	s.kubectl("annotate", "dmi", "x", "dmindex.io/rotate-authority=monday")
	s.eventually(long, "programs trust both authorities", func() (bool, string) {
		ca := of("x-conn", "ca.crt")
		return strings.Contains(ca, first) && strings.Count(ca, "BEGIN CERTIFICATE") == 2, ca
	})
	s.kubectl("annotate", "pod", "exercise", "tools", "touched=yes") // their kubelets look at once
	s.eventually(long, "the new authority signs", func() (bool, string) {
		return of("x-ca", "tls.crt") != first, "the first one does"
	})
	t.Logf("it signs after %s", time.Since(begin).Round(time.Millisecond))
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		asks("while servers get their certificates")
	}
	e.phase("both authorities")
	s.eventually(long, "the former authority is gone", func() (bool, string) {
		ca := of("x-conn", "ca.crt")
		return !strings.Contains(ca, first), ca
	})
	t.Logf("the former one is gone after %s", time.Since(begin).Round(time.Millisecond))
	for _, secret := range []string{"x-compute-tls", "x-memory-tls"} {
		s.eventually(long, "no server trusts it", func() (bool, string) {
			text := of(secret, "ca.crt")
			return !strings.Contains(text, first), text
		})
	}
	s.kubectl(append(append([]string{"annotate", "pod"}, s.computePods()...), "touched=yes", "--overwrite")...)
	s.kubectl("annotate", "pod", "exercise", "tools", "touched=again", "--overwrite")
	asks("with the new authority")
	e.phase("the new authority")
	e.finish()
	s.settled("2/2", "2/2")
}
