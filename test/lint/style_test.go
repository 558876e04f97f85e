package lint

import (
	"go/ast"
	"go/format"
	"strconv"
	"strings"
	"testing"
)

// TestGofmt checks that every file is formatted.
func TestGofmt(t *testing.T) {
	for _, f := range sources(t) {
		want, err := format.Source([]byte(f.src))
		if err != nil {
			t.Errorf("%s: %v", f.path, err)
		} else if string(want) != f.src {
			t.Errorf("%s: not formatted: run gofmt -w", f.path)
		}
	}
}

// TestPackageComments checks that every package says what it is for.
func TestPackageComments(t *testing.T) {
	said := map[string]bool{}
	for _, f := range sources(t) {
		said[f.dir] = said[f.dir] || f.ast.Doc != nil || f.generated && !said[f.dir]
	}
	for dir, ok := range said {
		if !ok {
			t.Errorf("%s: no file of the package has a package comment", dir)
		}
	}
}

// aliases are the only names under which these packages are imported.
var aliases = map[string]string{
	"k8s.io/api/core/v1":                        "corev1",
	"k8s.io/apimachinery/pkg/apis/meta/v1":      "metav1",
	module + "/api/v1alpha1":                    "dmv1",
	module + "/api/rpc/v1":                      "rpcv1",
	"k8s.io/api/policy/v1":                      "policyv1",
	"k8s.io/apimachinery/pkg/api/errors":        "apierrors",
	"k8s.io/apimachinery/pkg/api/meta":          "apimeta",
	"sigs.k8s.io/controller-runtime":            "ctrl",
	"sigs.k8s.io/controller-runtime/pkg/client": "",
}

// TestAliases checks the import names that the project fixed.
func TestAliases(t *testing.T) {
	for _, f := range sources(t) {
		if f.generated {
			continue
		}
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			want := aliases[path]
			if want == "" || within(f.dir, strings.TrimPrefix(path, module+"/")) {
				continue
			}
			if imp.Name == nil || imp.Name.Name != want {
				t.Errorf("%s: import %s as %s", f.at(imp), path, want)
			}
		}
	}
}

// TestTestsDoNotSleepOrSkip: a test that sleeps to wait is slow or wrong, one that skips shows
// nothing.
func TestTestsDoNotSleepOrSkip(t *testing.T) {
	for _, f := range sources(t) {
		if !f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			switch {
			case x.Name == "time" && sel.Sel.Name == "Sleep":
				t.Errorf("%s: time.Sleep in a test: wait for the condition", f.at(n))
			case strings.HasPrefix(sel.Sel.Name, "Skip") && (x.Name == "t" || x.Name == "b" || x.Name == "f"):
				t.Errorf("%s: a skipped test shows nothing: provide what it needs, or fail and say how", f.at(n))
			}
			return true
		})
	}
}

// TestNoUtilPackages keeps rooms named after what they hold.
func TestNoUtilPackages(t *testing.T) {
	for _, f := range sources(t) {
		switch f.ast.Name.Name {
		case "util", "utils", "common", "helpers", "misc":
			t.Errorf("%s: package %s says nothing of what it holds", f.path, f.ast.Name.Name)
		}
	}
}
