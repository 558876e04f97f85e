package script

import "github.com/yuin/gopher-lua/ast"

// block compiles statements with a scope of their own.
func (s *scope) block(statements []ast.Stmt) statement {
	visible, slots := len(s.visible), s.slots
	run := s.sequence(statements)
	s.visible, s.slots = s.visible[:visible], slots
	return run
}

// sequence compiles statements in the scope that there is.
func (s *scope) sequence(statements []ast.Stmt) statement {
	all := make([]statement, len(statements))
	for i, one := range statements {
		all[i] = s.statement(one)
	}
	if len(all) == 1 {
		return all[0]
	}
	return func(x *frame) signal {
		for _, run := range all {
			if end := run(x); end != normal {
				return end
			}
		}
		return normal
	}
}

// statement compiles one, which is a step.
func (s *scope) statement(of ast.Stmt) statement {
	defer s.enter(of)()
	line, run := of.Line(), s.simple(of)
	return func(x *frame) signal {
		x.m.line = line
		x.m.step(1)
		return run(x)
	}
}

func (s *scope) simple(of ast.Stmt) statement {
	switch of := of.(type) {
	case *ast.AssignStmt:
		return s.assign(of)
	case *ast.LocalAssignStmt:
		return s.locals(of)
	case *ast.FuncCallStmt:
		call := s.list(of.Expr)
		return func(x *frame) signal { call(x); return normal }
	case *ast.DoBlockStmt:
		return s.block(of.Stmts)
	case *ast.WhileStmt:
		while := s.expression(of.Condition)
		return runLoop(func(x *frame) bool { return isTrue(while(x)) }, s.loopBody(of.Stmts), nil)
	case *ast.RepeatStmt:
		return s.repeat(of)
	case *ast.IfStmt:
		condition, then, otherwise := s.expression(of.Condition), s.block(of.Then), s.block(of.Else)
		return func(x *frame) signal {
			if isTrue(condition(x)) {
				return then(x)
			}
			return otherwise(x)
		}
	case *ast.NumberForStmt:
		return s.count(of)
	case *ast.GenericForStmt:
		return s.forIn(of)
	case *ast.FuncDefStmt:
		return s.define(of)
	case *ast.ReturnStmt:
		values := s.values(of.Exprs)
		return func(x *frame) signal { x.result = values(x); return returned }
	case *ast.BreakStmt:
		if s.loops == 0 {
			refuse(of, "no loop to break")
		}
		return func(*frame) signal { return broken }
	}
	refuse(of, "goto and labels are not offered")
	return nil
}

// loopBody compiles the body of a loop.
func (s *scope) loopBody(statements []ast.Stmt) statement {
	s.loops++
	defer func() { s.loops-- }()
	return s.block(statements)
}

// runLoop runs a loop.
func runLoop(while func(x *frame) bool, run statement, until expression) statement {
	return func(x *frame) signal {
		for while == nil || while(x) {
			x.m.step(1)
			if end := run(x); end == broken {
				break
			} else if end == returned {
				return end
			}
			if until != nil && isTrue(until(x)) {
				break
			}
		}
		return normal
	}
}

// repeat compiles REPEAT, whose condition sees the variables of the body.
func (s *scope) repeat(of *ast.RepeatStmt) statement {
	visible, slots := len(s.visible), s.slots
	s.loops++
	run := s.sequence(of.Stmts)
	s.loops--
	until := s.expression(of.Condition)
	s.visible, s.slots = s.visible[:visible], slots
	return runLoop(nil, run, until)
}

func (s *scope) count(of *ast.NumberForStmt) statement {
	from, to := s.expression(of.Init), s.expression(of.Limit)
	by := func(*frame) value { return 1.0 }
	if of.Step != nil {
		by = s.expression(of.Step)
	}
	visible, slots := len(s.visible), s.slots
	variable := s.declare(of, of.Name)
	run := s.loopBody(of.Stmts)
	s.visible, s.slots = s.visible[:visible], slots
	return func(x *frame) signal {
		bound := func(v value, what string) float64 {
			n, ok := x.m.number(v)
			if !ok {
				x.m.throw("'for' %s must be a number", what)
			}
			return n
		}
		i, last, step := bound(from(x), "initial value"), bound(to(x), "limit"), bound(by(x), "step")
		for ; step > 0 && i <= last || step <= 0 && i >= last; i += step {
			x.m.step(1)
			variable.declare(x, i)
			if end := run(x); end == broken {
				break
			} else if end == returned {
				return end
			}
		}
		return normal
	}
}

