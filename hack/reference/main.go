// Reference writes the pages of the manual that follow from the code: the fields of the custom
// resources, their conditions and reasons, the commands, and the metrics.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// pages are what this program writes, by their names in the folder of pages.
func pages(dmindex, plugin string) map[string]func(*bytes.Buffer) error {
	return map[string]func(*bytes.Buffer) error{
		"fields.md": func(out *bytes.Buffer) error {
			a, err := read("api/v1alpha1")
			a.fields(out)
			return err
		},
		"conditions.md": func(out *bytes.Buffer) error {
			a, err := read("api/v1alpha1")
			a.conditions(out)
			return err
		},
		"metrics.md": func(out *bytes.Buffer) error { return metrics(out, ".") },
		// not a page, but of the same source as conditions.md
		"../../cmd/kubectl-dmindex/zz_generated_meanings.go": func(out *bytes.Buffer) error {
			a, err := read("api/v1alpha1")
			if err != nil {
				return err
			}
			return a.meanings(out)
		},
		"commands.md": func(out *bytes.Buffer) error {
			return programs(out, []program{{dmindex, "dmindex"}, {plugin, "kubectl dmindex"}})
		},
	}
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage, in the project's folder: reference FOLDER-OF-PAGES DMINDEX KUBECTL-DMINDEX")
		os.Exit(2)
	}
	for name, page := range pages(os.Args[2], os.Args[3]) {
		var out bytes.Buffer
		err := page(&out)
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], name), out.Bytes(), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "reference:", err)
			os.Exit(1)
		}
	}
}

const generated = "<!-- Generated from api/v1alpha1 by hack/reference: edit the comments there, then `make generate`. -->\n\n"

// api is what the types' sources say.
type api struct {
	types  map[string]*ast.TypeSpec
	docs   map[string]comment
	consts []constant
}

// comment is a doc comment without its markers, and these.
type comment struct {
	text    string
	markers []string
}

// constant is one of conditions.go.
type constant struct {
	name, value string
	doc         string
}

func read(dir string) (api, error) {
	a := api{types: map[string]*ast.TypeSpec{}, docs: map[string]comment{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	fset := token.NewFileSet()
	for _, name := range files {
		if base := filepath.Base(name); strings.HasPrefix(base, "zz_") || strings.HasSuffix(base, "_test.go") {
			continue
		}
		f, failed := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if failed != nil {
			return a, failed
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				a.declaration(g)
			}
		}
	}
	if len(a.types) == 0 && err == nil {
		err = fmt.Errorf("no types in %s", dir)
	}
	return a, err
}

func (a *api) declaration(g *ast.GenDecl) {
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			a.types[s.Name.Name] = s
			doc := s.Doc
			if doc == nil {
				doc = g.Doc
			}
			a.docs[s.Name.Name] = split(doc)
		case *ast.ValueSpec:
			doc := s.Doc
			if doc == nil && !g.Lparen.IsValid() {
				doc = g.Doc
			}
			for i, n := range s.Names {
				if lit, ok := literal(s, i); ok {
					a.consts = append(a.consts, constant{n.Name, lit, split(doc).text})
				}
			}
		}
	}
}

func literal(s *ast.ValueSpec, i int) (string, bool) {
	if i >= len(s.Values) {
		return "", false
	}
	l, ok := s.Values[i].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	return strings.Trim(l.Value, `"`), true
}

// split takes the markers out of a comment and joins its lines.
func split(g *ast.CommentGroup) (c comment) {
	if g == nil {
		return c
	}
	var words []string
	for _, l := range g.List {
		text := strings.TrimSpace(strings.TrimPrefix(l.Text, "//"))
		if strings.HasPrefix(text, "+") {
			c.markers = append(c.markers, text)
			continue
		}
		words = append(words, strings.Fields(text)...)
	}
	c.text = strings.Join(words, " ")
	return c
}

