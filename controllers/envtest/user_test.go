package envtest

import (
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/passwords"
)

// dmuser is a good DMUser; the tests break it.
const dmuser = `
apiVersion: dmindex.io/v1alpha1
kind: DMUser
metadata: {name: NAME, namespace: default}
spec:
  index: demo
  keys:
  - {prefix: "cart:", access: ReadWrite}
`

// TestUserRefused: a typo in a DMUser gives no rights; the API server says what to write.
func TestUserRefused(t *testing.T) {
	f := func(old, new, want string) {
		t.Helper()
		if !strings.Contains(dmuser, old) {
			t.Fatalf("%q is not in the object", old)
		}
		object := parse(t, strings.Replace(dmuser, old, new, 1), fmt.Sprintf("wrong-%d", namespaces.Add(1)))
		err := api.Create(t.Context(), object)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s -> %s: %v", old, new, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s -> %s: %v; want %q", old, new, err, want)
		}
	}
	const keys = "  keys:\n  - {prefix: \"cart:\", access: ReadWrite}\n"
	f(`"cart:"`, `""`, "write spec.allKeys if that is meant")
	f(`"cart:"`, `"*"`, "without a star")
	f(`"cart:"`, `"cart:*"`, "without a star")
	f(`"cart:"`, `"a b"`, "white space")
	f(`"cart:"`, `"a\nuser evil on nopass ~* +@all"`, "white space")
	f(`"cart:"`, `"a\u00a0~*"`, "white space")
	f(`"cart:"`, `"a\u2003~*"`, "white space")
	f(`"cart:"`, `"a\u0085~*"`, "white space")
	f(`"cart:"`, `"[ab]"`, "[, ] and backslash")
	f(`"cart:"`, `'a\b'`, "[, ] and backslash")
	f(`"cart:"`, `"é:"`, "")
	f(", access: ReadWrite", "", "access: Required value")
	f("ReadWrite", "All", `supported values: "Read", "Write", "ReadWrite"`)
	f(keys, "  keys: []\n", "should have at least 1 items")
	f(keys, "  disabled: false\n", "the user may do nothing: write keys, allKeys, channels or allChannels")
	f(keys, "  allChannels: false\n", "the user may do nothing")
	f(keys, "  allKeys: true\n", "allKeys in body must be of type string")
	f(keys, "  allKeys: Read\n", "")
	f(keys, "  channels: [{}]\n", "write exactly one of name (of one channel) and prefix (of many)")
	f(keys, "  channels: [{name: a, prefix: b}]\n", "write exactly one of name (of one channel) and prefix (of many)")
	f(keys, "  channels: [{name: 'a*'}]\n", "without a star")
	f(keys, "  channels: [{prefix: ''}]\n", "write spec.allChannels if that is meant")
	f("index: demo", "index: demo\n  name: default", "the user default is the index's own")
	f("index: demo", "index: demo\n  name: 'a b'", "write letters, digits")
	f("index: demo", "index: demo\n  name: \"a\\nuser\"", "write letters, digits")
	f("  index: demo\n", "", "spec.index: Required value")
	f("index: demo", "index: demo\n  passwordGraceSeconds: 0", "should be greater than or equal to 1")
	f("index: demo", "index: demo\n  passwordSecret: {}", "passwordSecret.name: Required value")
	f("{name: NAME,", "{name: default,", "the user default is the index's own")
	f("{name: NAME,", "{name: a.b,", "metadata.name names a Secret too")

	object := &dmv1.DMUser{}
	fixed := func(what, want string, change func()) {
		t.Helper()
		change()
		if err := api.Update(t.Context(), object); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", what, err, want)
		}
	}
	object.Name, object.Namespace = fmt.Sprintf("fixed-%d", namespaces.Add(1)), "default"
	object.Spec = dmv1.DMUserSpec{Index: "demo", AllKeys: dmv1.AccessRead}
	if err := api.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	fixed("another index", "index cannot be changed", func() { object.Spec.Index = "other" })
	fixed("another name", "name cannot be changed", func() { object.Spec.Index, object.Spec.Name = "demo", "other" })
}

