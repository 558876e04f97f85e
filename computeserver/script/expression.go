package script

import (
	"fmt"
	"math"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// valueAt is a value of a list; nil behind its end.
func valueAt(values []value, i int) value {
	if i < len(values) {
		return values[i]
	}
	return nil
}

// expression compiles an expression.
func (s *scope) expression(of ast.Expr) expression {
	defer s.enter(of)()
	line := of.Line()
	switch of := of.(type) {
	case *ast.TrueExpr:
		return constant(true)
	case *ast.FalseExpr:
		return constant(false)
	case *ast.NilExpr:
		return constant(nil)
	case *ast.NumberExpr:
		n, ok := parseNumber(of.Value)
		if !ok {
			refuse(of, "malformed number near '%.40s'", of.Value)
		}
		return constant(n)
	case *ast.StringExpr:
		return constant(of.Value)
	case *ast.IdentExpr:
		return s.variable(of.Value, line)
	case *ast.Comma3Expr, *ast.FuncCallExpr:
		values := s.list(of)
		return func(x *frame) value { return valueAt(values(x), 0) }
	case *ast.AttrGetExpr:
		object, key, name := s.expression(of.Object), s.expression(of.Key), s.name(of.Object)
		return func(x *frame) value {
			o, k := object(x), key(x)
			x.m.step(1)
			return x.m.index(o, k, name)
		}
	case *ast.TableExpr:
		return s.table(of)
	case *ast.FunctionExpr:
		return s.function(of, false)
	case *ast.LogicalOpExpr:
		a, b, and := s.expression(of.Lhs), s.expression(of.Rhs), of.Operator == "and"
		return func(x *frame) value {
			if v := a(x); isTrue(v) != and {
				return v
			}
			return b(x)
		}
	case *ast.RelationalOpExpr:
		return s.relation(of)
	case *ast.StringConcatOpExpr:
		return s.concat(of)
	case *ast.ArithmeticOpExpr:
		return s.arithmetic(of)
	case *ast.UnaryMinusOpExpr:
		a, name := s.expression(of.Expr), s.name(of.Expr)
		return func(x *frame) value {
			v := a(x)
			n, ok := x.m.number(v)
			if !ok {
				x.m.throw("attempt to perform arithmetic on %s", described(v, name))
			}
			return -n
		}
	case *ast.UnaryNotOpExpr:
		a := s.expression(of.Expr)
		return func(x *frame) value { return !isTrue(a(x)) }
	case *ast.UnaryLenOpExpr:
		a, name := s.expression(of.Expr), s.name(of.Expr)
		return func(x *frame) value {
			x.m.step(1)
			switch v := a(x).(type) {
			case string:
				return float64(len(v))
			case *table:
				return float64(len(v.list))
			default:
				x.m.throw("attempt to get length of %s", described(v, name))
				return nil
			}
		}
	}
	refuse(of, "this is not offered")
	return nil
}

func constant(v value) expression { return func(*frame) value { return v } }

// variable compiles the use of a name.
func (s *scope) variable(name string, line int) expression {
	l, i := s.find(name)
	switch {
	case l != nil:
		return l.get
	case i >= 0:
		return func(x *frame) value { return x.outer[i].v }
	}
	return func(x *frame) value {
		x.m.step(1)
		v := x.m.globals.get(name)
		if v == nil {
			x.m.line = line
			x.m.throw("Script attempted to access nonexistent global variable '%s'", name)
		}
		return v
	}
}

// name is how errors name what an expression gives; empty for most.
func (s *scope) name(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.IdentExpr:
		l, i := s.find(of.Value)
		switch {
		case l != nil:
			return fmt.Sprintf("local '%s'", of.Value)
		case i >= 0:
			return fmt.Sprintf("upvalue '%s'", of.Value)
		}
		return fmt.Sprintf("global '%s'", of.Value)
	case *ast.AttrGetExpr:
		if key, ok := of.Key.(*ast.StringExpr); ok {
			return fmt.Sprintf("field '%.40s'", key.Value)
		}
		return "field '?'"
	}
	return ""
}

