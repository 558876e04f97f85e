package users_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/computeserver/users"
)

func digest(password string) string {
	d := sha256.Sum256([]byte(password))
	return hex.EncodeToString(d[:])
}

// TestRightsToChannels reads one line and asks which channels the user may use: a trailing star
// stands for all that begin so.
func TestRightsToChannels(t *testing.T) {
	f := func(name, rules, may, mayNot string) {
		t.Helper()
		all, err := users.Parse([]byte("user " + name + " " + rules))
		if err != nil {
			t.Errorf("%q: %v", rules, err)
			return
		}
		check := func(channels string, want bool) {
			for _, channel := range strings.Fields(channels) {
				got := all[name].MayUseChannel([]byte(channel))
				if prefix, pattern := strings.CutSuffix(channel, "*"); pattern {
					got = all[name].MayUseChannelsFrom([]byte(prefix))
				}
				if got != want {
					t.Errorf("%q: may use %q: %v", rules, channel, got)
				}
			}
		}
		check(may, true)
		check(mayNot, false)
	}
	f("a", "~* +@all", "", "x *")
	f("a", "~* +@all allchannels", "x *", "")
	f("a", "+@pubsub &*", "x * a*", "")
	f("a", "~* +@read +@write allchannels", "", "x *")
	f("a", "~* +@all -@pubsub allchannels", "", "x *")
	f("a", "+@all &news:* &one", "news:1 news: news:* news:a* one", "news one1 one* new* * x")
	f("a", "+@all &news:* resetchannels &x", "x", "news:1 x*")
	f("a", "+@all allchannels nocommands", "", "x")
	f("a", "+@all allchannels reset", "", "x")
	f("default", "~* +@all", "x *", "")
	f("default", "~* +@all resetchannels", "", "x *")
}

// TestRights reads one line and asks what the user may do.
func TestRights(t *testing.T) {
	f := func(rules, mayRead, mayWrite, mayNeither string) {
		t.Helper()
		all, err := users.Parse([]byte("user a " + rules))
		if err != nil {
			t.Errorf("%q: %v", rules, err)
			return
		}
		u := all["a"]
		for _, key := range strings.Fields(mayRead) {
			if !u.MayRead([]byte(key)) {
				t.Errorf("%q: may not read %q", rules, key)
			}
		}
		for _, key := range strings.Fields(mayWrite) {
			if !u.MayWrite([]byte(key)) {
				t.Errorf("%q: may not write %q", rules, key)
			}
		}
		for _, key := range strings.Fields(mayNeither) {
			if u.MayRead([]byte(key)) || u.MayWrite([]byte(key)) {
				t.Errorf("%q: may read or write %q", rules, key)
			}
		}
	}
	f("", "", "", "x orders:1")
	f("on nopass", "", "", "x orders:1")
	f("~* +@all", "x orders:1", "x orders:1", "")
	f("allkeys allcommands", "x", "x", "")
	f("~orders:* +@all", "orders:1 orders:", "orders:1 orders:", "x order orders")
	f("~orders:* ~users:* +@all", "orders:1 users:1", "orders:1 users:1", "x")
	f("~orders:* +@all resetkeys ~users:*", "", "", "")
	f("~orders:* +@all resetkeys ~users:* +@all", "users:1", "users:1", "orders:1")
	f("~* +@all nocommands", "", "", "x")
	f("~* +@all reset", "", "", "x")
	f("~* +@all &* resetchannels allchannels", "x", "x", "")
	f("%RW~a* +@all", "a1", "a1", "b")

	one := func(rules, key string, read, write bool) {
		t.Helper()
		all, err := users.Parse([]byte("user a " + rules))
		if err != nil {
			t.Fatalf("%q: %v", rules, err)
		}
		if u := all["a"]; u.MayRead([]byte(key)) != read || u.MayWrite([]byte(key)) != write {
			t.Errorf("%q, key %q: may read %v, may write %v", rules, key, u.MayRead([]byte(key)), u.MayWrite([]byte(key)))
		}
	}
	one("~* +@read", "x", true, false)
	one("~* +@write", "x", false, true)
	one("~* +@all -@write", "x", true, false)
	one("~* +@all -@read", "x", false, true)
	one("%R~a* %W~b* +@all", "a", true, false)
	one("%r~a* %w~b* +@all", "b", false, true)
	one("%R~a* %W~ab* +@all", "abc", true, true)
	one("%R~* %W~b* +@all", "a", true, false)
}

func TestParseRefuses(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := users.Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v; want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows the password: %v", text, err)
		}
	}
	f("usr a on", "line 1 of the ACL file does not begin with")
	f("user", "line 1 of the ACL file does not begin with")
	f("\n# ours\nuser a on\n\nuser a off", `line 5 of the ACL file: the user "a" is there twice`)
	f("user a on >hunter2 hunter2", "rule 3 of the user \"a\": there is no such rule")
	f("user a +get", "by @read, @write, @pubsub and @all only")
	f("user a &a*b", "channels are given by a name, or by a prefix and one star at the end")
	f("user a &a?", "channels are given by a name")
	f("user a"+strings.Repeat(" &x", 65), "at most 64 rules for channels")
	f("user a -@dangerous", "by @read, @write, @pubsub and @all only")
	f("user a ~a*b", "a prefix and one star at the end")
	f("user a ~orders", "a prefix and one star at the end")
	f("user a ~[ab]*", "a prefix and one star at the end")
	f("user a %X~a*", "is not a rule for keys")
	f("user a %Ra*", "is not a rule for keys")
	f("user a #12", "64 hexadecimal digits")
	f("user a #"+strings.Repeat("x", 64), "hexadecimal digits only")
	f("user a >", "the password is empty")
	f("user a #e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "the password is empty")
	f("user a"+strings.Repeat(" ~a*", 65), "at most 64 prefixes")
	var passwords, many strings.Builder
	for i := range 17 {
		fmt.Fprintf(&passwords, " >p%d", i)
	}
	f("user a"+passwords.String(), "at most 16 passwords")
	for i := range 4097 {
		fmt.Fprintf(&many, "user u%d on\n", i)
	}
	f(many.String(), "more than 4096 users")
	f(strings.Repeat(" ", 1<<20+1), "at most 1048576 are read")
}

func FuzzParse(f *testing.F) {
	f.Add("user a on >b ~c* +@read", "c1")
	f.Add("# x\nuser a on nopass %R~c* allcommands\nuser b reset", "c")
	f.Fuzz(func(t *testing.T, text, key string) {
		all, err := users.Parse([]byte(text))
		if err != nil {
			return
		}
		for name, u := range all {
			if u.Name() != name {
				t.Fatalf("%q has the name %q", name, u.Name())
			}
			if u.ReadsAll() && !u.MayRead([]byte(key)) {
				t.Fatalf("%q reads everything, but not %q", name, key)
			}
		}
	})
}