func (c *cluster) user(name string) *dmv1.DMUser {
	c.t.Helper()
	u := &dmv1.DMUser{}
	if err := c.get(name, u); err != nil {
		c.t.Fatal(err)
	}
	return u
}

// ready waits for the condition Ready of a DMUser.
func (c *cluster) ready(name string, status metav1.ConditionStatus, reason, message string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("Ready of user %s %s %s %q", name, status, reason, message), func() string {
		has := []string{"it has:"}
		for _, cond := range c.user(name).Status.Conditions {
			if cond.Type == dmv1.ConditionReady && cond.Status == status && cond.Reason == reason && strings.Contains(cond.Message, message) {
				return ""
			}
			has = append(has, fmt.Sprintf("%s=%s %s: %s", cond.Type, cond.Status, cond.Reason, cond.Message))
		}
		return strings.Join(has, "\n")
	})
}

// touch makes the operator look at a user again.
func (c *cluster) touch(name string) {
	c.t.Helper()
	u := &dmv1.DMUser{}
	c.patch(name, u, func() { metav1.SetMetaDataAnnotation(&u.ObjectMeta, "touched", fmt.Sprint(namespaces.Add(1))) })
}

// usersFile is what servers are given of DMUsers.
func (c *cluster) usersFile() string {
	c.t.Helper()
	s := &corev1.Secret{}
	if err := c.get("demo-dmusers", s); err != nil {
		return err.Error()
	}
	text := string(s.Data[build.KeyUsersACL])
	if _, err := users.Parse([]byte(text)); err != nil {
		c.t.Fatalf("servers are given %q: %v", text, err)
	}
	return text
}

// given waits until a user has so many passwords in the file; 0 = it is not there.
func (c *cluster) given(name string, n int) (text string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("user %s has %d passwords", name, n), func() string {
		text = c.usersFile()
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "user "+name+" ") {
				if strings.Count(line, " #") == n {
					return ""
				}
				return line
			}
		}
		if n == 0 && strings.HasPrefix(text, "#") {
			return ""
		}
		return text
	})
	return text
}

// readUsers makes all compute servers read the file as it is.
func (c *cluster) readUsers() {
	c.t.Helper()
	for _, p := range c.pods("demo-compute") {
		c.fleet.SetUsers(c.namespace, p, c.usersFile())
	}
}

