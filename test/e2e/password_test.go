//go:build e2e

package e2e

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// TestPasswordRotation: the password is rotated while programs write and read. None of their
// requests fails, the former password ends, and users of the Secret x-users come and go.
func TestPasswordRotation(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	e := s.startExercise(300)
	ask := func(user, password, command string) string {
		out, _ := s.tools("sh", "-c", "redis-cli -h x --no-auth-warning --user "+user+" -a '"+password+"' "+command+" 2>&1")
		return strings.TrimSpace(out)
	}
	password := func() string {
		text, err := base64.StdEncoding.DecodeString(s.jsonpath("secret/x-conn", "{.data.password}"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := password()
	s.is(ask("default", first, "ping"), "PONG")

	s.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: x-users}\nstringData:\n  users.acl: |\n    user report on >r ~key/* +@read\n")
	s.kubectl("patch", "dmi", "x", "--type=merge", "-p", `{"spec":{"security":{"passwordGraceSeconds":30}}}`)
	begin := time.Now()
	s.kubectl("annotate", "dmi", "x", "dmindex.io/rotate-password=monday")
	s.eventually(long, "programs have a new password", func() (bool, string) { return password() != first, "it is the first one" })
	t.Logf("all servers knew the new password after %s", time.Since(begin).Round(time.Millisecond))
	s.kubectl("annotate", "pod", "exercise", "tools", "touched=yes") // their kubelets look at once
	s.eventually(long, "the mounted Secret is the new one", func() (bool, string) {
		out, err := s.try("exec", "exercise", "--", "cat", "/conn/password")
		return err == nil && strings.TrimSpace(out) == password(), out
	})
	s.is(ask("default", password(), "ping"), "PONG")
	e.phase("both passwords")
	s.eventually(long, "the former password ends", func() (bool, string) {
		out := ask("default", first, "ping")
		return strings.Contains(out, "WRONGPASS"), out
	})
	e.phase("the new password")
	s.is(ask("default", password(), "ping"), "PONG")
	e.finish()

	s.eventually(long, "the user of the Secret x-users can log in", func() (bool, string) {
		out := ask("report", "r", "acl whoami")
		return out == "report", out
	})
	s.contains(ask("report", "r", "set key/1 x"), "NOPERM")
	s.contains(ask("report", "r", "get other"), "NOPERM")
	s.kubectl("delete", "secret", "x-users")
	s.kubectl(append(append([]string{"annotate", "pod"}, s.computePods()...), "touched=yes", "--overwrite")...)
	s.eventually(long, "its user is gone", func() (bool, string) {
		out := ask("report", "r", "ping")
		return strings.Contains(out, "WRONGPASS"), out
	})
}
