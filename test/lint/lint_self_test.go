package lint

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestEnvRuleCatches shows that the env rule finds each thing that it forbids, and honours its
// marks.
func TestEnvRuleCatches(t *testing.T) {
	check := func(body string, want int) {
		t.Helper()
		src := "package p\n\nimport (\n\"time\"\n\"sync\"\n)\n\n" + body
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, "p.go", src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		f := &file{path: "p.go", src: src, ast: parsed, fset: fset}
		if got := envProblems(f); len(got) != want {
			t.Errorf("%s\nfound %d problems, want %d:\n%s", body, len(got), want, strings.Join(got, "\n"))
		}
	}
	check("func f() { go f() }", 1)
	check("func f() { select {} }", 1)
	check("var c chan int", 1)
	check("func f(c C) { c <- 1; <-c }", 2)
	check("func f() { time.Sleep(1) }", 1)
	check("var t = time.Second", 0)
	check("var m sync.Mutex", 1)
	check("func f() { m := map[int]int{}; for range m {} }", 1)
	check("type s struct{ m map[int]int }\nfunc (x s) f() { for range x.m {} }", 1)
	check("func f(m []int) { for range m {} }", 0)
	check("func f() { m := map[int]int{}; for range m {} //env:real sorted afterwards\n}", 0)
}

// TestFileMark shows that a file leaves the rule by its head only, and only with a reason.
func TestFileMark(t *testing.T) {
	check := func(src string, want bool) {
		t.Helper()
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, "p.go", src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := fileIsReal(&file{ast: parsed, fset: fset}); got != want {
			t.Errorf("%q: real is %v, want %v", src, got, want)
		}
	}
	check("//env:real a network listener\n\npackage p\n", true)
	check("//env:real\n\npackage p\n", false)
	check("package p\n\n//env:real a network listener\n", false)
}

// TestCommentWidthCatches shows which lines are too wide.
func TestCommentWidthCatches(t *testing.T) {
	check := func(line string, want int) {
		t.Helper()
		src := "package p\n\n" + line + "\n"
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, "p.go", src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := wideComments(&file{path: "p.go", src: src, ast: parsed, fset: fset}); len(got) != want {
			t.Errorf("%s\nfound %d problems, want %d:\n%s", line, len(got), want, strings.Join(got, "\n"))
		}
	}
	check("// "+strings.Repeat("a", 97), 0)
	check("// "+strings.Repeat("a", 98), 1)
	check("// "+strings.Repeat("é", 97), 0)
	check("func f() {\n\t// "+strings.Repeat("a", 94)+"\n}", 1)
	check("var x = 1 // "+strings.Repeat("a", 88), 1)
	check("var x = `"+strings.Repeat("a", 100)+"`", 0)
	check("/*\n"+strings.Repeat("a", 101)+"\n*/", 1)
	check("//go:generate "+strings.Repeat("a", 100), 0)
	check("// +kubebuilder:validation:Pattern="+strings.Repeat("a", 100), 0)
}

// TestWordsCatch shows where old words are found, and what is left alone.
func TestWordsCatch(t *testing.T) {
	check := func(body string, want int) {
		t.Helper()
		fset := token.NewFileSet()
		src := "package p\n\n" + body + "\n"
		parsed, err := parser.ParseFile(fset, "p.go", src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		f := &file{path: "p.go", src: src, ast: parsed, fset: fset}
		if got := oldWords(f); len(got) != want {
			t.Errorf("%s\nfound %d problems, want %d:\n%s", body, len(got), want, strings.Join(got, "\n"))
		}
	}
	check("// f says whether it is so.\nfunc f() {}", 1)
	check("// f says\n// whether it is so.\nfunc f() {}", 1)
	check("// The leaf gives way to another one; then he reads it.\nfunc f() {}", 2)
	check("// Reports whether the server is confirmed dead.\nfunc f() {}", 0)
	check("var message = \"server 3 is proven silent\"", 1)
	check("type Taker struct{}", 1)
	check("var the, they, hers int // the heap", 0)
	check("// What is read is counted.\nvar read int", 1)
	check("var read int // counted: what is read", 0)
}