// TestUser goes through the life of a user whose password the operator makes.
func TestUser(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var ahead atomic.Int64 // of the operator's clock
	c.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.create(dmuser, "shop")
	c.given("shop", 1)
	pods := c.pods("demo-compute")
	c.fleet.SetUsers(c.namespace, pods[0], c.usersFile())
	c.ready("shop", metav1.ConditionFalse, dmv1.ReasonUserPropagating, "compute pod "+pods[1]+" has not read them yet")
	if err := c.get("shop-user", &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Fatalf("programs have a password that one server does not know: %v", err)
	}
	c.readUsers()
	c.ready("shop", metav1.ConditionTrue, dmv1.ReasonUserKnown, "the Secret shop-user")
	password := func() string { return c.secret("shop-user", "password") }
	first := password()
	host := "demo." + c.namespace + ".svc"
	uri, err := url.Parse(c.secret("shop-user", "uri"))
	if err != nil {
		t.Fatal(err)
	}
	inURI, _ := uri.User.Password()
	for what, got := range map[string]string{
		"shop": c.secret("shop-user", "username"), host: c.secret("shop-user", "host"), "6379": c.secret("shop-user", "port"),
		host + ":6379": uri.Host, host + ":7480": c.secret("shop-user", "endpoints"), first: inURI, c.secret("demo-conn", "ca.crt"): c.secret("shop-user", "ca.crt"),
	} {
		if got != what {
			t.Errorf("the Secret says %q, not %q", got, what)
		}
	}
	if u := c.user("shop"); u.Status.User != "shop" || u.Status.Secret != "shop-user" || u.Status.ObservedGeneration != u.Generation || u.Status.FormerPasswordUntil != nil {
		t.Errorf("%+v", u.Status)
	}
	if text := c.usersFile(); strings.Contains(text, first) || !strings.Contains(text, passwords.DigestOf(first)) || !strings.Contains(text, " ~cart:* +@read +@write\n") {
		t.Errorf("servers are given %q", text)
	}
	for _, p := range pods {
		if c.pod(p).Annotations[dmv1.AnnotationUsers] == "" {
			t.Errorf("the kubelet of %s is not told", p)
		}
	}
	c.settled("demo")

	// A new password: both are right, also when another operator goes on.
	u := &dmv1.DMUser{}
	c.patch("shop", u, func() { metav1.SetMetaDataAnnotation(&u.ObjectMeta, dmv1.AnnotationRotatePassword, "monday") })
	two := c.given("shop", 2)
	c.quiet(time.Second)
	if password() != first {
		t.Fatal("programs have a password that servers do not know")
	}
	c.stop()
	c.readUsers()
	c.start(0)
	c.eventually("programs have the new password", func() string {
		if password() == first {
			return "they have the first one"
		}
		return ""
	})
	second := password()
	if text := c.usersFile(); text != two || !strings.Contains(text, passwords.DigestOf(first)) || !strings.Contains(text, passwords.DigestOf(second)) {
		t.Fatalf("not both are right: %q", text)
	}
	c.eventually("the status says until when", func() string {
		if until := c.user("shop").Status.FormerPasswordUntil; until == nil || time.Until(until.Time) > time.Hour || time.Until(until.Time) < 50*time.Minute {
			return fmt.Sprint(until)
		}
		return ""
	})
	c.stop() // in the middle of the overlap
	c.start(0)
	c.touch("shop")
	c.quiet(time.Second)
	c.given("shop", 2)
	ahead.Store(int64(2 * time.Hour))
	c.touch("shop")
	if text := c.given("shop", 1); !strings.Contains(text, passwords.DigestOf(second)) {
		t.Errorf("the new password is not right: %q", text)
	}
	c.readUsers()

	// Two users of one name, and the file of the administrator.
	other := c.create(strings.Replace(dmuser, "index: demo", "index: demo\n  name: shop", 1), "other")
	c.ready("other", metav1.ConditionFalse, dmv1.ReasonNameTaken, "DMUser shop, which is older, is the user shop")
	file := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "demo-users", Namespace: c.namespace}}
	file.Data = map[string][]byte{build.KeyUsersACL: []byte("user shop off\nuser typo +get\n")}
	if err := api.Create(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	c.touch("shop")
	c.given("shop", 0)
	c.ready("shop", metav1.ConditionFalse, dmv1.ReasonNameTaken, "the file in the Secret demo-users has the user shop")
	c.delete(file)
	c.touch("shop")
	if text := c.given("shop", 1); !strings.Contains(text, passwords.DigestOf(second)) {
		t.Errorf("the user lost its password: %q", text)
	}
	c.readUsers()
	c.ready("shop", metav1.ConditionTrue, dmv1.ReasonUserKnown, "")

	c.patch("shop", u, func() { u.Spec.Disabled = true })
	c.ready("shop", metav1.ConditionFalse, dmv1.ReasonUserDisabled, "")
	c.given("shop", 0)
	c.patch("shop", u, func() { u.Spec.Disabled = false })
	c.given("shop", 1)

	// The user is gone, and the other one gets the name, with a password of its own.
	c.delete(u)
	text := c.given("shop", 1)
	c.eventually("the former user is nobody", func() string {
		if text = c.usersFile(); strings.Contains(text, passwords.DigestOf(second)) {
			return text
		}
		return ""
	})
	c.readUsers()
	c.ready("other", metav1.ConditionTrue, dmv1.ReasonUserKnown, "the Secret other-user")
	c.delete(other)
	c.given("shop", 0)
}

