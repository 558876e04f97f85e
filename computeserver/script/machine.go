package script

import "fmt"

// machine is one run of a script.
type machine struct {
	steps  int   // that are left
	memory int   // bytes that may still be allocated
	calls  []int // the line of each call of a function that is under way
	depth  int   // of calls, those of libraries' functions, too: each takes of the stack
	line   int   // where the script is

	globals *table
	strings *table // the library, as the methods of strings
	random  random
	call    Call
}

// luaError is an error of a script, which pcall catches. It is thrown by panic.
type luaError struct {
	value value
	line  int
}

// Overrun is returned when a run took too many steps, or too much memory. Nothing in the script
// catches it.
type Overrun string

// Error implements error.
func (o Overrun) Error() string { return string(o) }

const (
	tooManySteps Overrun = "the script takes too many steps, and was ended; nothing was done: divide its work"
	tooMuchSpace Overrun = "the script allocates too much memory, and was ended; nothing was done: divide its work"
)

// step counts n steps.
func (m *machine) step(n int) {
	if m.steps -= n; m.steps < 0 {
		panic(tooManySteps)
	}
}

// alloc counts n bytes. It is called before they are allocated.
func (m *machine) alloc(n int) {
	if m.memory -= n; m.memory < 0 {
		panic(tooMuchSpace)
	}
}

// stepBytes is how many bytes are copied in one step.
const stepBytes = 64

// text counts a new string of n bytes.
func (m *machine) text(n int) {
	m.alloc(n + 16)
	m.step(n / stepBytes)
}

// throw fails with an error at the line where the script is.
func (m *machine) throw(format string, args ...any) {
	text := m.position(1) + fmt.Sprintf(format, args...) // which may have values of the script
	m.text(len(text))
	m.throwValue(text)
}

func (m *machine) throwValue(v value) { panic(&luaError{v, m.line}) }

// position is the begin of an error of a function so many calls above.
func (m *machine) position(level int) string {
	line := m.line
	if n := len(m.calls) - level + 1; level > 1 && n >= 0 && n < len(m.calls) {
		line = m.calls[n]
	}
	return fmt.Sprintf("user_script:%d: ", line)
}

// argument fails because of argument n of a library's function.
func (m *machine) argument(n int, function, format string, args ...any) {
	m.throw("bad argument #%d to '%s' (%s)", n, function, fmt.Sprintf(format, args...))
}

// apply calls a value.
func (m *machine) apply(f value, args []value, name string) []value {
	m.step(1 + len(args)/4)
	if len(args) > 16 {
		m.alloc(16 * len(args))
	}
	if m.depth >= maxCalls {
		m.throw("stack overflow")
	}
	m.depth++
	switch f := f.(type) {
	case *function:
		line := m.line
		m.calls = append(m.calls, line)
		out := f.run(m, args)
		m.calls, m.line, m.depth = m.calls[:len(m.calls)-1], line, m.depth-1
		return out
	case *builtin:
		line := m.line
		out := f.run(m, args)
		m.line, m.depth = line, m.depth-1
		return out
	}
	m.throw("attempt to call %s", described(f, name))
	return nil
}

// described is a value in an error, with the name of where it came from, if it has one.
func described(v value, name string) string {
	if name == "" {
		return "a " + typeName(v) + " value"
	}
	return fmt.Sprintf("%s (a %s value)", name, typeName(v))
}

// protected calls f, and returns its error, if it is one that may be caught.
func (m *machine) protected(f func()) (failed *luaError) {
	m.step(protectedSteps)
	calls, depth, line := len(m.calls), m.depth, m.line
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *luaError:
			m.calls, m.depth, m.line, failed = m.calls[:calls], depth, line, e
		default:
			panic(e)
		}
	}()
	f()
	return nil
}

// protectedSteps is about how many steps take as long as an error that is caught.
const protectedSteps = 20

// frame is a function under way.
type frame struct {
	m       *machine
	locals  []value // those of inner functions, too, are a *cell
	outer   []*cell
	varargs []value
	result  []value // of return
}

// run runs a function.
func (f *function) run(m *machine, args []value) []value {
	b := f.of
	x := frame{m: m, locals: make([]value, b.locals), outer: f.values}
	for i, p := range b.params {
		var v value
		if i < len(args) {
			v = args[i]
		}
		p.declare(&x, v)
	}
	if b.variadic && len(args) > len(b.params) {
		x.varargs = args[len(b.params):]
	}
	if b.block(&x) == returned {
		return x.result
	}
	return nil
}
