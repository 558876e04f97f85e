package servers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// lostNode dials servers of which some let calls wait until their limit.
type lostNode struct {
	Dialer
	silent atomic.Bool
	calls  atomic.Int64
}

func (l *lostNode) Memory(Target) (Memory, error)   { return &lostMemory{l: l}, nil }
func (l *lostNode) Compute(Target) (Compute, error) { return &lostCompute{l: l}, nil }

func (l *lostNode) call(ctx context.Context) error {
	l.calls.Add(1)
	if !l.silent.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	<-ctx.Done()
	return errors.New("no answer")
}

type lostMemory struct {
	Memory
	l *lostNode
}

func (m *lostMemory) Close() {}
func (m *lostMemory) Describe(ctx context.Context) (*rpcv1.DescribeMemoryReply, error) {
	return &rpcv1.DescribeMemoryReply{}, m.l.call(ctx)
}

type lostCompute struct {
	Compute
	l *lostNode
}

func (c *lostCompute) Close() {}
func (c *lostCompute) Describe(ctx context.Context) (*rpcv1.DescribeComputeReply, error) {
	return &rpcv1.DescribeComputeReply{}, c.l.call(ctx)
}

// TestSilentServers: a silent server is waited for once, is asked ever more seldom after that, and
// is seen again when it is back; another pod is not taken for it.
func TestSilentServers(t *testing.T) {
	kinds := map[string]func(*Patient, Target) error{
		"memory": func(p *Patient, target Target) error {
			m, err := p.Memory(target)
			if err != nil {
				return err
			}
			defer m.Close()
			_, err = m.Describe(context.Background())
			return err
		},
		"compute": func(p *Patient, target Target) error {
			c, err := p.Compute(target)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Describe(context.Background())
			return err
		},
	}
	for kind, look := range kinds {
		synctest.Test(t, func(t *testing.T) {
			l := &lostNode{}
			p := NewPatient(l)
			target := Target{Pod: "pool-0", UID: "a"}
			f := func(what string, fails bool, longest time.Duration) {
				t.Helper()
				begun := time.Now()
				if err := look(p, target); (err != nil) != fails {
					t.Errorf("%s %s: %v", kind, what, err)
				}
				if took := time.Since(begun); took > longest {
					t.Errorf("%s %s takes %v, want %v at most", kind, what, took, longest)
				}
			}
			after := func(d time.Duration) { <-time.After(d) }
			f("first look", false, 0)
			l.silent.Store(true)
			f("look at a silent server", true, callLimit)
			before := l.calls.Load()
			for range 300 { // ten minutes
				f("later look", true, answerWithin)
				after(2 * time.Second)
			}
			if asked := l.calls.Load() - before; asked < 25 || asked > 45 {
				t.Errorf("%s: it was asked %d times in ten minutes", kind, asked)
			}
			target.UID = "b"
			f("another pod", true, callLimit)
			after(callLimit)
			l.silent.Store(false)
			f("look when it is back", false, answerWithin)
			target.UID = "a"
			after(lastQuestion)
			f("look when it is back", false, answerWithin)
			f("later look", false, 0)
			if len(p.silent) != 0 || p.asked != 0 {
				t.Errorf("%s: %d are taken for silent, %d are asked", kind, len(p.silent), p.asked)
			}
		})
	}
}

// TestManySilentServers: no more are asked in the background than there shall be, and whoever asks
// them does not wait longer for it.
func TestManySilentServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lostNode{}
		l.silent.Store(true)
		p := NewPatient(l)
		const many = 3 * mostQuestions
		round := func(longest time.Duration) {
			t.Helper()
			begun := time.Now()
			answers := make(chan error, many)
			for i := range many {
				go func() {
					m, _ := p.Memory(Target{UID: string(rune('0' + i))})
					_, err := m.Describe(t.Context())
					answers <- err
				}()
			}
			for range many {
				if <-answers == nil {
					t.Error("a silent server answers")
				}
			}
			if took := time.Since(begun); took > longest {
				t.Errorf("it takes %v", took)
			}
		}
		round(callLimit)
		before := l.calls.Load()
		round(answerWithin)
		if asked := l.calls.Load() - before; asked != mostQuestions {
			t.Errorf("%d are asked in the background", asked)
		}
		synctest.Wait()
		<-time.After(callLimit)
	})
}