// fields writes a section for each type, from the kinds on, in the order in which they are met.
func (a *api) fields(out *bytes.Buffer) {
	out.WriteString("# Fields of the custom resources\n\n" + generated)
	out.WriteString("`kubectl explain dmi.spec --recursive` says the same, shortened. API group `dmindex.io`, version `v1alpha1`.\n")
	queue := []string{"DMIndex", "DMMemoryPool", "DMComputePool", "DMBackup", "DMBackupSchedule", "DMUser"}
	met := map[string]bool{}
	for _, name := range queue {
		met[name] = true
	}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		s, ok := a.types[name].Type.(*ast.StructType)
		if !ok {
			continue
		}
		fmt.Fprintf(out, "\n## %s\n\n%s\n\n| field | type | meaning |\n|---|---|---|\n", name, about(name, a.docs[name].text))
		for _, next := range a.rows(out, s) {
			if !met[next] {
				met[next] = true
				queue = append(queue, next)
			}
		}
		for _, m := range a.docs[name].markers {
			if rule := message.FindStringSubmatch(m); rule != nil {
				fmt.Fprintf(out, "\nRefused: %s.\n", strings.TrimSuffix(rule[1], "."))
			}
		}
	}
}

var message = regexp.MustCompile(`XValidation:.*message="([^"]*)"`)

// about drops the type's name from its comment: "KeySpec describes the keys" becomes "Describes the
// keys".
func about(name, text string) string {
	rest, found := strings.CutPrefix(text, name+" ")
	if !found || rest == "" {
		return text
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// rows writes a row for each field of s, those of embedded types too, and returns the types that
// they name.
func (a *api) rows(out *bytes.Buffer, s *ast.StructType) (names []string) {
	for _, f := range s.Fields.List {
		tag := ""
		if f.Tag != nil {
			tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json")
		}
		field, options, _ := strings.Cut(tag, ",")
		if field == "" { // inline
			if t, ok := f.Type.(*ast.Ident); ok && options == "inline" {
				if e, ok := a.types[t.Name].Type.(*ast.StructType); ok {
					names = append(names, a.rows(out, e)...)
				}
			}
			continue
		}
		c := split(f.Doc)
		shown, ours := a.typeOf(f.Type)
		names = append(names, ours...)
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", field, shown, cell(strings.Join(append([]string{sentence(c.text)}, a.limits(f.Type, c.markers)...), " ")))
	}
	return names
}

// typeOf renders a type, and returns those of api/v1alpha1 in it that have fields.
func (a *api) typeOf(e ast.Expr) (shown string, ours []string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return a.typeOf(e.X)
	case *ast.ArrayType:
		shown, ours = a.typeOf(e.Elt)
		return "list of " + shown, ours
	case *ast.MapType:
		shown, ours = a.typeOf(e.Value)
		return "map of " + shown, ours
	case *ast.SelectorExpr:
		return e.Sel.Name, nil
	case *ast.Ident:
		t := a.types[e.Name]
		if t == nil {
			return e.Name, nil
		}
		if _, ok := t.Type.(*ast.StructType); ok {
			return fmt.Sprintf("[%s](#%s)", e.Name, strings.ToLower(e.Name)), []string{e.Name}
		}
		return e.Name, nil
	}
	return fmt.Sprintf("%T", e), nil
}

// limits says what the markers of a field, and of its type, say of it.
func (a *api) limits(e ast.Expr, markers []string) (all []string) {
	for {
		if star, ok := e.(*ast.StarExpr); ok {
			e = star.X
			continue
		}
		break
	}
	if t, ok := e.(*ast.Ident); ok && a.types[t.Name] != nil {
		if _, has := a.types[t.Name].Type.(*ast.StructType); !has { // that has a section
			markers = append(markers, a.docs[t.Name].markers...)
		}
	}
	for _, m := range markers {
		m = strings.TrimPrefix(strings.TrimPrefix(m, "+kubebuilder:"), "validation:")
		key, value, _ := strings.Cut(m, "=")
		switch key {
		case "+required":
			all = append(all, "**Required.**")
		case "+default":
			if value != "{}" { // that of an object: its fields have theirs
				all = append(all, "Default: `"+strings.Trim(value, `"`)+"`.")
			}
		case "Enum":
			all = append(all, "One of `"+strings.Join(strings.Split(value, ";"), "`, `")+"`.")
		case "Minimum":
			all = append(all, "At least "+value+".")
		case "Maximum":
			all = append(all, "At most "+value+".")
		case "MaxLength":
			all = append(all, "At most "+value+" characters.")
		case "MaxItems":
			all = append(all, "At most "+value+" of them.")
		case "Pattern":
			all = append(all, "Matches `"+strings.Trim(value, "`")+"`.")
		}
		if rule := message.FindStringSubmatch(m); rule != nil {
			all = append(all, "Refused: "+strings.TrimSuffix(rule[1], ".")+".")
		}
	}
	return all
}

func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// cell keeps text within one cell of a table.
func cell(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "|", `\|`) }

