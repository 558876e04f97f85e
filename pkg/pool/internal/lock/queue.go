package lock

import (
	"time"

	"github.com/dmindex/dmindex/pkg/env"
)

// Queues let the sessions of one client take lock words one after another, first come first served:
// only the first one of them asks the memory server. Words are told apart by their addresses, so
// that a goroutine which holds some and tries for another is never in its own way. Safe for
// concurrent use. Nothing is allocated once each part has held as many words as it ever does.
type Queues struct {
	parts [64]part
}

// part has the words of which sessions of this client have, or want, the lock.
type part struct {
	mu        env.Mutex
	words     []queue
	cancelled bool
}

type queue struct {
	word    uint64
	waiters WaitQueue
}

// NewQueues makes the queues of one client.
func NewQueues(e env.Env) *Queues {
	q := new(Queues)
	for i := range q.parts {
		q.parts[i].mu = e.NewMutex()
	}
	return q
}

func (q *Queues) part(word uint64) *part {
	return &q.parts[word>>3*0x9E3779B97F4A7C15>>58]
}

// find is the queue of a word; nil if nobody has it.
func (p *part) find(word uint64) *queue {
	for i := range p.words {
		if p.words[i].word == word {
			return &p.words[i]
		}
	}
	return nil
}

// Try takes a word if no session has it.
func (q *Queues) Try(word uint64) bool {
	p := q.part(word)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.find(word) != nil {
		return false
	}
	p.words = append(p.words, queue{word: word})
	return true
}

// Acquire takes a word, waiting at most limit. If it fails, the change that w offered may have been
// answered.
func (q *Queues) Acquire(word uint64, w *Waiter, limit time.Duration) bool {
	p := q.part(word)
	p.mu.Lock()
	of := p.find(word)
	if of == nil {
		p.words = append(p.words, queue{word: word})
		p.mu.Unlock()
		return true
	}
	if p.cancelled {
		p.mu.Unlock()
		return false
	}
	defer p.mu.Unlock()
	of.waiters.Push(w)
	_, granted := w.Wait(p.mu, limit)
	if !granted && !w.answered {
		p.find(word).waiters.Remove(w)
	}
	return granted
}

// Waited reports whether anybody waits for a word, which a session has.
func (q *Queues) Waited(word uint64) bool {
	p := q.part(word)
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.find(word).waiters.Empty()
}

// Take takes offered changes of a node out of the queue for a word, whose holder calls it.
func (q *Queues) Take(word, node uint64, list []*Waiter) []*Waiter {
	p := q.part(word)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.find(word).waiters.Take(node, list)
}

// PutBack puts those back that were taken and not carried out. The caller still has the word.
func (q *Queues) PutBack(word uint64, list []*Waiter) {
	p := q.part(word)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.find(word).waiters.PutBack(list, p.cancelled)
}

// Answer answers those that were taken. The caller may have released the word.
func (q *Queues) Answer(word uint64, list []*Waiter, failure error) {
	p := q.part(word)
	p.mu.Lock()
	defer p.mu.Unlock()
	Answer(list, failure)
}

// Release gives a word to who waits for it longest.
func (q *Queues) Release(word uint64) {
	p := q.part(word)
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.find(word)
	if of.waiters.Grant(false, Image{}) {
		return
	}
	last := len(p.words) - 1
	*of = p.words[last]
	p.words[last] = queue{}
	p.words = p.words[:last]
}

// Cancel ends all waiting, now and later.
func (q *Queues) Cancel() {
	for i := range q.parts {
		p := &q.parts[i]
		p.mu.Lock()
		p.cancelled = true
		for k := range p.words {
			p.words[k].waiters.Cancel()
		}
		p.mu.Unlock()
	}
}
