package authority

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dmindex/dmindex/controllers/internal/pki"
)

// replacement is an authority and what a test says of who uses it. Authorities are numbers.
type replacement struct {
	t                     *testing.T
	stored                authorities
	present, next, former int
	ends                  map[int]time.Time
	made                  int

	request  string
	programs bool
	grace    time.Duration
	now      time.Time

	trusting, certified saying
}

func newReplacement(t *testing.T) *replacement {
	r := &replacement{t: t, ends: map[int]time.Time{}, programs: true, grace: time.Hour, now: time.Unix(1e9, 0)}
	r.present = r.make()
	return r
}

func (r *replacement) make() int {
	r.made++
	r.ends[r.made] = r.now.Add(pki.AuthorityLife)
	return r.made
}

// step decides and does it.
func (r *replacement) step(told bool) authorityStep {
	s := r.stored.decide(View{
		next: r.next != 0, former: r.former != 0, expires: r.ends[r.present], request: r.request, Programs: r.programs, told: told,
		Grace: r.grace, now: r.now, trusting: r.trusting, certified: r.certified,
	})
	switch {
	case s.introduce:
		r.next = r.make()
	case s.takeBack:
		r.next = 0
	case s.replace:
		r.present, r.next, r.former = r.next, 0, r.present
	case s.retire:
		r.former = 0
	}
	r.stored = s.after
	return s
}

func (r *replacement) is(present, next, former int) {
	r.t.Helper()
	if r.present != present || r.next != next || r.former != former {
		r.t.Fatalf("present, next and former are %d, %d, %d; want %d, %d, %d", r.present, r.next, r.former, present, next, former)
	}
}

func TestAuthorityIsReplaced(t *testing.T) {
	r := newReplacement(t)
	if s := r.step(true); s.after != (authorities{}) || s.nextLook != 0 {
		t.Fatalf("a new index is not at rest: %+v", s)
	}
	r.request, r.trusting.late = "monday", []string{"pod-0"}
	r.step(true)
	r.is(1, 2, 0)
	r.now = r.now.Add(24 * time.Hour)
	if s := r.step(false); s.nextLook == 0 {
		t.Errorf("ca.crt is not looked at again: %+v", s)
	}
	if s := r.step(true); s.nextLook != time.Hour {
		t.Errorf("the grace counts from something else than ca.crt: %+v", s)
	}
	r.now = r.now.Add(time.Hour)
	if s := r.step(true); len(s.waitsFor) != 1 {
		t.Errorf("a server that is late is not waited for: %+v", s)
	}
	r.is(1, 2, 0)
	r.trusting.late, r.certified.late = nil, []string{"pod-1"}
	r.step(true)
	r.is(2, 0, 1)
	if s := r.step(true); s.nextLook != time.Hour {
		t.Errorf("%+v", s)
	}
	r.now = r.now.Add(time.Hour)
	r.step(true)
	r.is(2, 0, 1)
	r.certified.late = nil
	r.step(true)
	r.is(2, 0, 0)
	for range 3 {
		if s := r.step(true); s.after != (authorities{Done: "monday"}) {
			t.Fatalf("one request replaces twice: %+v", s)
		}
	}
	r.is(2, 0, 0)
}

// TestAuthorityOfAPool: no program knows it, so it is replaced when all servers trust it; the grace
// is for servers that do not tell.
func TestAuthorityOfAPool(t *testing.T) {
	r := newReplacement(t)
	r.programs, r.request = false, "monday"
	r.step(false)
	r.step(false)
	r.is(2, 0, 1)

	r = newReplacement(t)
	r.programs, r.request, r.trusting.silent = false, "monday", true
	r.step(false)
	r.step(false)
	r.is(1, 2, 0)
	r.now = r.now.Add(time.Hour)
	r.step(false)
	r.is(2, 0, 1)
}

func TestAuthorityRequests(t *testing.T) {
	r := newReplacement(t)
	r.request = "monday"
	r.step(true)
	r.request = ""
	r.step(true)
	r.is(1, 0, 0) // taken back
	r.step(true)
	r.is(1, 0, 0)

	// one that comes meanwhile
	r.request = "monday"
	r.step(true)
	r.request = "tuesday"
	through := func() {
		for range 4 {
			r.now = r.now.Add(2 * r.grace)
			r.step(true)
		}
	}
	through()
	r.step(true)
	if r.present != 3 || r.next == 0 {
		t.Errorf("the second request is not carried out: %+v", r)
	}
	through()
	if r.stored != (authorities{Done: "tuesday"}) {
		t.Errorf("in the end: %+v", r.stored)
	}
}

// TestAuthorityThatEnds is replaced without a request, and again when the next one ends.
func TestAuthorityThatEnds(t *testing.T) {
	r := newReplacement(t)
	for want := 1; want < 4; want++ {
		r.now = r.ends[r.present].Add(-pki.ReplaceBefore - time.Hour)
		r.step(true)
		r.is(want, 0, 0)
		r.now = r.now.Add(2 * time.Hour)
		for range 6 {
			r.step(true)
			r.now = r.now.Add(r.grace)
		}
		r.is(want+1, 0, 0)
	}
}

// reader has read a state of the Secrets.
type reader struct {
	trusted []int
	signer  int
}

func (r *replacement) state() reader {
	s := reader{trusted: []int{r.present}, signer: r.present}
	for _, other := range []int{r.next, r.former} {
		if other != 0 {
			s.trusted = append(s.trusted, other)
		}
	}
	return s
}

// TestNobodyIsRefused replaces authorities again and again. Servers read their files at any time,
// programs within the grace, and the operator dies between its writes. At no time does a server
// show a certificate that another server or a program does not trust.
func TestNobodyIsRefused(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r := newReplacement(t)
	servers := make([]reader, 4)
	for i := range servers {
		servers[i] = r.state()
	}
	files := r.state() // as the operator has written them
	type content struct {
		reader
		since time.Time
	}
	ca := []content{{r.state(), r.now}} // ca.crt: what programs may have read, the oldest first
	for range 20_000 {
		switch rnd.IntN(6) {
		case 0:
			r.request = fmt.Sprint(rnd.IntN(50))
		case 1:
			r.now = r.now.Add(time.Duration(rnd.Int64N(int64(r.grace / 2))))
		case 2:
			servers[rnd.IntN(len(servers))] = files
		case 3: // the operator writes what follows from the Secret
			files = r.state()
		case 4:
			if now := r.state(); !slices.Equal(now.trusted, ca[len(ca)-1].trusted) {
				ca = append(ca, content{now, r.now})
			}
		case 5: // the operator decides
			r.trusting, r.certified = saying{}, saying{}
			for i, s := range servers {
				if r.next != 0 && !slices.Contains(s.trusted, r.next) {
					r.trusting.late = append(r.trusting.late, fmt.Sprint(i))
				}
				if s.signer != r.present {
					r.certified.late = append(r.certified.late, fmt.Sprint(i))
				}
			}
			r.step(r.next != 0 && slices.Contains(ca[len(ca)-1].trusted, r.next))
		}
		for len(ca) > 1 && r.now.Sub(ca[1].since) >= r.grace {
			ca = ca[1:]
		}
		for i, shows := range servers {
			for j, sees := range append(slices.Clone(servers), ca[0].reader) {
				if !slices.Contains(sees.trusted, shows.signer) {
					t.Fatalf("server %d shows a certificate of authority %d; %d trusts %v\n%+v", i, shows.signer, j, sees.trusted, r)
				}
			}
		}
	}
	if r.made < 20 {
		t.Errorf("only %d authorities were made", r.made)
	}
}
