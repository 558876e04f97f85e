package user

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/controllers/internal/build"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/passwords"
)

// Limits of the DMUsers of an index. Servers take 4,096 users and 1 MiB, and a Secret has no more.
const (
	mostUsers = 256
	mostBytes = 512 << 10 // of their lines, with as many passwords as they may get
)

// scope is what was gathered about the users of one index, and what is decided.
type scope struct {
	key       types.NamespacedName
	index     *dmv1.DMIndex   // nil = there is none, or it is gone but for its object
	conn      *corev1.Secret  // <index>-conn; nil = the index has none yet
	inFile    map[string]bool // names in the administrator's file
	users     []person        // the oldest first
	storedACL string
	now       time.Time

	late  []string // servers that have not read storedACL, and why that may be
	known bool     // all servers have
	acl   string
}

// person is one DMUser.
type person struct {
	object    *dmv1.DMUser
	stored    record
	password  string // that programs have; empty = none
	secretUID types.UID
	given     string        // the password of spec.passwordSecret
	trouble   *outcome.Wait // why the Secrets are not as they should be: the passwords stay

	refusal *outcome.Wait // why it is not in the file
	rules   string
	step    passwords.Step
	record  record
}

// record is what is stored of one DMUser, by its UID: one that is made anew begins anew.
type record struct {
	Passwords passwords.State `json:"passwords"`
	// Served is a hash of the rules that all servers knew at one time.
	Served string `json:"served,omitempty"`
}

// admit says which users are to be in the file. The oldest come first, so nobody is kept out by one
// that is made later; a user whose Secrets are not there yet has its place, too.
func (s *scope) admit() {
	taken, places, size := map[string]string{}, 0, 0
	for i := range s.users {
		u := &s.users[i]
		if u.rules, u.refusal = s.judge(u, taken); u.refusal != nil {
			continue
		}
		most := len(build.UserLine(u.object.UserName(), u.rules, make([]string, passwords.Most))) + passwords.Most*sha256.Size*2
		if places == mostUsers || size+most > mostBytes {
			u.refusal = outcome.WaitFor(dmv1.ReasonTooManyUsers, fmt.Sprintf("index %s has %d DMUsers with lines of up to %d bytes before this one, and may have %d with %d: delete some, or write shorter rules",
				s.key.Name, places, size, mostUsers, mostBytes), 0)
			continue
		}
		places, size = places+1, size+most
	}
}

// decide says what is in the file, and with which passwords, of the users that admit lets in. It
// changes nothing but what is decided, and gives the same when it is called again with the same.
func (s *scope) decide() {
	var lines []string
	for i := range s.users {
		u := &s.users[i]
		if u.record, u.step = u.stored, (passwords.Step{}); u.refusal != nil {
			u.record.Passwords = u.record.Passwords.Expire(s.now)
			continue
		}
		s.decidePasswords(u)
		if len(u.step.Digests) == 0 {
			continue
		}
		line := build.UserLine(u.object.UserName(), u.rules, u.step.Digests)
		if s.known {
			u.record.Served = hashOf(u.rules)
		}
		lines = append(lines, line)
	}
	s.acl = build.ObjectsACL(lines)
}

// judge says why a user is not in the file; nil = it is, with these rules. taken are the names of
// older ones.
func (s *scope) judge(u *person, taken map[string]string) (rules string, refusal *outcome.Wait) {
	name := u.object.UserName()
	older := taken[name]
	if older == "" {
		taken[name] = u.object.Name
	}
	switch {
	case name == "default":
		return "", outcome.WaitFor(dmv1.ReasonRulesRefused, "the user default is the index's own: write another spec.name", 0)
	case s.inFile[name]:
		return "", outcome.WaitFor(dmv1.ReasonNameTaken, fmt.Sprintf("the file in the Secret %s has the user %s, who is as that file says: take it out there, or write another spec.name in a new DMUser", build.UsersName(s.key.Name), name), 0)
	case older != "":
		return "", outcome.WaitFor(dmv1.ReasonNameTaken, fmt.Sprintf("DMUser %s, which is older, is the user %s of index %s: delete it, or write another spec.name in a new DMUser", older, name, s.key.Name), 0)
	}
	rules, err := build.UserRules(u.object, s.index)
	switch {
	case err != nil:
		return "", outcome.WaitFor(dmv1.ReasonRulesRefused, err.Error(), 0)
	case u.object.Spec.Disabled:
		return "", outcome.WaitFor(dmv1.ReasonUserDisabled, "spec.disabled is set: nobody can log in as "+name, 0)
	}
	return rules, nil
}

// decidePasswords makes a step towards the password that a user is to have. Where the Secrets are
// not as they should be, the passwords that servers know stay, and none is made.
func (s *scope) decidePasswords(u *person) {
	p := u.record.Passwords
	if u.trouble != nil {
		p = p.Expire(s.now)
		u.step = passwords.Step{After: p, Digests: p.Digests(), NextLook: p.NextLook(s.now)}
		u.record.Passwords = p
		return
	}
	v := passwords.View{
		Password: u.password, Request: u.object.Annotations[dmv1.AnnotationRotatePassword],
		Grace: grace(u.object), Now: s.now, Create: rand.Text,
		Known: func([]string) bool { return s.known },
	}
	if u.given != "" {
		digest, shown := passwords.DigestOf(u.given), passwords.DigestOf(u.password)
		v.Request, v.Create = digest, func() string { return u.given }
		next := "" // nobody has it, unless the pass ended that gave it to programs
		if p.Next != "" {
			next = passwords.DigestOf(p.Next)
		}
		if next != digest && next != shown {
			p.Next, p.For = "", "" // it was changed again
		}
		if p.Current != "" && shown != p.Current && shown != next {
			v.Password = "" // somebody wrote it by hand, and spec.passwordSecret says another one
		}
	}
	u.step = p.Decide(v)
	u.record.Passwords = u.step.After
}

// pending reports whether something waits for servers to read the file.
func (s *scope) pending() bool {
	for i := range s.users {
		if u := &s.users[i]; u.refusal == nil && len(u.step.Digests) > 0 && (u.step.Waits || u.record.Served != hashOf(u.rules)) {
			return true
		}
	}
	return false
}

// next is when the users are looked at again. No event tells of the administrator's file and of
// Secrets with passwords: they are read again, the more of them the more seldom.
func (s *scope) next() time.Duration {
	if len(s.users) == 0 {
		return 0 // an event tells of the first one
	}
	next := outcome.Recheck * time.Duration(1+min(len(s.users), mostUsers)/32)
	if s.conn != nil && s.pending() {
		next = outcome.RequeueSoon
	}
	for i := range s.users {
		if after := s.users[i].step.NextLook; after > 0 {
			next = min(next, after)
		}
		if t := s.users[i].trouble; t != nil && t.After > 0 {
			next = min(next, t.After)
		}
	}
	return next
}

// grace is for how long a former password of a user is right.
func grace(u *dmv1.DMUser) time.Duration {
	if seconds := u.Spec.PasswordGraceSeconds; seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return time.Hour
}

func hashOf(rules string) string {
	hash, _ := kube.Hash(rules) // a text is always JSON
	return hash
}
