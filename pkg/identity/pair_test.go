package identity_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/identity"
	"github.com/dmindex/dmindex/pkg/identity/identitytest"
)

// TestPair: a directory with a certificate and its key is enough, what it has at a handshake
// counts, and what cannot be read changes nothing.
func TestPair(t *testing.T) {
	ca := identitytest.NewCA(t, "ca")
	dir := ca.Dir(identitytest.Options{})
	if err := os.Remove(filepath.Join(dir, identity.CAFile)); err != nil {
		t.Fatal(err)
	}
	pair, err := identity.OpenPair(dir)
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		t.Helper()
		cert, err := pair.ServerConfig().GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Leaf.SerialNumber.String()
	}
	one := shown()
	ca.Write(dir, identitytest.Options{}, ca)
	two := shown()
	if one == two {
		t.Error("the former certificate is shown")
	}
	if err := os.Remove(filepath.Join(dir, identity.KeyFile)); err != nil {
		t.Fatal(err)
	}
	if got := shown(); got != two {
		t.Errorf("certificate %s is shown, not %s", got, two)
	}
	if _, err := identity.OpenPair(dir); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), identity.KeyFile) {
		t.Errorf("a directory without a key: %v", err)
	}
}
