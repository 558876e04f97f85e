package script

import (
	"errors"
	"fmt"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// A script is compiled to these. An expression returns one value, a list expression any number of
// them.
type (
	expression func(x *frame) value
	list       func(x *frame) []value
	statement  func(x *frame) signal
)

// signal is how a statement ends.
type signal int

const (
	normal signal = iota
	broken
	returned
)

// body is a compiled function.
type body struct {
	params   []*local
	variadic bool
	locals   int
	block    statement
	outer    []origin
}

// origin is where a closure finds a variable of an outer function when it is made: among the locals
// of the function around it, or among what that has of outer ones.
type origin struct {
	local *local
	index int
}

// local is a variable of a function. Whether an inner function uses it is known when all is
// compiled, so the code asks for it when it runs.
type local struct {
	name  string
	slot  int
	inner bool
}

func (l *local) declare(x *frame, v value) {
	if l.inner {
		x.m.alloc(16)
		v = &cell{v}
	}
	x.locals[l.slot] = v
}

func (l *local) get(x *frame) value {
	if l.inner {
		return x.locals[l.slot].(*cell).v
	}
	return x.locals[l.slot]
}

func (l *local) set(x *frame, v value) {
	if l.inner {
		x.locals[l.slot].(*cell).v = v
		return
	}
	x.locals[l.slot] = v
}

// scope is a function that is being compiled.
type scope struct {
	around  *scope
	visible []*local
	slots   int // in use
	body    *body
	depth   int
	loops   int
}

// syntaxError is an error of compilation, thrown by panic.
type syntaxError struct{ text string }

func refuse(at ast.PositionHolder, format string, args ...any) {
	panic(syntaxError{fmt.Sprintf("user_script:%d: ", at.Line()) + fmt.Sprintf(format, args...)})
}

// uncompiled begins the errors of a script's text, as in Redis.
const uncompiled = "Error compiling script (new function): "

// compile compiles a script's text.
func compile(text string) (b *body, err error) {
	chunk, err := parse.Parse(strings.NewReader(text), "user_script")
	if err != nil {
		if e, ok := err.(*parse.Error); ok {
			return nil, fmt.Errorf(uncompiled+"user_script:%d: %s near '%.40s'", max(e.Pos.Line, 1), e.Message, e.Token)
		}
		return nil, fmt.Errorf(uncompiled+"%w", err)
	}
	defer func() {
		if e := recover(); e != nil {
			wrong, ok := e.(syntaxError)
			if !ok {
				panic(e)
			}
			b, err = nil, errors.New(uncompiled+wrong.text)
		}
	}()
	s := &scope{body: &body{variadic: true}}
	s.body.block = s.block(chunk)
	return s.body, nil
}

// enter counts a level of nesting. What it returns leaves it.
func (s *scope) enter(at ast.PositionHolder) func() {
	if s.depth++; s.depth > maxDepth {
		refuse(at, "chunk has more than %d levels of nesting", maxDepth)
	}
	return func() { s.depth-- }
}

// declare makes a local variable visible.
func (s *scope) declare(at ast.PositionHolder, name string) *local {
	if s.slots >= maxLocals {
		refuse(at, "more than %d local variables in a function", maxLocals)
	}
	l := &local{name: name, slot: s.slots}
	s.slots++
	s.body.locals = max(s.body.locals, s.slots)
	s.visible = append(s.visible, l)
	return l
}

// find returns the local variable of a name, or its index in body.outer; -1 for a global one.
func (s *scope) find(name string) (*local, int) {
	for i := len(s.visible) - 1; i >= 0; i-- {
		if s.visible[i].name == name {
			return s.visible[i], 0
		}
	}
	if s.around == nil {
		return nil, -1
	}
	from, index := s.around.find(name)
	if from == nil && index < 0 {
		return nil, -1
	}
	if from != nil {
		from.inner = true
	}
	for i, o := range s.body.outer {
		if o.local == from && (from != nil || o.index == index) {
			return nil, i
		}
	}
	s.body.outer = append(s.body.outer, origin{from, index})
	return nil, len(s.body.outer) - 1
}

// function compiles a function.
func (s *scope) function(e *ast.FunctionExpr, method bool) expression {
	in := &scope{around: s, body: &body{}, depth: s.depth}
	defer in.enter(e)()
	if method {
		in.body.params = append(in.body.params, in.declare(e, "self"))
	}
	for _, name := range e.ParList.Names {
		in.body.params = append(in.body.params, in.declare(e, name))
	}
	in.body.variadic = e.ParList.HasVargs
	in.body.block = in.block(e.Stmts)
	b := in.body
	return func(x *frame) value {
		x.m.step(1)
		x.m.alloc(64 + 8*len(b.outer))
		f := &function{of: b, values: make([]*cell, len(b.outer))}
		for i, o := range b.outer {
			if o.local != nil {
				f.values[i] = x.locals[o.local.slot].(*cell)
			} else {
				f.values[i] = x.outer[o.index]
			}
		}
		return f
	}
}
