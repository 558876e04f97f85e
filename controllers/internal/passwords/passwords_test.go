package passwords

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/controllers/internal/build"
)

// step is a Step with the file that servers read.
type step struct {
	Step
	acl string
}

// rotation is an index's passwords with what a test says of its servers.
type rotation struct {
	t        *testing.T
	stored   State
	password string // in <index>-conn
	read     string // the ACL file that all servers have read
	request  string
	now      time.Time
	made     int
}

func newRotation(t *testing.T) *rotation {
	return &rotation{t: t, password: "first", now: time.Unix(1e9, 0)}
}

func (r *rotation) decide() step {
	s := r.stored.Decide(View{
		Password: r.password, Request: r.request, Grace: time.Hour, Now: r.now,
		Known:  func(digests []string) bool { return build.DefaultACL(digests) == r.read },
		Create: func() string { r.made++; return fmt.Sprint("made-", r.made) },
	})
	return step{s, build.DefaultACL(s.Digests)}
}

// step decides and does it all.
func (r *rotation) step() step {
	s := r.decide()
	if s.Publish != "" {
		r.password = s.Publish
	}
	r.stored = s.After
	return s
}

// lets asks an ACL file whose passwords are right, the way servers do.
func (r *rotation) lets(acl string, passwords ...string) {
	r.t.Helper()
	all, err := users.Parse([]byte(acl))
	if err != nil || all["default"] == nil {
		r.t.Fatalf("servers cannot read %q: %v", acl, err)
	}
	for _, p := range passwords {
		if !strings.Contains(acl, DigestOf(p)) {
			r.t.Errorf("the password %q is not right: %s", p, acl)
		}
	}
	if n := strings.Count(acl, "#"); n != len(passwords) {
		r.t.Errorf("%d passwords are right, not %d", n, len(passwords))
	}
}

func TestPasswordsOfANewIndex(t *testing.T) {
	r := newRotation(t)
	s := r.step()
	r.lets(s.acl, "first")
	if s.Publish != "" || s.Waits || s.Rotated || s.NextLook != 0 {
		t.Errorf("a new index is not at rest: %+v", s)
	}
	if again := r.step(); again.acl != s.acl {
		t.Errorf("the second look is another one: %+v", again)
	}
}

func TestPasswordRotation(t *testing.T) {
	r := newRotation(t)
	r.read = r.step().acl
	r.request = "monday"
	s := r.step()
	r.lets(s.acl, "first", "made-1")
	if r.password != "first" || !s.Waits {
		t.Fatalf("programs have a password that servers may not know: %+v", s)
	}
	if again := r.step(); again.acl != s.acl || r.made != 1 {
		t.Fatal("each look makes a new password")
	}
	r.read = s.acl
	s = r.step()
	r.lets(s.acl, "first", "made-1")
	if r.password != "made-1" || !s.Rotated || s.NextLook != time.Hour || s.acl != r.read {
		t.Fatalf("all servers know the password, and programs do not: %+v", s)
	}
	r.now = r.now.Add(time.Hour - time.Second)
	if s = r.step(); s.Rotated || s.NextLook != time.Second || r.made != 1 {
		t.Fatalf("one request rotated twice: %+v", s)
	}
	r.lets(s.acl, "first", "made-1")
	r.now = r.now.Add(time.Second)
	s = r.step()
	r.lets(s.acl, "made-1")
	if s.NextLook != 0 {
		t.Errorf("there is nothing left to look at: %+v", s)
	}
	r.request = "tuesday"
	s = r.step()
	r.lets(s.acl, "made-1", "made-2")
}

// TestPasswordRotationIsCut: the operator dies after each write. No password that programs have is
// ever unknown to servers.
func TestPasswordRotationIsCut(t *testing.T) {
	r := newRotation(t)
	r.read = r.step().acl
	r.request = "monday"
	r.decide() // it died before it wrote: the password that it made is nobody's
	s := r.step()
	r.lets(s.acl, "first", "made-2")
	r.read = s.acl
	s = r.decide()
	r.password = s.Publish // it died between the two Secrets
	s = r.step()
	r.lets(s.acl, "first", "made-2")
	if r.password != "made-2" || s.Publish != "" || s.Waits || r.stored.Done != "monday" {
		t.Fatalf("it did not go on where it was: %+v", s)
	}
	r.now = r.now.Add(time.Hour)
	r.lets(r.step().acl, "made-2")
}

// TestPasswordByHand: somebody writes a password into the Secret.
func TestPasswordByHand(t *testing.T) {
	r := newRotation(t)
	r.step()
	r.password = "mine"
	r.lets(r.step().acl, "first", "mine")
	r.request = "monday"
	r.lets(r.step().acl, "first", "mine", "made-1")
	r.password = "other" // in the middle of a rotation
	s := r.step()
	r.lets(s.acl, "first", "mine", "other", "made-1")
	r.read = s.acl
	r.step()
	if r.password != "made-1" {
		t.Errorf("the rotation did not go on: %q", r.password)
	}
	r.now = r.now.Add(time.Hour)
	r.lets(r.step().acl, "made-1")

	// Back to a former one within the grace.
	r.password = "a"
	r.step()
	r.password = "made-1"
	r.lets(r.step().acl, "made-1", "a")
}

// TestEmptyPasswordEnds: one that an older operator took ends at once, without grace.
func TestEmptyPasswordEnds(t *testing.T) {
	r := newRotation(t)
	r.step()
	r.stored.Current = DigestOf(" \n")
	r.lets(r.step().acl, "first")
}

func TestPasswordRequestIsTakenBack(t *testing.T) {
	r := newRotation(t)
	r.step()
	r.request = "monday"
	r.lets(r.step().acl, "first", "made-1")
	r.request = ""
	if s := r.step(); s.Waits {
		t.Errorf("it goes on: %+v", s)
	}
	r.lets(r.step().acl, "first")
}

// TestPasswordsAreBounded: servers take 16 passwords of a user.
func TestPasswordsAreBounded(t *testing.T) {
	r := newRotation(t)
	for i := range 40 {
		r.password, r.request = fmt.Sprint("hand-", i), fmt.Sprint(i)
		s := r.step()
		r.read = s.acl
		s = r.step()
		if n := strings.Count(s.acl, "#"); n > 16 {
			t.Fatalf("%d passwords", n)
		}
		if _, err := users.Parse([]byte(s.acl)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(s.acl, DigestOf(r.password)) {
			t.Fatalf("the password of programs is not right")
		}
	}
}

// TestFirstPassword is made for programs that have none, and they get it when servers know it: also
// where the operator dies between the two Secrets.
func TestFirstPassword(t *testing.T) {
	for _, dies := range []bool{false, true} {
		r := newRotation(t)
		r.password = ""
		s := r.step()
		r.lets(s.acl, "made-1")
		if !s.Waits || r.password != "" {
			t.Fatalf("programs have a password that servers may not know: %+v", s)
		}
		if again := r.step(); again.acl != s.acl {
			t.Fatalf("the second look is another one: %+v", again)
		}
		r.read = s.acl
		if dies {
			r.password = r.decide().Publish
		}
		s = r.step()
		r.lets(s.acl, "made-1")
		if r.password != "made-1" || s.Waits || s.NextLook != 0 || s.acl != r.read {
			t.Fatalf("programs do not have the password, or it has a predecessor: %+v", s)
		}
		r.password = "" // somebody deleted the Secret
		r.lets(r.step().acl, "made-1", "made-2")
	}
}
