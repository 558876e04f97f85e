package lint

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// simulated are the rooms whose code must run under a simulated env: there all blocking goes
// through pkg/env. A file that stands outside the simulation (a network listener, say) says so with
// a line "//env:real REASON" before its package clause; a single line that is harmless says so with
// "//env:real REASON" at its end.
var simulated = []string{"pkg/index", "pkg/pool", "pkg/partition", "pkg/volumes", "memserver", "computeserver"}

// outside are parts of those rooms that are test tools.
var outside = []string{"pkg/pool/pooltest", "pkg/pool/poolsim", "pkg/index/indextest", "pkg/index/indexsim", "pkg/index/internal/combine/combinetest", "computeserver/computeservertest"}

// forbiddenCalls by package path: what reads a clock, waits, or draws random numbers behind env's
// back.
var forbiddenCalls = map[string][]string{
	"time":    {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	"sync":    {"Mutex", "RWMutex", "WaitGroup", "Cond", "Once", "OnceFunc", "OnceValue", "OnceValues", "Pool", "Map"},
	"runtime": {"Gosched", "SetFinalizer", "AddCleanup"},
	"context": {"WithTimeout", "WithDeadline", "WithTimeoutCause", "WithDeadlineCause"},
}

// forbiddenImports may not be imported at all.
var forbiddenImports = []string{"math/rand", "math/rand/v2", "crypto/rand"}

// TestEnv keeps the simulated rooms to pkg/env.
func TestEnv(t *testing.T) {
	checked := 0
	for _, f := range sources(t) {
		if f.test || f.generated || !isSimulated(f.dir) || fileIsReal(f) {
			continue
		}
		checked++
		for _, problem := range envProblems(f) {
			t.Error(problem)
		}
	}
	if checked < 5 {
		t.Errorf("only %d files were checked", checked)
	}
}

func isSimulated(dir string) bool {
	for _, room := range outside {
		if within(dir, room) {
			return false
		}
	}
	for _, room := range simulated {
		if within(dir, room) {
			return true
		}
	}
	return false
}

const envMark = "//env:real "

// fileIsReal says whether the file's head declares it outside the simulation.
func fileIsReal(f *file) bool {
	for _, group := range f.ast.Comments {
		if group.Pos() > f.ast.Package {
			return false
		}
		for _, c := range group.List {
			if reason, ok := strings.CutPrefix(c.Text, envMark); ok && len(strings.Fields(reason)) >= 2 {
				return true
			}
		}
	}
	return false
}

// envProblems lists what in f goes past env.
func envProblems(f *file) (problems []string) {
	excused := map[int]bool{}
	for _, group := range f.ast.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, envMark) {
				excused[f.fset.Position(c.Pos()).Line] = true
			}
		}
	}
	report := func(n ast.Node, what string) {
		if !excused[f.fset.Position(n.Pos()).Line] {
			problems = append(problems, f.at(n)+": "+what+"; use pkg/env, so that the code runs under the simulator")
		}
	}
	names := map[string]string{} // local name -> import path
	for _, imp := range f.ast.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		name := path[strings.LastIndex(path, "/")+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		names[name] = path
		for _, bad := range forbiddenImports {
			if path == bad {
				report(imp, "import of "+path)
			}
		}
	}
	maps := mapNames(f.ast)
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "go statement")
		case *ast.SelectStmt:
			report(n, "select statement")
		case *ast.ChanType:
			report(n, "channel type")
		case *ast.SendStmt:
			report(n, "channel send")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				report(n, "channel receive")
			}
		case *ast.RangeStmt:
			if rangesOverMap(n.X, maps) {
				report(n, "range over a map, whose order is random")
			}
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			for _, bad := range forbiddenCalls[names[pkg.Name]] {
				if n.Sel.Name == bad {
					report(n, names[pkg.Name]+"."+bad)
				}
			}
		}
		return true
	})
	return problems
}

// mapNames collects the names that the file declares as maps: fields, variables, parameters. Names
// of other files are missed: the rule is a help for the author.
func mapNames(f *ast.File) map[string]bool {
	names := map[string]bool{}
	isMap := func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.MapType:
			return true
		case *ast.CompositeLit:
			_, ok := e.Type.(*ast.MapType)
			return ok
		case *ast.CallExpr:
			if fn, ok := e.Fun.(*ast.Ident); ok && fn.Name == "make" && len(e.Args) > 0 {
				_, ok := e.Args[0].(*ast.MapType)
				return ok
			}
		}
		return false
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if isMap(n.Type) {
				for _, id := range n.Names {
					names[id.Name] = true
				}
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if n.Type != nil && isMap(n.Type) || i < len(n.Values) && isMap(n.Values[i]) {
					names[id.Name] = true
				}
			}
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if id, ok := l.(*ast.Ident); ok && i < len(n.Rhs) && isMap(n.Rhs[i]) {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

func rangesOverMap(e ast.Expr, maps map[string]bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return maps[e.Name]
	case *ast.SelectorExpr:
		return maps[e.Sel.Name]
	case *ast.CompositeLit:
		_, ok := e.Type.(*ast.MapType)
		return ok
	}
	return false
}
