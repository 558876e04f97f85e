// Package passwords decides how the password of a user changes while programs go on: that of the
// user default of an index, and those of DMUsers.
package passwords

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/pkg/identity"
)

// State is what the operator knows of the passwords of a user. It is kept in the Secret with the
// digests that compute servers read; another Secret, of programs, has the password. A rotation goes
// like this, so that a program which reads its Secret again when it connects notices nothing:
//
//  1. A new password is made, and its digest is given to the compute servers beside the present
//     one. It is not told to programs yet: a server that does not know it would refuse them.
//  2. Every compute server that is ready has read both digests. The new password is written into
//     the Secret of programs. The former one is still right.
//  3. The grace is over. The former digest is taken away, and servers cut connections with it.
//
// Each step is decided from what is stored, so an operator that dies goes on where it was. If it
// dies between writing the Secret of programs and the state, the password there is the next one
// already, and step 2 is completed. A password that somebody wrote into the Secret of programs by
// hand takes effect without step 1: programs may be refused until all servers have read it. A user
// whose programs have no password yet begins with step 1.
type State struct {
	// Done is the request (View.Request) that was carried out last.
	Done string `json:"done,omitempty"`
	// Current is the digest of the password that programs have.
	Current string `json:"current,omitempty"`
	// Next is a new password that programs do not know yet.
	Next string `json:"next,omitempty"`
	// For is the request that Next is made for.
	For string `json:"for,omitempty"`
	// Former are digests that are right for some time yet, the oldest first.
	Former []Former `json:"former,omitempty"`
}

// Former is a password that was replaced.
type Former struct {
	Digest string    `json:"digest"`
	Until  time.Time `json:"until"`
}

// formerMost bounds Former. A server takes 16 passwords of a user.
const formerMost = 8

// Most is how many passwords of a user can be right at one time.
const Most = formerMost + 2

// View is what the next step is decided from.
type View struct {
	Password string // that programs have; empty = they have none yet
	Request  string // a new value asks for a new password
	Grace    time.Duration
	Now      time.Time
	// Known reports whether all compute servers that are ready know exactly these digests.
	Known func(digests []string) bool
	// Create returns a new password.
	Create func() string
}

// Step is what is to be done. After is written last: it and the digests are one Secret.
type Step struct {
	After    State
	Digests  []string      // of the passwords that are right, ascending
	Publish  string        // not empty: the password to give to programs
	Rotated  bool          // a request was carried out
	Waits    bool          // for compute servers to know the digests
	NextLook time.Duration // when a former password ends; 0 = never
}

// Decide makes one step. It changes nothing.
func (p State) Decide(v View) Step {
	p.Former = slices.Clone(p.Former)
	given := DigestOf(v.Password)
	switch {
	case v.Password == "":
		if p.Next == "" {
			p.Next, p.For = v.Create(), v.Request
		}
	case p.Current == "" && p.Next == "":
		p.Current = given
	case p.Current != given:
		p.replace(given, v)
		if p.Next != "" && given == DigestOf(p.Next) {
			p.Done, p.Next, p.For = p.For, "", ""
		}
	}
	if v.Password != "" && p.Next != "" && v.Request != p.For && (v.Request == "" || v.Request == p.Done) {
		p.Next, p.For = "", "" // the request was taken back
	}
	p = p.Expire(v.Now)
	if v.Request != "" && v.Request != p.Done && p.Next == "" && len(p.Former) < formerMost {
		p.Next, p.For = v.Create(), v.Request
	}
	step := Step{Digests: p.Digests()}
	if p.Next != "" {
		if v.Known(step.Digests) {
			step.Publish, step.Rotated = p.Next, true
			p.replace(DigestOf(p.Next), v)
			p.Done, p.Next, p.For = p.For, "", ""
		} else {
			step.Waits = true
		}
	}
	step.After, step.NextLook = p, p.NextLook(v.Now)
	return step
}

// NextLook is when a former password ends; 0 = never.
func (p State) NextLook(now time.Time) (next time.Duration) {
	for _, f := range p.Former {
		if left := f.Until.Sub(now); next == 0 || left < next {
			next = left
		}
	}
	return next
}

// Expire takes away the former passwords whose grace is over.
func (p State) Expire(now time.Time) State {
	p.Former = slices.DeleteFunc(slices.Clone(p.Former), func(f Former) bool { return !f.Until.After(now) || f.Digest == p.Current })
	return p
}

// Stored is a state that was read from a Secret: no former password is right for longer than the
// grace from when it was stored, whatever the clock said then.
func (p State) Stored(secret client.Object, grace time.Duration, now time.Time) State {
	p.Former = slices.Clone(p.Former)
	for i, f := range p.Former {
		p.Former[i].Until = kube.Stamp(secret, kube.Owner, f.Until.Add(-grace), now).Add(grace)
	}
	return p
}

// replace makes another digest the current one.
func (p *State) replace(digest string, v View) {
	// an older operator may have stored the digest of an empty one
	if p.Current != "" && p.Current != DigestOf("") {
		p.Former = append(p.Former, Former{p.Current, v.Now.Add(v.Grace)})
	}
	if n := len(p.Former) - formerMost; n > 0 { // by hand, many times within the grace
		p.Former = p.Former[n:]
	}
	p.Current = digest
}

// Digests are those of the passwords that are right. They are the same before and after the next
// password becomes the current one, so servers that have read them need not read them again.
func (p State) Digests() (all []string) {
	if p.Current != "" {
		all = append(all, p.Current)
	}
	if p.Next != "" {
		all = append(all, DigestOf(p.Next))
	}
	for _, f := range p.Former {
		all = append(all, f.Digest)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// DigestOf is the SHA-256 of a password, as servers compute it: white space at the end does not
// count.
func DigestOf(password string) string {
	d := sha256.Sum256([]byte(identity.TrimPassword(password)))
	return hex.EncodeToString(d[:])
}