// values compiles a list of expressions, of which the last one may give any number.
func (s *scope) values(of []ast.Expr) list {
	var all []expression
	var last list
	for i, e := range of {
		if i == len(of)-1 && several(e) {
			last = s.list(e)
			break
		}
		all = append(all, s.expression(e))
	}
	return func(x *frame) []value {
		if len(all) == 0 && last != nil {
			return last(x)
		}
		x.m.step(len(all) / 4)
		out := make([]value, len(all), len(all)+2)
		for i, e := range all {
			out[i] = e(x)
		}
		if last != nil {
			more := last(x)
			x.m.step(len(more) / 4)
			out = append(out, more...)
		}
		return out
	}
}

// several reports whether an expression gives any number of values.
func several(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		return !e.AdjustRet
	case *ast.Comma3Expr:
		return !e.AdjustRet
	}
	return false
}

// list compiles a call, or "...".
func (s *scope) list(of ast.Expr) list {
	defer s.enter(of)()
	call, ok := of.(*ast.FuncCallExpr)
	if !ok {
		if _, ok := of.(*ast.Comma3Expr); !ok {
			refuse(of, "this is no call")
		}
		if !s.body.variadic {
			refuse(of, "cannot use '...' outside a vararg function")
		}
		return func(x *frame) []value { x.m.step(1); return x.varargs }
	}
	line, args := of.Line(), s.values(call.Args)
	if call.Receiver != nil {
		object, name, method := s.expression(call.Receiver), s.name(call.Receiver), call.Method
		return func(x *frame) []value {
			o := object(x)
			f := x.m.index(o, method, name)
			with := append([]value{o}, args(x)...)
			x.m.line = line
			return x.m.apply(f, with, fmt.Sprintf("method '%s'", method))
		}
	}
	function, name := s.expression(call.Func), s.name(call.Func)
	return func(x *frame) []value {
		f := function(x)
		with := args(x)
		x.m.line = line
		return x.m.apply(f, with, name)
	}
}

// table compiles a table's constructor.
func (s *scope) table(of *ast.TableExpr) expression {
	var positions []ast.Expr
	var keys, values []expression
	for _, f := range of.Fields {
		if f.Key == nil {
			positions = append(positions, f.Value)
			continue
		}
		keys, values = append(keys, s.expression(f.Key)), append(values, s.expression(f.Value))
	}
	items := s.values(positions)
	return func(x *frame) value {
		x.m.step(1 + len(keys))
		t := x.m.newTable()
		for i, key := range keys {
			x.m.setIndex(t, key(x), values[i](x), "")
		}
		got := items(x)
		x.m.step(len(got) / 4)
		if len(got) > 0 && len(keys) == 0 {
			return x.m.newList(append([]value(nil), got...))
		}
		for i, v := range got {
			x.m.set(t, float64(i+1), v)
		}
		return t
	}
}

// index is o[key].
func (m *machine) index(o, key value, name string) value {
	m.key(key)
	switch o := o.(type) {
	case *table:
		v := o.get(key)
		if v == nil && o == m.globals {
			m.throw("Script attempted to access nonexistent global variable '%s'", toString(key))
		}
		return v
	case string:
		return m.strings.get(key)
	}
	m.throw("attempt to index %s", described(o, name))
	return nil
}

// setIndex is o[key] = v.
func (m *machine) setIndex(o, key, v value, name string) {
	m.step(1)
	m.key(key)
	t, ok := o.(*table)
	switch {
	case !ok:
		m.throw("attempt to index %s", described(o, name))
	case t.fixed:
		m.throw("Attempt to modify a readonly table")
	case key == nil:
		m.throw("table index is nil")
	case key != key: //nolint:staticcheck // NaN
		m.throw("table index is NaN")
	}
	m.set(t, key, v)
}

