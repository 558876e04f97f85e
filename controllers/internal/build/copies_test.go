package build

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/pkg/identity"
)

// TestMirrorCertificates: with what their Secret has, memory servers of a pool that has copies let
// each other in to send changes, and those of other pools are refused.
func TestMirrorCertificates(t *testing.T) {
	index := testIndex()
	files := func(pool string) *identity.Files {
		t.Helper()
		p := MemoryPool(index, index.Spec.MemoryPools[0], "server:1")
		p.Name, p.UID = pool, types.UID(pool)
		own, err := pki.NewAuthority(pool, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		a, err := pki.ParseAuthority(own)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := a.Issue(MemoryLeaf(p, true), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		secret, err := TLSSecret(pool, p.Namespace, dmv1.ComponentMemory, leaf, PoolSpeaks(p, a, true))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for name, data := range secret.Data {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := identity.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	mine, other := files("demo-memory"), files("other-memory")
	call := func(client *identity.Files, host string) error {
		l, err := tls.Listen("tcp", "127.0.0.1:0", mine.PeerConfig("mirror"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		served := make(chan error, 1)
		go func() {
			c, err := l.Accept()
			if err == nil {
				err = c.(*tls.Conn).Handshake()
				c.Close()
			}
			served <- err
		}()
		c, err := tls.Dial("tcp", l.Addr().String(), client.ClientConfig(host, "mirror"))
		if err == nil {
			c.Close()
		}
		if seen := <-served; err == nil {
			err = seen
		}
		return err
	}
	if err := call(mine, Host("demo-memory-1024", "demo-memory", index.Namespace)); err != nil {
		t.Errorf("a server of the same pool: %v", err)
	}
	if err := call(mine, Host("other-memory-1024", "other-memory", index.Namespace)); err == nil {
		t.Error("a server in the place of one of another pool was let in")
	}
	if err := call(other, Host("demo-memory-1024", "demo-memory", index.Namespace)); err == nil {
		t.Error("a server of another pool was let in")
	}
}
