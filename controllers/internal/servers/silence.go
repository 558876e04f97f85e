package servers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// A server on a node that is lost does not refuse a call: the call takes callLimit. Reconcilers
// look at an index every few seconds, and all have the same workers. So a server that let a call
// wait once is not waited for again: whoever describes it gets an error at once, and in the
// background it is asked, ever more seldom, whether it is back.
//
//	heard  -- Describe fails after silentAfter or more --> silent
//	silent -- Describe: an error, and at most one question in the background --> silent
//	silent -- the question is answered, by a reply or by any error that comes soon --> heard
//
// That is safe: an error is what the server's silence led to before, only later. A look decides by
// what a server says to that look alone, never by the answer to the question, which may be old.
// What is remembered is of the pod's UID, so another pod of the name is asked as any other. Only
// Describe has it: each look describes a server before it asks anything else of it, and asks a
// server that did not answer nothing else.
const (
	silentAfter = time.Second
	// answerWithin is how long a look waits for the answer to a question, so that it sees a server
	// that is back, and not only the look after it.
	answerWithin  = 250 * time.Millisecond
	firstQuestion = 2 * time.Second // between two questions; twice as long each time
	lastQuestion  = 16 * time.Second
	mostQuestions = 64 // in the background at once; whoever is beyond asks at a later look
	mostSilent    = 4096
)

// Patient is a dialer to servers that may be silent.
type Patient struct {
	Dialer
	mu     sync.Mutex
	silent map[string]*silence // by the UID of the pod; at most mostSilent
	asked  int                 // questions in the background
}

// silence is a server that does not answer. Its fields are protected by Patient.mu.
type silence struct {
	since  time.Time
	failed int       // questions without an answer
	next   time.Time // no question before that
	answer chan struct{}
	heard  bool // once answer is closed: there was one
}

// NewPatient is a dialer that uses another one.
func NewPatient(d Dialer) *Patient { return &Patient{Dialer: d, silent: map[string]*silence{}} }

// Memory implements Dialer.
func (p *Patient) Memory(t Target) (Memory, error) {
	m, err := p.Dialer.Memory(t)
	if err != nil {
		return nil, err
	}
	return &patientMemory{m, p, t}, nil
}

// Compute implements Dialer.
func (p *Patient) Compute(t Target) (Compute, error) {
	c, err := p.Dialer.Compute(t)
	if err != nil {
		return nil, err
	}
	return &patientCompute{c, p, t}, nil
}

type patientMemory struct {
	Memory
	p *Patient
	t Target
}

func (m *patientMemory) Describe(ctx context.Context) (*rpcv1.DescribeMemoryReply, error) {
	return describe(ctx, m.p, m.t, m.Memory.Describe, func(ctx context.Context) error {
		c, err := m.p.Dialer.Memory(m.t)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Describe(ctx)
		return err
	})
}

type patientCompute struct {
	Compute
	p *Patient
	t Target
}

func (c *patientCompute) Describe(ctx context.Context) (*rpcv1.DescribeComputeReply, error) {
	return describe(ctx, c.p, c.t, c.Compute.Describe, func(ctx context.Context) error {
		other, err := c.p.Dialer.Compute(c.t)
		if err != nil {
			return err
		}
		defer other.Close()
		_, err = other.Describe(ctx)
		return err
	})
}

// describe asks a server what it is, unless it is silent. question is the same with a connection of
// its own, for the background.
func describe[R any](ctx context.Context, p *Patient, t Target, ask func(context.Context) (*R, error), question func(context.Context) error) (*R, error) {
	if err := p.hears(ctx, t, question); err != nil {
		return nil, err
	}
	begun := time.Now()
	r, err := ask(ctx)
	if ctx.Err() == nil && waited(err, time.Since(begun)) {
		p.fellSilent(t, begun)
	}
	return r, err
}

// waited reports whether a call that took so long was waited for in vain.
func waited(err error, took time.Duration) bool {
	unfit := (*Unfit)(nil)
	return err != nil && took >= silentAfter && !errors.As(err, &unfit)
}

func (p *Patient) fellSilent(t Target, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.silent) >= mostSilent {
		clear(p.silent) // they are waited for once more
	}
	if p.silent[t.UID] == nil {
		p.silent[t.UID] = &silence{since: since}
	}
}

// hears returns nil if a server is not silent, or is not any more.
func (p *Patient) hears(ctx context.Context, t Target, question func(context.Context) error) error {
	p.mu.Lock()
	s := p.silent[t.UID]
	if s == nil {
		p.mu.Unlock()
		return nil
	}
	if s.answer == nil && !time.Now().Before(s.next) && p.asked < mostQuestions {
		s.answer = make(chan struct{})
		p.asked++
		go p.ask(t, s, question)
	}
	answer := s.answer
	p.mu.Unlock()
	if answer != nil {
		limit := time.NewTimer(answerWithin)
		defer limit.Stop()
		select {
		case <-answer:
			if s.heard { // not written any more
				return nil
			}
		case <-limit.C:
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("describe server %s: it has not answered since %s and is asked again in the background: see whether its node is well", t.Pod, s.since.UTC().Format(time.RFC3339))
}

// ask is the question in the background. It ends by itself, with the limit of the call.
func (p *Patient) ask(t Target, s *silence, question func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	begun := time.Now()
	err := question(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked--
	now := time.Now()
	answer := s.answer
	defer close(answer)
	if !waited(err, now.Sub(begun)) {
		s.heard = true
		delete(p.silent, t.UID)
		return
	}
	s.answer, s.next = nil, now.Add(min(firstQuestion<<min(s.failed, 8), lastQuestion))
	s.failed++
}
