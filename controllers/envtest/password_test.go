package envtest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

// TestPasswordRotates: programs get a new password when all servers know it, and the former one is
// right until the grace is over.
func TestPasswordRotates(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var ahead atomic.Int64 // of the operator's clock
	c.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	secret := func(name, key string) string {
		t.Helper()
		s := &corev1.Secret{}
		if err := c.get(name, s); err != nil {
			t.Fatal(err)
		}
		return string(s.Data[key])
	}
	password := func() string { return secret("demo-conn", build.KeyPassword) }
	acl := func() string { return secret("demo-auth", build.KeyDefaultACL) }
	first, one := password(), acl()
	if n := strings.Count(one, "#"); n != 1 || strings.Contains(one, first) {
		t.Fatalf("the ACL file of a new index is %q", one)
	}
	pods := c.pods("demo-compute")
	for _, p := range pods {
		c.fleet.SetACL(c.namespace, p, one)
	}

	i := &dmv1.DMIndex{}
	c.patch("demo", i, func() { i.Annotations[dmv1.AnnotationRotatePassword] = "monday" })
	c.eventually("servers get two passwords", func() string {
		if n := strings.Count(acl(), "#"); n != 2 {
			return acl()
		}
		return ""
	})
	two := acl()
	for _, p := range pods[1:] {
		c.fleet.SetACL(c.namespace, p, two)
	}
	c.quiet(time.Second)
	if password() != first {
		t.Fatal("programs have a password that one server does not know")
	}
	c.stop() // another operator goes on
	c.fleet.SetACL(c.namespace, pods[0], two)
	c.start(0)
	c.eventually("programs have the new password", func() string {
		if password() == first {
			return "they have the first one"
		}
		return ""
	})
	if acl() != two {
		t.Fatalf("the former password is not right any more: %q", acl())
	}
	for _, p := range pods {
		if got := c.pod(p).Annotations[dmv1.AnnotationAuth]; got == "" {
			t.Errorf("the kubelet of %s is not told", p)
		}
	}
	c.quiet(time.Second)

	ahead.Store(int64(2 * time.Hour))
	c.patch("demo", i, func() { i.Annotations["touched"] = "yes" })
	c.eventually("the former password ends", func() string {
		if n := strings.Count(acl(), "#"); n != 1 || acl() == one {
			return fmt.Sprintf("%q", acl())
		}
		return ""
	})
}

// TestPasswordIsNeverEmpty: somebody writes a password of white space, or takes it away. Another
// one is made, and no server ever takes an empty one.
func TestPasswordIsNeverEmpty(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	for _, empty := range [][]byte{[]byte("\n"), []byte(" \t"), nil} {
		conn, auth := &corev1.Secret{}, &corev1.Secret{}
		c.patch("demo-conn", conn, func() { conn.Data[build.KeyPassword] = empty })
		c.eventually("another password is made", func() string {
			if err := c.get("demo-conn", conn); err != nil {
				return err.Error()
			}
			if err := c.get("demo-auth", auth); err != nil {
				return err.Error()
			}
			password, acl := strings.TrimSpace(string(conn.Data[build.KeyPassword])), string(auth.Data[build.KeyDefaultACL])
			if _, err := users.Parse([]byte(acl)); err != nil {
				t.Fatalf("servers are given %q: %v", acl, err)
			}
			if d := sha256.Sum256([]byte(password)); password == "" || !strings.Contains(acl, hex.EncodeToString(d[:])) {
				return fmt.Sprintf("the password is %q, and servers know %q", password, acl)
			}
			return ""
		})
	}
}
