package identity_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// TestFabricTLS: an index comes under TLS when the file says so, under whatever of its identities,
// and a file that is spoilt takes nothing back.
func TestFabricTLS(t *testing.T) {
	dir := identitytest.NewCA(t, "ca").Dir(identitytest.Options{})
	files, path := open(t, dir), filepath.Join(dir, identity.FabricFile)
	f := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, index := range []string{"a", "a/2", "ab", "b"} {
			if files.FabricTLS(index) {
				got = append(got, index)
			}
		}
		if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f("no file")
	if err := os.WriteFile(path, identity.AppendFabric(nil, identity.Index("a"), identity.Index("c")), 0o600); err != nil {
		t.Fatal(err)
	}
	f("a file", "a", "a/2")
	if err := os.WriteFile(path, []byte("who knows"), 0o600); err != nil {
		t.Fatal(err)
	}
	f("a spoilt file", "a", "a/2")
	if files.Err() == nil {
		t.Error("nothing is said of the spoilt file")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f("the file is gone")
}
