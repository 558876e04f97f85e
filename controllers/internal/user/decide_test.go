package user

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/passwords"
)

// newUser is a DMUser that may read and write the keys cart:*.
func newUser(name string) *dmv1.DMUser {
	u := &dmv1.DMUser{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid of " + name), Generation: 1}}
	u.Spec = dmv1.DMUserSpec{Index: "demo", Keys: []dmv1.UserKeys{{Prefix: "cart:", Access: dmv1.AccessReadWrite}}, PasswordGraceSeconds: 600}
	return u
}

// newScope is an index with users whose programs have passwords that servers know.
func newScope(all ...*dmv1.DMUser) *scope {
	index := &dmv1.DMIndex{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "ns", UID: "i"}}
	index.Spec.Key = dmv1.KeySpec{Type: dmv1.KeyBytes, MaxLength: ptr.To(int32(32))}
	s := &scope{key: types.NamespacedName{Namespace: "ns", Name: "demo"}, index: index, conn: &corev1.Secret{}, inFile: map[string]bool{}, now: time.Unix(1e9, 0), known: true}
	for _, o := range all {
		u := person{object: o, password: "the password of " + o.Name}
		u.stored.Passwords.Current = passwords.DigestOf(u.password)
		s.users = append(s.users, u)
	}
	return s
}

// file decides, and reads the file as servers do.
func file(t *testing.T, s *scope) map[string]*users.User {
	t.Helper()
	s.admit()
	s.decide()
	all, err := users.Parse([]byte(s.acl))
	if err != nil {
		t.Fatalf("servers cannot read %q: %v", s.acl, err)
	}
	return all
}

