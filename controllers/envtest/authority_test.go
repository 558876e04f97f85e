package envtest

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/pkg/identity"
)

// certified is a cluster whose operator has a clock of its own.
type certified struct {
	*cluster
	ahead atomic.Int64 // of the operator's clock
}

func newCertified(t *testing.T) *certified {
	c := &certified{cluster: newCluster(t)}
	c.now = func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	return c
}

func (c *certified) secret(name string) map[string][]byte {
	c.t.Helper()
	s := &corev1.Secret{}
	if err := c.get(name, s); err != nil {
		return nil
	}
	return s.Data
}

// later lets time pass for the operator.
func (c *certified) later(d time.Duration) {
	c.t.Helper()
	c.ahead.Add(int64(d))
	i, p := &dmv1.DMIndex{}, &dmv1.DMMemoryPool{}
	c.patch("demo", i, func() { i.Annotations["touched"] = fmt.Sprint(c.ahead.Load()) })
	c.patch("demo-memory", p, func() { p.Annotations["touched"] = fmt.Sprint(c.ahead.Load()) })
}

// read lets servers read the files of their pool.
func (c *certified) read(pool string, pods ...string) {
	c.t.Helper()
	data := c.secret(pool + "-tls")
	for _, p := range pods {
		if err := c.fleet.SetTrust(c.namespace, p, data[identity.AuthoritiesFile], data[identity.CertFile]); err != nil {
			c.t.Fatal(err)
		}
	}
}

// certs is how many certificates a file has.
func certs(data []byte) (n int) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}

// trusted waits until files have so many authorities.
func (c *certified) trusted(what string, want map[string]int) {
	c.t.Helper()
	c.eventually(what, func() string {
		for secret, n := range want {
			key := identity.AuthoritiesFile
			if secret == "demo-conn" {
				key = build.KeyCA
			}
			if got := certs(c.secret(secret)[key]); got != n {
				return fmt.Sprintf("%s of %s has %d certificates, want %d", key, secret, got, n)
			}
		}
		return ""
	})
}