// conditions writes the tables of conditions and reasons.
func (a *api) conditions(out *bytes.Buffer) {
	out.WriteString("# Conditions and reasons\n\n" + generated)
	out.WriteString("Each condition has a reason, and a message that names servers, keys and what is waited for. `kubectl get dmi` shows the reason of `Degraded`; `kubectl describe dmi` shows all of it.\n")
	for _, t := range []struct{ prefix, title string }{
		{"Condition", "Conditions"}, {"Reason", "Reasons"},
	} {
		fmt.Fprintf(out, "\n## %s\n\n| %s | when | what to do |\n|---|---|---|\n", t.title, strings.ToLower(strings.TrimSuffix(t.title, "s")))
		for _, c := range a.consts {
			if !strings.HasPrefix(c.name, t.prefix) {
				continue
			}
			when, do := c.meaning()
			fmt.Fprintf(out, "| `%s` | %s | %s |\n", c.value, cell(when), cell(do))
		}
	}
}

// meaning says when a condition is true or a reason is given, and what a reader can do.
func (c constant) meaning() (when, do string) {
	text := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(c.doc, c.name), ":"), " ")
	when, do, _ = strings.Cut(text, " To do: ")
	return sentence(when), sentence(do)
}

// has reports whether a constant with a prefix has a value.
func (a *api) has(prefix, value string) bool {
	return slices.ContainsFunc(a.consts, func(c constant) bool { return strings.HasPrefix(c.name, prefix) && c.value == value })
}

// meanings writes the same for kubectl dmindex. A name that is a condition and a reason has both
// meanings.
func (a *api) meanings(out *bytes.Buffer) error {
	out.WriteString("// Code generated from api/v1alpha1 by hack/reference. DO NOT EDIT.\n\npackage main\n\n" +
		"// meanings of conditions and reasons, by their names.\nvar meanings = map[string]meaning{\n")
	conditions := map[string]string{} // when they are true
	for _, c := range a.consts {
		if strings.HasPrefix(c.name, "Condition") {
			conditions[c.value], _ = c.meaning()
		}
	}
	for _, c := range a.consts {
		when, do := c.meaning()
		condition, is := conditions[c.value]
		switch reason := strings.HasPrefix(c.name, "Reason"); {
		case reason && is:
			when = "as a condition: " + strings.TrimSuffix(condition, ".") + "; as a reason: " + when
		case !reason && (!strings.HasPrefix(c.name, "Condition") || a.has("Reason", c.value)):
			continue
		}
		fmt.Fprintf(out, "\t%q: {when: %q, do: %q},\n", c.value, when, do)
	}
	out.WriteString("}\n")
	text, err := format.Source(out.Bytes())
	out.Reset()
	out.Write(text)
	return err
}