// TestUserWithAPasswordOfItsOwn: a Secret of people has the password. It needs the label, its
// changes are seen, and both passwords are right for the grace.
func TestUserWithAPasswordOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	u := &dmv1.DMUser{}
	c.create(strings.Replace(dmuser, "index: demo", "index: demo\n  passwordSecret: {name: mine}", 1), "shop")
	c.ready("shop", metav1.ConditionFalse, dmv1.ReasonSecretMissing, "there is no Secret mine")
	mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: c.namespace}}
	mine.Data = map[string][]byte{"password": []byte("correct horse battery staple\n")}
	if err := api.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	c.touch("shop")
	c.ready("shop", metav1.ConditionFalse, dmv1.ReasonPasswordRefused, "kubectl label secret mine dmindex.io/password-of=demo")
	c.patch("mine", mine, func() { mine.Labels = map[string]string{dmv1.LabelPasswordOf: "demo"} })
	c.touch("shop")
	c.given("shop", 1)
	c.readUsers()
	c.ready("shop", metav1.ConditionTrue, dmv1.ReasonUserKnown, "")
	const first, second = "correct horse battery staple", "another horse, another staple"
	if got := c.secret("shop-user", "password"); got != first {
		t.Fatalf("programs have %q", got)
	}
	c.patch("mine", mine, func() { mine.Data["password"] = []byte(second) })
	c.touch("shop")
	text := c.given("shop", 2)
	if got := c.secret("shop-user", "password"); got != first {
		t.Fatalf("programs have %q, which servers may not know", got)
	}
	c.readUsers()
	c.eventually("programs have the next password", func() string {
		if got := c.secret("shop-user", "password"); got != second {
			return got
		}
		return ""
	})
	if c.usersFile() != text {
		t.Errorf("not both are right: %q", c.usersFile())
	}
	c.delete(mine)
	c.touch("shop")
	c.eventually("the user goes on without its Secret, and says so", func() string {
		u = c.user("shop")
		if c := u.Status.Conditions; len(c) != 2 || c[0].Status != metav1.ConditionTrue || c[1].Status != metav1.ConditionTrue || c[1].Reason != dmv1.ReasonSecretMissing {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	// The operator's own Secrets are no passwords, whoever asks.
	c.patch("shop", u, func() { u.Spec.PasswordSecret = &dmv1.UserPassword{Name: "demo-conn", Key: "password"} })
	c.eventually("the password of the user default is not taken", func() string {
		u = c.user("shop")
		if c := u.Status.Conditions; c[1].Reason != dmv1.ReasonPasswordRefused || !strings.Contains(c[1].Message, "the operator's own") {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	if got := c.secret("shop-user", "password"); got != second {
		t.Errorf("programs have %q", got)
	}
}

// TestUserOfAnIndexMadeAgain: the user goes on with its password. The index's former Secrets are
// gone, as the garbage collector has it.
func TestUserOfAnIndexMadeAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(0)
	c.create(index, "demo")
	c.available("demo")
	c.create(dmuser, "shop")
	c.given("shop", 1)
	c.readUsers()
	c.ready("shop", metav1.ConditionTrue, dmv1.ReasonUserKnown, "")
	password := c.secret("shop-user", "password")

	c.delete(c.index("demo"))
	c.gone("demo", &dmv1.DMIndex{})
	c.ready("shop", metav1.ConditionFalse, dmv1.ReasonIndexMissing, "there is no DMIndex demo")
	for _, name := range []string{"demo-dmusers", "demo-conn", "demo-ca", "demo-auth"} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}}
		c.delete(s)
	}
	if err := c.get("demo-dmusers", &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the file is made again for an index that is not there: %v", err)
	}
	for _, pool := range []string{"demo-compute", "demo-memory"} {
		for _, p := range c.pods(pool) {
			c.deletePod(p)
		}
	}
	c.create(index, "demo")
	if text := c.given("shop", 1); !strings.Contains(text, passwords.DigestOf(password)) {
		t.Errorf("the user lost its password: %q", text)
	}
}