// signed waits until the certificate of a pool's servers is of the authority that signs.
func (c *certified) signed(pool, owner string) {
	c.t.Helper()
	c.eventually("the certificate of "+pool, func() string {
		leaf, err := pki.Parse(c.secret(pool + "-tls")[identity.CertFile])
		if err != nil {
			return err.Error()
		}
		ca, err := pki.Parse(c.secret(owner + "-ca")[identity.CertFile])
		if err != nil {
			return err.Error()
		}
		if err := leaf.CheckSignatureFrom(ca); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestAuthorityOfAnIndexRotates: servers and programs know the new authority before it signs, and
// the former one is trusted until nobody shows a certificate of it.
func TestAuthorityOfAnIndexRotates(t *testing.T) {
	t.Parallel()
	c := newCertified(t)
	compute, memory := c.pods("demo-compute"), c.pods("demo-memory")
	c.read("demo-compute", compute...)
	c.read("demo-memory", memory...)
	ca := func() []byte { return c.secret("demo-ca")[identity.CertFile] }
	first := ca()

	i := &dmv1.DMIndex{}
	c.patch("demo", i, func() { i.Annotations[dmv1.AnnotationRotateAuthority] = "monday" })
	both := map[string]int{"demo-compute-tls": 3, "demo-memory-tls": 3, "demo-conn": 2}
	c.trusted("all get the new authority", both)
	c.read("demo-compute", compute...)
	c.read("demo-memory", memory[1:]...)
	c.later(2 * time.Hour)
	c.quiet(time.Second)
	if !bytes.Equal(ca(), first) {
		t.Fatal("an authority signs that one memory server does not trust")
	}
	c.stop() // another operator goes on
	c.read("demo-memory", memory...)
	c.start(0)
	c.eventually("the new authority signs", func() string {
		if bytes.Equal(ca(), first) {
			return "the first one does"
		}
		return ""
	})
	c.signed("demo-compute", "demo")
	c.trusted("the former authority is trusted", both)
	if !bytes.Contains(c.secret("demo-conn")[build.KeyCA], first) {
		t.Error("programs do not trust the former authority any more")
	}
	hash := c.pod(compute[0]).Annotations[dmv1.AnnotationTLS]
	if hash == "" {
		t.Errorf("the kubelet of %s is not told", compute[0])
	}
	c.read("demo-compute", compute[1:]...)
	c.later(2 * time.Hour)
	c.quiet(time.Second)
	c.trusted("the former authority is trusted while a server shows its certificate", both)

	c.read("demo-compute", compute...)
	c.later(time.Minute)
	c.trusted("the former authority is gone", map[string]int{"demo-compute-tls": 2, "demo-memory-tls": 2, "demo-conn": 1})
	if bytes.Contains(c.secret("demo-conn")[build.KeyCA], first) {
		t.Error("programs trust the former authority for ever")
	}
	data := c.secret("demo-ca")
	for _, key := range []string{build.KeyNextAuthority, build.KeyNextAuthorityKey, build.KeyFormerAuthority} {
		if len(data[key]) > 0 {
			t.Errorf("%s is left", key)
		}
	}
	c.quiet(time.Second)
}

// TestAuthorityOfAPoolRotates: compute servers trust the new authority of a memory pool before it
// signs.
func TestAuthorityOfAPoolRotates(t *testing.T) {
	t.Parallel()
	c := newCertified(t)
	compute, memory := c.pods("demo-compute"), c.pods("demo-memory")
	c.read("demo-compute", compute...)
	c.read("demo-memory", memory...)
	first := c.secret("demo-memory-ca")[identity.CertFile]
	p := &dmv1.DMMemoryPool{}
	c.patch("demo-memory", p, func() { p.Annotations[dmv1.AnnotationRotateAuthority] = "monday" })
	both := map[string]int{"demo-memory-tls": 3}
	c.trusted("memory servers get the new authority", both)
	c.read("demo-memory", memory...)
	c.later(time.Hour)
	both["demo-compute-tls"] = 3
	c.trusted("compute servers get the new authority", both)
	if !bytes.Equal(c.secret("demo-memory-ca")[identity.CertFile], first) {
		t.Fatal("an authority signs that compute servers do not trust")
	}
	c.read("demo-compute", compute...)
	c.later(time.Minute)
	c.eventually("the new authority signs", func() string {
		if bytes.Equal(c.secret("demo-memory-ca")[identity.CertFile], first) {
			return "the first one does"
		}
		return ""
	})
	c.signed("demo-memory", "demo-memory")
	c.read("demo-memory", memory...)
	c.later(time.Hour)
	c.trusted("the former authority is gone", map[string]int{"demo-compute-tls": 2, "demo-memory-tls": 2})
	c.quiet(time.Second)
}

// TestCertificatesAreRenewed: certificates are renewed after 60 days, and authorities in their last
// year. Those of a clock that was ahead are replaced once it is right.
func TestCertificatesAreRenewed(t *testing.T) {
	t.Parallel()
	c := newCertified(t)
	pools := []string{"demo-compute", "demo-memory"}
	leaf := func(pool string) []byte { return c.secret(pool + "-tls")[identity.CertFile] }
	first := map[string][]byte{}
	for _, p := range pools {
		first[p] = leaf(p)
	}
	c.later(59 * 24 * time.Hour)
	c.quiet(time.Second)
	for _, p := range pools {
		if !bytes.Equal(leaf(p), first[p]) {
			t.Errorf("the certificate of %s is renewed too early", p)
		}
	}
	c.later(2 * 24 * time.Hour)
	for _, p := range pools {
		c.eventually("the certificate of "+p+" is renewed", func() string {
			if bytes.Equal(leaf(p), first[p]) {
				return "it is the first one"
			}
			return ""
		})
	}
	ca := map[string][]byte{}
	owners := []string{"demo", "demo-memory"}
	for _, o := range owners {
		ca[o] = c.secret(o + "-ca")[identity.CertFile]
	}
	c.later(pki.AuthorityLife - pki.ReplaceBefore)
	for range 3 { // servers tell nothing, so each step takes the grace
		c.quiet(500 * time.Millisecond)
		c.later(2 * time.Hour)
	}
	for _, o := range owners {
		c.eventually("the authority of "+o+" is replaced", func() string {
			data := c.secret(o + "-ca")
			if bytes.Equal(data[identity.CertFile], ca[o]) || len(data[build.KeyFormerAuthority]) > 0 {
				return "it is not"
			}
			return ""
		})
	}
	c.later(-time.Duration(c.ahead.Load()))
	for _, name := range []string{"demo-ca", "demo-memory-ca", "demo-compute-tls", "demo-memory-tls"} {
		c.eventually("what a clock that was ahead made is replaced", func() string {
			if cert, err := pki.Parse(c.secret(name)[identity.CertFile]); err != nil || cert.NotBefore.After(time.Now()) {
				return fmt.Sprintf("the certificate of %s is not good yet (%v)", name, err)
			}
			return ""
		})
	}
	c.quiet(500 * time.Millisecond)
}

// TestDeletedCertificates: what somebody deletes by hand is made again, and fits together.
func TestDeletedCertificates(t *testing.T) {
	t.Parallel()
	c := newCertified(t)
	for _, names := range [][]string{{"demo-compute-tls"}, {"demo-memory-tls"}, {"demo-conn"}, {"demo-memory-ca"}, {"demo-ca"}, {"demo-ca", "demo-memory-ca", "demo-compute-tls"}} {
		before := map[string][]byte{}
		for _, name := range names {
			before[name] = slices.Concat(c.secret(name)[identity.CertFile], c.secret(name)[build.KeyPassword])
			s := &corev1.Secret{}
			s.Name, s.Namespace = name, c.namespace
			if err := api.Delete(t.Context(), s, client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names {
			c.eventually(name+" is made again", func() string {
				if now := slices.Concat(c.secret(name)[identity.CertFile], c.secret(name)[build.KeyPassword]); len(now) == 0 || bytes.Equal(now, before[name]) {
					return "it is not"
				}
				return ""
			})
		}
		c.later(time.Minute)
		c.signed("demo-compute", "demo")
		c.signed("demo-memory", "demo-memory")
		c.trusted("one authority of each is trusted", map[string]int{"demo-compute-tls": 2, "demo-memory-tls": 2, "demo-conn": 1})
		c.eventually("programs trust the authority that signs", func() string {
			if !bytes.Equal(c.secret("demo-conn")[build.KeyCA], c.secret("demo-ca")[identity.CertFile]) {
				return "they do not"
			}
			return ""
		})
	}
}