func (s *scope) forIn(of *ast.GenericForStmt) statement {
	values := s.values(of.Exprs)
	visible, slots := len(s.visible), s.slots
	var variables []*local
	for _, name := range of.Names {
		variables = append(variables, s.declare(of, name))
	}
	run, line := s.loopBody(of.Stmts), of.Line()
	s.visible, s.slots = s.visible[:visible], slots
	return func(x *frame) signal {
		from := values(x)
		next, state, key := valueAt(from, 0), valueAt(from, 1), valueAt(from, 2)
		for {
			x.m.step(1)
			x.m.line = line
			got := x.m.apply(next, []value{state, key}, "")
			if key = valueAt(got, 0); key == nil {
				return normal
			}
			for i, l := range variables {
				l.declare(x, valueAt(got, i))
			}
			if end := run(x); end == broken {
				return normal
			} else if end == returned {
				return end
			}
		}
	}
}

func (s *scope) locals(of *ast.LocalAssignStmt) statement {
	if len(of.Names) == 1 && len(of.Exprs) == 1 {
		if f, is := of.Exprs[0].(*ast.FunctionExpr); is { // which may call itself
			variable := s.declare(of, of.Names[0])
			make := s.function(f, false)
			return func(x *frame) signal {
				variable.declare(x, nil)
				variable.set(x, make(x))
				return normal
			}
		}
		one := s.expression(of.Exprs[0])
		variable := s.declare(of, of.Names[0])
		return func(x *frame) signal { variable.declare(x, one(x)); return normal }
	}
	values := s.values(of.Exprs)
	var variables []*local
	for _, name := range of.Names {
		variables = append(variables, s.declare(of, name))
	}
	return func(x *frame) signal {
		got := values(x)
		for i, l := range variables {
			l.declare(x, valueAt(got, i))
		}
		return normal
	}
}

// target is where an assignment stores. prepare evaluates the table and the key, before any value
// is stored.
type target func(x *frame) (store func(v value))

func (s *scope) target(of ast.Expr) target {
	switch of := of.(type) {
	case *ast.IdentExpr:
		l, i := s.find(of.Value)
		switch {
		case l != nil:
			return func(x *frame) func(value) { return func(v value) { l.set(x, v) } }
		case i >= 0:
			return func(x *frame) func(value) { return func(v value) { x.outer[i].v = v } }
		}
		name := of.Value
		return func(x *frame) func(value) { return func(v value) { x.m.setIndex(x.m.globals, name, v, "") } }
	case *ast.AttrGetExpr:
		object, key, name := s.expression(of.Object), s.expression(of.Key), s.name(of.Object)
		return func(x *frame) func(value) {
			o, k := object(x), key(x)
			return func(v value) { x.m.setIndex(o, k, v, name) }
		}
	}
	refuse(of, "cannot assign to this")
	return nil
}

func (s *scope) assign(of *ast.AssignStmt) statement {
	if len(of.Lhs) == 1 && len(of.Rhs) == 1 {
		to, one := s.target(of.Lhs[0]), s.expression(of.Rhs[0])
		return func(x *frame) signal {
			store := to(x)
			store(one(x))
			return normal
		}
	}
	var targets []target
	for _, e := range of.Lhs {
		targets = append(targets, s.target(e))
	}
	values := s.values(of.Rhs)
	return func(x *frame) signal {
		x.m.step(len(targets))
		stores := make([]func(value), len(targets))
		for i, to := range targets {
			stores[i] = to(x)
		}
		got := values(x)
		for i := len(stores) - 1; i >= 0; i-- {
			stores[i](valueAt(got, i))
		}
		return normal
	}
}

// define compiles "function name() end".
func (s *scope) define(of *ast.FuncDefStmt) statement {
	where := of.Name.Func
	if of.Name.Method != "" {
		where = &ast.AttrGetExpr{Object: of.Name.Receiver, Key: &ast.StringExpr{Value: of.Name.Method}}
	}
	to, make := s.target(where), s.function(of.Func, of.Name.Method != "")
	return func(x *frame) signal {
		to(x)(make(x))
		return normal
	}
}
