// Package authority has the certificate authorities of indexes and of memory pools: it makes them,
// replaces them while requests go on, and issues the certificates of their servers. The steps of a
// replacement, and what is true in each, stand at authorities.
package authority

import (
	"time"

	"github.com/dmindex/dmindex/controllers/internal/outcome"
	"github.com/dmindex/dmindex/controllers/internal/pki"
)

// authorities is what the operator knows of the replacement of the certificate authority of an
// index or a memory pool. It is kept in the Secret <name>-ca, beside the authorities. One authority
// replaces another one in these steps, and requests go on during all of them:
//
//	step          signs    trusted by servers and the operator, and in ca.crt for programs
//	0. at rest    present  present
//	1. introduced present  present and next
//	2. replaced   next     next and former, which was the present one
//	3. at rest    next     next
//
// From 0 to 1, somebody asks for it, or the present authority ends within a year: the next one is
// made. From 1 to 2, all servers that are ready say that they trust the next one. Programs say
// nothing, so those of an index have the grace to read ca.crt again, counted from when it has both.
// Now servers get certificates of the new authority, and the operator calls them with one. From 2
// to 3, the grace is over, and all servers that are ready say that their certificate is of the new
// authority: nobody shows one of the former.
//
// A server that is not ready is not waited for. It reads the newest files when it starts, or within
// the minute of its kubelet. One of a version that does not say what it trusts is given the grace.
//
// Each step is one write of the Secret, and all else follows from what it says: an operator that
// dies before it did nothing, and one that dies behind it goes on. Then ca.crt or the servers'
// files may be behind for as long as no operator runs, which they report, so the next step waits. A
// request that is taken back in step 1 ends there. One that comes meanwhile begins behind step 3.
//
// An authority that a clock made which was ahead (pki.Authority.Early) is accepted by nobody, so
// there is nothing to wait for: mendAuthority takes it out at once, as the next one or as the
// present one, whose place a new one takes.
type authorities struct {
	// Done is the request (dmv1.AnnotationRotateAuthority) that was carried out last.
	Done string `json:"done,omitempty"`
	// For is the request that is carried out. An authority that ends has none of its own.
	For string `json:"for,omitempty"`
	// Since is, in step 1, since when programs can read of the next authority; in step 2, since
	// when it signs.
	Since time.Time `json:"since,omitzero"`
}

// View is what the next step of authorities is decided from.
type View struct {
	next, former bool      // there is one
	expires      time.Time // of the authority that signs
	request      string    // the annotation
	Programs     bool      // there are some, which read ca.crt
	told         bool      // ca.crt has the next authority
	Grace        time.Duration
	now          time.Time
	trusting     saying // the next authority
	certified    saying // by the authority that signs
}

// saying is what servers that are ready say of an authority.
type saying struct {
	late   []string // names of those that do not know it yet, or do not answer
	silent bool     // some are of versions that do not tell
}

// authorityStep is what is to be done: at most one of the first four.
type authorityStep struct {
	introduce, takeBack, replace, retire bool
	renew                                bool // see mendAuthority

	after    authorities
	waitsFor []string      // servers
	nextLook time.Duration // when the grace is over; 0 = nothing is waited for
}

// decide makes one step. It changes nothing.
func (p authorities) decide(v View) authorityStep {
	ending := v.expires.Sub(v.now) < pki.ReplaceBefore
	switch {
	case v.former:
		return p.decideRetire(v)
	case v.next && !ending && v.request != p.For && (v.request == "" || v.request == p.Done):
		p.For, p.Since = "", time.Time{}
		return authorityStep{takeBack: true, after: p}
	case v.next:
		return p.decideReplace(v)
	case ending, v.request != "" && v.request != p.Done:
		p.For, p.Since = v.request, time.Time{}
		return authorityStep{introduce: true, after: p}
	}
	return authorityStep{after: p}
}

// decideReplace is step 1.
func (p authorities) decideReplace(v View) authorityStep {
	if p.Since.IsZero() {
		if v.Programs && !v.told {
			return authorityStep{after: p, nextLook: outcome.RequeueSoon}
		}
		p.Since = v.now
	}
	step := authorityStep{after: p, waitsFor: v.trusting.late}
	if left := p.Since.Add(v.Grace).Sub(v.now); left > 0 && (v.Programs || v.trusting.silent) {
		step.nextLook = left
		return step
	}
	if step.replace = len(v.trusting.late) == 0; step.replace {
		step.after.Since = v.now
	}
	return step
}

// decideRetire is step 2.
func (p authorities) decideRetire(v View) authorityStep {
	step := authorityStep{after: p, waitsFor: v.certified.late}
	if left := p.Since.Add(v.Grace).Sub(v.now); left > 0 {
		step.nextLook = left
		return step
	}
	if step.retire = len(v.certified.late) == 0; step.retire {
		step.after = authorities{Done: p.For}
	}
	return step
}
