package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"hash/fnv"
	"sort"
	"strings"
)

// inserter inserts points, and numbers them over all files.
type inserter struct {
	sites []site

	fset     *token.FileSet
	path     string
	function string
	ordinal  int // of the next point in the function
	edits    []edit
}

type site struct {
	name string
	hash uint64
	kind kind
}

// kind as in package schedule.
type kind int

const (
	other kind = iota
	lock
	access
)

// edit is text that comes in front of a byte of the source.
type edit struct {
	at   int
	text string
}

// atomics are the methods of sync/atomic that return something, with the number of their arguments.
var atomics = map[string]int{"Load": 0, "Add": 1, "Swap": 1, "And": 1, "Or": 1, "CompareAndSwap": 2}

// packages have functions that load and store what is shared, word by word.
var packages = map[string]bool{"atomic": true, "seqlock": true}

// locks are methods that take, give, wait or wake.
var locks = map[string]bool{"Lock": true, "Unlock": true, "tryLock": true, "TryLock": true, "unlock": true, "lock": true, "Wait": true, "Set": true, "Yield": true, "Sleep": true, "Again": true}

func (in *inserter) begin(fset *token.FileSet, path string) {
	in.fset, in.path, in.edits = fset, path, nil
}

// add makes a new site and returns its number.
func (in *inserter) add(at token.Pos, k kind) int {
	folders := strings.Split(in.path, "/")
	short := strings.Join(folders[max(0, len(folders)-2):], "/")
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %d", strings.Join(folders[:len(folders)-1], "/"), in.function, in.ordinal)
	in.ordinal++
	in.sites = append(in.sites, site{fmt.Sprintf("%s:%d %s", short, in.fset.Position(at).Line, in.function), h.Sum64(), k})
	return len(in.sites) - 1
}

func (in *inserter) insert(at token.Pos, text string) {
	in.edits = append(in.edits, edit{in.fset.Position(at).Offset, text})
}

// apply is src with the edits; imports come behind the package clause, which ends at a byte.
func (in *inserter) apply(src string, clause int) string {
	if len(in.edits) == 0 {
		return src
	}
	in.edits = append(in.edits, edit{clause, "; import schedule__ \"" + runtimeImport + "\""})
	sort.SliceStable(in.edits, func(i, j int) bool { return in.edits[i].at < in.edits[j].at })
	var b strings.Builder
	from := 0
	for _, e := range in.edits {
		b.WriteString(src[from:e.at])
		b.WriteString(e.text)
		from = e.at
	}
	b.WriteString(src[from:])
	return b.String()
}

// declaration inserts points into a function, or into those of a variable's value.
func (in *inserter) declaration(d ast.Decl) {
	in.function, in.ordinal = "var", 0
	if f, ok := d.(*ast.FuncDecl); ok {
		in.function = f.Name.Name
		if f.Recv != nil && len(f.Recv.List) > 0 {
			in.function = receiver(f.Recv.List[0].Type) + "." + in.function
		}
		if f.Body != nil {
			in.node(f.Body)
		}
		return
	}
	ast.Inspect(d, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncLit); ok {
			in.node(f.Body)
			return false
		}
		return true
	})
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "_"
}

// node inserts points below n.
func (in *inserter) node(n ast.Node) {
	single := map[ast.Node]bool{} // calls that are no single value
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			in.statements(n.List)
		case *ast.CaseClause:
			in.statements(n.Body)
		case *ast.CommClause:
			in.statements(n.Body)
		case *ast.ExprStmt:
			single[n.X] = true
		case *ast.GoStmt:
			single[n.Call] = true
		case *ast.DeferStmt:
			single[n.Call] = true
		case *ast.ReturnStmt:
			if len(n.Results) == 1 {
				single[n.Results[0]] = true
			}
		case *ast.AssignStmt:
			if len(n.Lhs) > 1 && len(n.Rhs) == 1 {
				single[n.Rhs[0]] = true
			}
		case *ast.ValueSpec:
			if len(n.Names) > 1 && len(n.Values) == 1 {
				single[n.Values[0]] = true
			}
		case *ast.CallExpr:
			if isAtomic(n) && !single[n] {
				in.insert(n.Pos(), fmt.Sprintf("schedule__.At(%d, ", in.add(n.Pos(), access)))
				in.insert(n.End(), ")")
			}
		}
		return true
	})
}

// isAtomic reports whether c reads a word as package atomic does, by its name: more points do no
// harm.
func isAtomic(c *ast.CallExpr) bool {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if x, ok := sel.X.(*ast.Ident); ok && x.Name == "atomic" {
		return !strings.HasPrefix(sel.Sel.Name, "Store")
	}
	n, ok := atomics[sel.Sel.Name]
	return ok && len(c.Args) == n
}

// statements inserts a point before each statement of a list that may touch what is shared.
func (in *inserter) statements(list []ast.Stmt) {
	for _, s := range list {
		if k, ok := in.touches(s); ok {
			in.insert(s.Pos(), fmt.Sprintf("schedule__.Point(%d); ", in.add(s.Pos(), k)))
		}
	}
}

// touches reports whether s does, without the blocks in it, and the most that it does.
func (in *inserter) touches(s ast.Stmt) (k kind, ok bool) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			return false
		case *ast.CaseClause:
			return false
		case *ast.IndexExpr, *ast.StarExpr, *ast.SelectorExpr:
			ok = true
		case *ast.CallExpr:
			ok = true
			switch f := n.Fun.(type) {
			case *ast.SelectorExpr:
				if x, isName := f.X.(*ast.Ident); isAtomic(n) || isName && packages[x.Name] || f.Sel.Name == "Store" && len(n.Args) == 1 {
					k = access
				} else if locks[f.Sel.Name] {
					k = max(k, lock)
				}
			case *ast.Ident:
				if locks[f.Name] {
					k = max(k, lock)
				}
			}
		}
		return true
	})
	return k, ok
}