func (s *scope) concat(of *ast.StringConcatOpExpr) expression {
	var parts []expression // a .. b .. c is one string, made once
	var names []string
	for {
		parts, names = append(parts, s.expression(of.Lhs)), append(names, s.name(of.Lhs))
		right, ok := of.Rhs.(*ast.StringConcatOpExpr)
		if !ok {
			parts, names = append(parts, s.expression(of.Rhs)), append(names, s.name(of.Rhs))
			break
		}
		of = right
	}
	return func(x *frame) value {
		x.m.step(len(parts))
		texts, values, size := make([]string, len(parts)), make([]value, len(parts)), 0
		for i, part := range parts {
			values[i] = part(x)
		}
		for i := len(parts) - 1; i >= 0; i-- { // as Lua: the last one is wrong first
			var ok bool
			if texts[i], ok = toText(values[i]); !ok {
				x.m.throw("attempt to concatenate %s", described(values[i], names[i]))
			}
			size += len(texts[i])
		}
		x.m.text(size)
		return strings.Join(texts, "")
	}
}

func (s *scope) arithmetic(of *ast.ArithmeticOpExpr) expression {
	a, b, names, do := s.expression(of.Lhs), s.expression(of.Rhs), [2]string{s.name(of.Lhs), s.name(of.Rhs)}, operators[of.Operator]
	return func(x *frame) value {
		v, w := a(x), b(x)
		x.m.step(1)
		n, okN := x.m.number(v)
		k, okK := x.m.number(w)
		switch {
		case !okN:
			x.m.throw("attempt to perform arithmetic on %s", described(v, names[0]))
		case !okK:
			x.m.throw("attempt to perform arithmetic on %s", described(w, names[1]))
		}
		return do(n, k)
	}
}

var operators = map[string]func(a, b float64) float64{
	"+": func(a, b float64) float64 { return a + b },
	"-": func(a, b float64) float64 { return a - b },
	"*": func(a, b float64) float64 { return a * b },
	"/": func(a, b float64) float64 { return a / b },
	"%": func(a, b float64) float64 { return a - math.Floor(a/b)*b },
	"^": math.Pow,
}

func (s *scope) relation(of *ast.RelationalOpExpr) expression {
	a, b := s.expression(of.Lhs), s.expression(of.Rhs)
	switch of.Operator {
	case "==":
		return func(x *frame) value { v, w := a(x), b(x); return x.m.equal(v, w) }
	case "~=":
		return func(x *frame) value { v, w := a(x), b(x); return !x.m.equal(v, w) }
	case "<":
		return func(x *frame) value { v, w := a(x), b(x); return x.m.less(v, w, false) }
	case "<=":
		return func(x *frame) value { v, w := a(x), b(x); return x.m.less(v, w, true) }
	case ">":
		return func(x *frame) value { v, w := a(x), b(x); return x.m.less(w, v, false) }
	}
	return func(x *frame) value { v, w := a(x), b(x); return x.m.less(w, v, true) }
}

// equal is a == b.
func (m *machine) equal(a, b value) bool {
	m.step(1)
	m.key(a)
	return a == b
}

// key counts the steps that it takes to compare a value, or to find it in a table.
func (m *machine) key(v value) {
	if s, ok := v.(string); ok {
		m.step(len(s) / stepBytes)
	}
}

// less is a < b, or a <= b.
func (m *machine) less(a, b value, orEqual bool) bool {
	m.step(1)
	switch a := a.(type) {
	case float64:
		if b, ok := b.(float64); ok {
			return a < b || orEqual && a == b
		}
	case string:
		if b, ok := b.(string); ok {
			m.step(min(len(a), len(b)) / stepBytes)
			return a < b || orEqual && a == b
		}
	}
	if x, y := typeName(a), typeName(b); x != y {
		m.throw("attempt to compare %s with %s", x, y)
	}
	m.throw("attempt to compare two %s values", typeName(a))
	return false
}
