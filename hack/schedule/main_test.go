package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPoints says where points come.
func TestPoints(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"locals alone have none", "a := 1; a++; _ = a", "a := 1; a++; _ = a"},
		{"a statement that touches a field", "x.f = 1", "P(0); x.f = 1"},
		{"between two accesses of one expression", "x.a.Store(x.b.Add(1))", "P(0); x.a.Store(A(1, x.b.Add(1)))"},
		{"a condition", "for !x.a.Load() { x.f = 1 }", "P(0); for !A(1, x.a.Load()) { P(2); x.f = 1 }"},
		{"a function's words", "if atomic.LoadUint64(&w) == 1 { return }", "P(0); if A(1, atomic.LoadUint64(&w)) == 1 { return }"},
		{"several values", "a, b := x.Load(); _, _ = a, b", "P(0); a, b := x.Load(); _, _ = a, b"},
		{"what may return several values", "return x.Load()", "P(0); return x.Load()"},
		{"a call for its effect", "x.a.Add(1)", "P(0); x.a.Add(1)"},
		{"deferred", "defer x.a.Store(x.b.Load())", "P(0); defer x.a.Store(A(1, x.b.Load()))"},
		{"cases", "switch x.f { case 1: x.g = 1; default: x.h() }", "P(0); switch x.f { case 1: P(1); x.g = 1; default: P(2); x.h() }"},
		{"labels", "again: for { x.h(); continue again }", "again: for { P(0); x.h(); continue again }"},
		{"functions in expressions", "do(func() { x.f = 1 })", "P(0); do(func() { P(1); x.f = 1 })"},
	} {
		in := &inserter{}
		src := "package p\n\nfunc f() {\n\t" + c.body + "\n}\n"
		got, err := in.file("p/p.go", src)
		if err != nil {
			t.Fatal(err)
		}
		got = strings.NewReplacer("schedule__.Point", "P", "schedule__.At", "A").Replace(got)
		if !strings.Contains(got, "\t"+c.want+"\n") {
			t.Errorf("%s:\n%s\nwant %s", c.name, got, c.want)
		}
		if strings.Count(got, "\n") != strings.Count(src, "\n") {
			t.Errorf("%s: lines have other numbers", c.name)
		}
	}
}

// TestKinds: points before what is shared are told from others, since more of them are armed.
func TestKinds(t *testing.T) {
	for body, want := range map[string]kind{
		"x.f = 1": other, "x.mu.Lock()": lock, "x.a.Store(1)": access, "x.h(1)": other,
		"atomic.StoreUint64(&w, 1)": access, "seqlock.Store(&w, 1)": access, "x.Store(&w, 1)": other,
	} {
		in := &inserter{}
		if _, err := in.file("p/p.go", "package p\n\nfunc f() {\n\t"+body+"\n}\n"); err != nil {
			t.Fatal(err)
		}
		if len(in.sites) == 0 || in.sites[0].kind != want {
			t.Errorf("%s: %+v, want a point of kind %d", body, in.sites, want)
		}
	}
}

// TestSitesOutlastOtherChanges: the hash of a site is that of the function and its place in it.
func TestSitesOutlastOtherChanges(t *testing.T) {
	hashes := func(src string) (all []uint64) {
		in := &inserter{}
		if _, err := in.file("p/p.go", "package p\n"+src); err != nil {
			t.Fatal(err)
		}
		for _, s := range in.sites {
			all = append(all, s.hash)
		}
		return all
	}
	before := hashes("func (x *t) f() { x.f = 1; x.g = 2 }")
	after := hashes("// New.\nfunc g() { y.f = 1 }\n\nfunc (x *t) f() {\n x.f = 1\n x.g = 2 }")
	if len(before) != 2 || len(after) != 3 || before[0] != after[1] || before[1] != after[2] || before[0] == before[1] || after[0] == after[1] {
		t.Errorf("%#x, then %#x", before, after)
	}
}

func TestFilesOutsideAreLeft(t *testing.T) {
	for _, mark := range []string{"//env:real a listener of its own", "//schedule:off it runs in one piece"} {
		src := mark + "\n\npackage p\n\nfunc f() { x.f = 1 }\n"
		if got, err := new(inserter).file("p/p.go", src); err != nil || got != src {
			t.Errorf("%s: %v\n%s", mark, err, got)
		}
	}
}

// TestSimulatedPackagesBuild: what hack/sim runs can be built.
func TestSimulatedPackagesBuild(t *testing.T) {
	root, to := filepath.Join("..", ".."), t.TempDir()
	n, err := write(root, to, simulated)
	if err != nil {
		t.Fatal(err)
	}
	if n < 1000 || n >= 1<<16 {
		t.Errorf("%d points", n)
	}
	args := []string{"build", "-tags", "invariants", "-overlay", filepath.Join(to, "overlay.json")}
	for _, p := range simulated {
		args = append(args, "./"+p)
	}
	build := exec.Command("go", args...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
