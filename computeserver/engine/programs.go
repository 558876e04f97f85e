package engine

import (
	"container/list"

	"github.com/dmindex/dmindex/computeserver/script"
	"github.com/dmindex/dmindex/pkg/env"
)

// programsBytes bounds the texts of the scripts that a server keeps. What a script is compiled to
// may take some fifty times as much.
const programsBytes = 1 << 20

// programs are the scripts that a server has compiled, those that were used last. Safe for
// concurrent use.
type programs struct {
	mu    env.Mutex
	bySum map[string]*list.Element
	used  list.List // of *kept; the one that was used last is the first
	bytes int
}

type kept struct {
	text    []byte
	program *script.Program
}

// keptOverhead is about what a script takes beside its text.
const keptOverhead = 512

func newPrograms(e env.Env) *programs {
	return &programs{mu: e.NewMutex(), bySum: map[string]*list.Element{}}
}

// compile returns the program of a text.
func (p *programs) compile(text []byte) (*script.Program, error) {
	sum := script.Sum(text)
	if k := p.find(sum); k != nil && string(k.text) == string(text) {
		return k.program, nil
	}
	program, err := script.Compile(text)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bySum[sum] != nil {
		return program, nil
	}
	p.bySum[sum] = p.used.PushFront(&kept{append([]byte{}, text...), program})
	for p.bytes += len(text) + keptOverhead; p.bytes > programsBytes; {
		last := p.used.Back()
		k := p.used.Remove(last).(*kept)
		delete(p.bySum, k.program.Sum)
		p.bytes -= len(k.text) + keptOverhead
	}
	return program, nil
}

// find returns a script, and notes that it was used.
func (p *programs) find(sum string) *kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.bySum[sum]
	if e == nil {
		return nil
	}
	p.used.MoveToFront(e)
	return e.Value.(*kept)
}

// text is that of a script, which is not to be changed; nil if it is not kept.
func (p *programs) text(sum string) []byte {
	if k := p.find(sum); k != nil {
		return k.text
	}
	return nil
}

// forget drops all.
func (p *programs) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.bySum)
	p.used.Init()
	p.bytes = 0
}