// TestRefusals: a user that cannot be served is not in the file, its conditions say why and what to
// do, and the one beside it is served.
func TestRefusals(t *testing.T) {
	f := func(name string, change func(*scope, *dmv1.DMUser), reason, message string) {
		t.Helper()
		good, bad := newUser("good"), newUser("bad")
		s := newScope(good, bad)
		change(s, bad)
		all := file(t, s)
		if all["good"] == nil || len(all) != 1 {
			t.Errorf("%s: the file is %q", name, s.acl)
		}
		for i := range s.users {
			s.summarize(&s.users[i], nil)
		}
		if c := good.Status.Conditions; c[0].Status != metav1.ConditionTrue || c[1].Status != metav1.ConditionFalse {
			t.Errorf("%s: the user beside it is %+v", name, c)
		}
		ready, degraded := bad.Status.Conditions[0], bad.Status.Conditions[1]
		if ready.Status != metav1.ConditionFalse || ready.Reason != reason || !strings.Contains(ready.Message, message) {
			t.Errorf("%s: %+v", name, ready)
		}
		if want := reason != dmv1.ReasonUserDisabled; (degraded.Status == metav1.ConditionTrue) != want || want && degraded.Reason != reason {
			t.Errorf("%s: %+v", name, degraded)
		}
		if s.users[1].record.Passwords.Current != s.users[1].stored.Passwords.Current {
			t.Errorf("%s: it loses its password", name)
		}
	}
	f("in the file", func(s *scope, u *dmv1.DMUser) { s.inFile["bad"] = true }, dmv1.ReasonNameTaken, "the Secret demo-users has the user bad")
	f("of an older one", func(_ *scope, u *dmv1.DMUser) { u.Spec.Name = "good" }, dmv1.ReasonNameTaken, "DMUser good, which is older")
	f("default", func(_ *scope, u *dmv1.DMUser) { u.Spec.Name = "default" }, dmv1.ReasonRulesRefused, "another spec.name")
	f("disabled", func(_ *scope, u *dmv1.DMUser) { u.Spec.Disabled = true }, dmv1.ReasonUserDisabled, "spec.disabled")
	f("longer than keys", func(_ *scope, u *dmv1.DMUser) { u.Spec.Keys[0].Prefix = strings.Repeat("x", 33) }, dmv1.ReasonRulesRefused, "at most 32")
	f("an access that is none", func(_ *scope, u *dmv1.DMUser) { u.Spec.Keys[0].Access = "All" }, dmv1.ReasonRulesRefused, "write Read, Write or ReadWrite")
	f("an access to all that is none", func(_ *scope, u *dmv1.DMUser) { u.Spec.AllKeys = "All" }, dmv1.ReasonRulesRefused, "write Read, Write or ReadWrite")

	// Texts that got past the API server become no rules, and no users.
	for _, text := range []string{"", "*", "a*", "a b", "a\t+@all", "a +@all", "a +@all", "a\u0085~*", "a\nuser evil on nopass ~* +@all", "a\r", "[a]", "a?", `a\`, "a\x00", "\xff"} {
		f(fmt.Sprintf("prefix %q", text), func(_ *scope, u *dmv1.DMUser) { u.Spec.Keys[0].Prefix = text }, dmv1.ReasonRulesRefused, "cannot be one of keys")
		if text != "" {
			f(fmt.Sprintf("name %q", text), func(_ *scope, u *dmv1.DMUser) { u.Spec.Name = text }, dmv1.ReasonRulesRefused, "characters that users cannot have")
		}
		f(fmt.Sprintf("channel %q", text), func(_ *scope, u *dmv1.DMUser) { u.Spec.Channels = []dmv1.UserChannels{{Name: text}} }, dmv1.ReasonRulesRefused, "cannot be the name of a channel")
		if text != "" {
			f(fmt.Sprintf("channels %q", text), func(_ *scope, u *dmv1.DMUser) { u.Spec.Channels = []dmv1.UserChannels{{Prefix: text}} }, dmv1.ReasonRulesRefused, "cannot be the name of a channel")
		}
	}

	alone := newScope(newUser("bad"))
	alone.index.Spec.Key = dmv1.KeySpec{Type: dmv1.KeyUint64}
	if len(file(t, alone)) != 0 || !strings.Contains(alone.users[0].refusal.Message, "write allKeys") {
		t.Errorf("a prefix of integers: %q", alone.acl)
	}
}

// TestRules: the rights in the file are those of the fields, and no others.
func TestRules(t *testing.T) {
	u := newUser("u")
	u.Spec.Keys = []dmv1.UserKeys{{Prefix: "r:", Access: dmv1.AccessRead}, {Prefix: "w:", Access: dmv1.AccessWrite}, {Prefix: "é:", Access: dmv1.AccessReadWrite}}
	u.Spec.Channels = []dmv1.UserChannels{{Name: "one"}, {Prefix: "many:"}}
	got := file(t, newScope(u))["u"]
	for key, want := range map[string][2]bool{"r:1": {true, false}, "w:1": {false, true}, "é:1": {true, true}, "x": {}, "": {}} {
		if got.MayRead([]byte(key)) != want[0] || got.MayWrite([]byte(key)) != want[1] {
			t.Errorf("%s: may read %v, may write %v", key, got.MayRead([]byte(key)), got.MayWrite([]byte(key)))
		}
	}
	for channel, want := range map[string]bool{"one": true, "one1": false, "many:1": true, "x": false} {
		if got.MayUseChannel([]byte(channel)) != want {
			t.Errorf("channel %s: %v", channel, !want)
		}
	}
	u.Spec = dmv1.DMUserSpec{Index: "demo", AllKeys: dmv1.AccessRead, Keys: []dmv1.UserKeys{{Prefix: "w:", Access: dmv1.AccessWrite}}}
	got = file(t, newScope(u))["u"]
	if !got.ReadsAll() || got.MayWrite([]byte("x")) || !got.MayWrite([]byte("w:")) || got.MayUseChannels() {
		t.Error("a user that reads all and writes some may do something else")
	}
	u.Spec = dmv1.DMUserSpec{Index: "demo", AllChannels: true}
	got = file(t, newScope(u))["u"]
	if got.MayRead([]byte("x")) || got.MayWrite([]byte("x")) || !got.MayUseChannelsFrom(nil) {
		t.Error("a user of channels may do something else")
	}
}

// TestLimits: the oldest users are served, whoever makes more.
func TestLimits(t *testing.T) {
	var all []*dmv1.DMUser
	for i := range mostUsers + 2 {
		all = append(all, newUser(fmt.Sprintf("u%03d", i)))
	}
	s := newScope(all...)
	s.users[3].object.Spec.Disabled = true // it takes no place
	if n := len(file(t, s)); n != mostUsers {
		t.Errorf("%d users are served", n)
	}
	if u := &s.users[mostUsers]; u.refusal != nil {
		t.Errorf("the last one with a place: %v", u.refusal)
	}
	if u := &s.users[mostUsers+1]; u.refusal == nil || u.refusal.Reason != dmv1.ReasonTooManyUsers {
		t.Errorf("one too many: %v", u.refusal)
	}

	for _, u := range all {
		for i := range 32 {
			u.Spec.Channels = append(u.Spec.Channels, dmv1.UserChannels{Prefix: strings.Repeat("x", 250) + fmt.Sprint(i)})
		}
	}
	s = newScope(all...)
	if got := file(t, s); len(s.acl) > mostBytes || len(got) < 32 || got["u000"] == nil {
		t.Errorf("%d users with %d bytes", len(got), len(s.acl))
	}
	if u := &s.users[mostUsers]; u.refusal == nil || u.refusal.Reason != dmv1.ReasonTooManyUsers {
		t.Errorf("one too long: %v", u.refusal)
	}
}

// TestGivenPassword is the table of what a Secret of people may have.
func TestGivenPassword(t *testing.T) {
	u := newUser("u")
	u.Spec.PasswordSecret = &dmv1.UserPassword{Name: "mine"}
	const good = "0123456789abcdef"
	f := func(name string, labels map[string]string, data map[string][]byte, reason, message string) {
		t.Helper()
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: labels}, Data: data}
		password, trouble := givenPassword(u, s)
		if password != "" || trouble == nil || trouble.Reason != reason || !strings.Contains(trouble.Message, message) {
			t.Errorf("%s: %q, %+v", name, password, trouble)
		}
		if trouble != nil && strings.Contains(trouble.Message, good) {
			t.Errorf("%s: the message shows what the Secret has", name)
		}
	}
	ours := map[string]string{dmv1.LabelPasswordOf: "demo"}
	key := func(text string) map[string][]byte { return map[string][]byte{"password": []byte(text)} }
	if password, trouble := givenPassword(u, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: ours}, Data: key(good + "\n")}); password != good || trouble != nil {
		t.Errorf("%q, %v", password, trouble)
	}
	if _, trouble := givenPassword(u, nil); trouble == nil || trouble.Reason != dmv1.ReasonSecretMissing || !strings.Contains(trouble.Message, "make it") {
		t.Errorf("no Secret: %v", trouble)
	}
	f("no label", nil, key(good), dmv1.ReasonPasswordRefused, "kubectl label secret mine dmindex.io/password-of=demo")
	f("of another index", map[string]string{dmv1.LabelPasswordOf: "other"}, key(good), dmv1.ReasonPasswordRefused, "not for users of index demo")
	f("the operator's", map[string]string{dmv1.LabelPasswordOf: "demo", dmv1.LabelManagedBy: dmv1.ManagedBy}, key(good), dmv1.ReasonPasswordRefused, "operator's own")
	f("no key", ours, map[string][]byte{"other": []byte(good)}, dmv1.ReasonSecretMissing, "has no key password")
	f("empty", ours, key(" \n"), dmv1.ReasonPasswordRefused, "has 0 bytes")
	f("short", ours, key(good[1:]+"\n"), dmv1.ReasonPasswordRefused, "has 15 bytes")
	f("long", ours, key(strings.Repeat("x", 513)), dmv1.ReasonPasswordRefused, "has 513 bytes")
	f("two lines", ours, key(good+"\n"+good), dmv1.ReasonPasswordRefused, "control characters")
}

// TestTroubleKeepsPasswords: a Secret that cannot be read takes no password away, and ends no grace
// later. A user that never had a password has none.
func TestTroubleKeepsPasswords(t *testing.T) {
	s := newScope(newUser("had"), newUser("new"))
	s.users[0].stored.Passwords.Former = []passwords.Former{{Digest: passwords.DigestOf("former"), Until: s.now.Add(time.Minute)}}
	s.users[1].stored, s.users[1].password = record{}, ""
	for i := range s.users {
		s.users[i].trouble = outcome.WaitFor(dmv1.ReasonSecretMissing, "there is no Secret", 0)
	}
	if all := file(t, s); all["had"] == nil || len(all) != 1 || strings.Count(s.acl, " #") != 2 || s.next() != outcome.Recheck {
		t.Errorf("the file is %q, and it is read again in %v", s.acl, s.next())
	}
	for i := range s.users {
		s.summarize(&s.users[i], nil)
	}
	for i, want := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
		if c := s.users[i].object.Status.Conditions; c[0].Status != want || c[1].Status != metav1.ConditionTrue || c[1].Reason != dmv1.ReasonSecretMissing {
			t.Errorf("user %d: %+v", i, c)
		}
	}
	s.now = s.now.Add(time.Minute)
	if file(t, s); strings.Count(s.acl, " #") != 1 {
		t.Errorf("the former password does not end: %q", s.acl)
	}
}

// TestGivenPasswordChanges follows spec.passwordSecret: both are right for the grace. One that was
// changed again before servers knew it is nobody's, and one written by hand into the Secret of
// programs does not last.
func TestGivenPasswordChanges(t *testing.T) {
	s := newScope(newUser("u"))
	u := &s.users[0]
	first := u.password
	right := func(want ...string) {
		t.Helper()
		s.decide()
		for _, p := range want {
			if !strings.Contains(s.acl, passwords.DigestOf(p)) {
				t.Errorf("%q is not right: %q", p, s.acl)
			}
		}
		if n := strings.Count(s.acl, " #"); n != len(want) {
			t.Errorf("%d passwords are right, not %d", n, len(want))
		}
	}
	step := func(known bool, want ...string) {
		t.Helper()
		s.known = known
		right(want...)
		if u.step.Publish != "" {
			u.password = u.step.Publish
		}
		u.stored = u.record
	}
	step(true, first)
	u.given = "given, the first"
	step(false, first, u.given)
	if u.password != first {
		t.Fatal("programs have a password that servers may not know")
	}
	u.given = "given, the second"
	step(false, first, u.given)
	step(true, first, u.given)
	if u.password != u.given {
		t.Fatalf("programs have %q", u.password)
	}
	s.now = s.now.Add(10*time.Minute - time.Second)
	step(true, first, u.given)
	if s.next() != time.Second {
		t.Errorf("it is looked at again in %v", s.next())
	}
	s.now = s.now.Add(time.Second)
	step(true, u.given)

	u.password = "by hand"
	step(true, u.given)
	if u.password != u.given {
		t.Errorf("programs have %q", u.password)
	}
	u.password = "" // the Secret was deleted
	step(true, u.given)
	if u.password != u.given {
		t.Errorf("programs have %q", u.password)
	}

	// The pass ends between the two Secrets, and the password is changed again.
	u.given = "given, the third"
	step(false, "given, the second", u.given)
	s.known = true
	s.decide()
	u.password, u.given = u.step.Publish, "given, the fourth"
	step(false, "given, the second", "given, the third", "given, the fourth")
	step(true, "given, the second", "given, the third", "given, the fourth")
	if u.password != u.given {
		t.Errorf("programs have %q", u.password)
	}
}

// TestDecideIsSteady: the same objects give the same file, whatever their order.
func TestDecideIsSteady(t *testing.T) {
	a, b := newUser("a"), newUser("b")
	one, two := newScope(a, b), newScope(b, a)
	file(t, one)
	file(t, two)
	if one.acl != two.acl {
		t.Errorf("%q and %q", one.acl, two.acl)
	}
	before := one.acl
	if one.decide(); one.acl != before || one.pending() {
		t.Errorf("%q and %q; it waits: %v", before, one.acl, one.pending())
	}
}

// FuzzUser: whatever the texts of a DMUser are, it is refused, or servers read one user of its
// name, beside the others. It may read no key without the prefix.
func FuzzUser(f *testing.F) {
	f.Add("shop", "cart:", "orders:")
	f.Add("a b", "a\nuser evil on nopass ~* +@all", "#")
	f.Add("x", "~", "%R~")
	f.Fuzz(func(t *testing.T, name, prefix, channel string) {
		u := newUser("fuzzed")
		u.Spec.Name, u.Spec.Keys[0].Prefix = name, prefix
		u.Spec.Channels = []dmv1.UserChannels{{Name: channel}, {Prefix: channel}}
		s := newScope(newUser("other"), u)
		all := file(t, s)
		if all["other"] == nil {
			t.Fatalf("another user is gone: %q", s.acl)
		}
		if s.users[1].refusal != nil {
			if len(all) != 1 {
				t.Fatalf("it is refused, and the file is %q", s.acl)
			}
			return
		}
		got := all[u.UserName()]
		if len(all) != 2 || got == nil || got.ReadsAll() || !got.MayRead([]byte(prefix)) || got.MayRead([]byte("\x00")) || got.MayUseChannelsFrom(nil) {
			t.Fatalf("the file is %q", s.acl)
		}
	})
}
