package bufferpool

import (
	"github.com/dmindex/dmindex/pkg/index/dex/internal/frame"
	"github.com/dmindex/dmindex/pkg/pool"
)

// How the paper's replacement gives frames up, and takes them again.

// retireLast empties the last frame in use: see Pool.Retire.
func (p *paperCache) retireLast(flush func(*frame.Frame) error) (bool, error) {
	last := p.live.Load() - 1
	f := &p.c.frames[last]
	if int(last) < p.c.leastFrames(len(p.c.frames)) || !f.TryLock() {
		return false, nil
	}
	if f.Addr() != pool.Nil {
		if err := p.empty(f, flush); err != nil {
			return false, err
		}
	}
	p.mu.Lock()
	for i, id := range p.mu.free {
		if id == last {
			p.mu.free = append(p.mu.free[:i], p.mu.free[i+1:]...)
			break
		}
	}
	p.live.Store(last)
	p.mu.Unlock()
	p.c.release(int(last))
	f.Unlock()
	return true, nil
}

// reviveNext uses the next retired frame again.
func (p *paperCache) reviveNext() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.live.Load()
	if int(n) == len(p.c.frames) {
		return false
	}
	p.mu.free = append(p.mu.free, n)
	p.live.Store(n + 1)
	return true
}

// retire implements replacement.
func (p *paperCache) retire(_ int, flush func(*frame.Frame) error) (n int, err error) {
	if ok, err := p.retireLast(flush); !ok {
		return 0, err
	}
	return 1, nil
}

// revive implements replacement.
func (p *paperCache) revive(int) (n int) {
	if p.reviveNext() {
		n = 1
	}
	return n
}

// spare implements replacement.
func (p *paperCache) spare() int { return int(p.live.Load()) - p.c.leastFrames(len(p.c.frames)) }

// drop implements replacement.
func (p *paperCache) drop(f *frame.Frame) {
	p.clear(f)
	p.freeFrame(f)
}
