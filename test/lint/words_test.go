package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// word is a phrase that readers of this field do not use, and what they use for it.
type word struct {
	pattern *regexp.Regexp
	instead string
}

// words are looked for in comments, messages and the manual.
var words = []word{
	{phrase(`proven silent`), "confirmed dead"},
	{phrase(`(lets?|letting) go( of)?`), "releases, or released"},
	{phrase(`(gives?|gave|giving|given) way( to)?`), "evicted, removed, replaced or yields"},
	{phrase(`says? whether`), "reports whether"},
	{phrase(`in (the|their|its|his) midst( of)?`), "during, in the middle of"},
	{phrase(`he|him|his|himself`), "the client, the server, the thread, ..."},
	{phrase(`such of`), "those of"},
}

// names are identifiers of an older vocabulary, and what takes their place.
var names = map[string]string{
	"taker": "LeafCache", "broom": "zeroer", "giver": "handoff",
	"departed": "evicted", "glance": "lookupCached", "unsure": "provisional",
}

func phrase(p string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + p + `)\b`) }

// TestWords: comments, messages and names use the field's terms.
func TestWords(t *testing.T) {
	for _, f := range sources(t) {
		if f.generated || strings.HasPrefix(f.path, "test/lint/") {
			continue
		}
		for _, problem := range oldWords(f) {
			t.Error(problem)
		}
	}
}

// TestWordsOfTheManual: so does the manual.
func TestWordsOfTheManual(t *testing.T) {
	for _, p := range pages(t) {
		for _, problem := range inText(p.path, 1, p.text) {
			t.Error(problem)
		}
	}
}

// inText names the old words of a text that begins at that line.
func inText(path string, line int, text string) (problems []string) {
	for _, w := range words {
		for _, at := range w.pattern.FindAllStringIndex(text, -1) {
			n := line + strings.Count(text[:at[0]], "\n")
			problems = append(problems, fmt.Sprintf("%s:%d: %q: write %s", path, n, text[at[0]:at[1]], w.instead))
		}
	}
	return problems
}

// oldWords names the old words of f: in comments, in strings, and as names of the code.
func oldWords(f *file) (problems []string) {
	for _, group := range f.ast.Comments {
		// The lines of a group as one text: a phrase may go over the end of a line.
		text := strings.ReplaceAll(group.Text(), "\n", " ")
		line := f.fset.Position(group.Pos()).Line
		problems = append(problems, inText(f.path, line, text)...)
		if first, _, _ := strings.Cut(text, " "); first == "Who" || first == "What" || first == "Whose" {
			problems = append(problems, fmt.Sprintf("%s:%d: a comment begins with %q: name the thing", f.path, line, first))
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				problems = append(problems, inText(f.path, f.fset.Position(n.Pos()).Line, n.Value)...)
			}
		case *ast.Ident:
			if instead, old := names[strings.ToLower(n.Name)]; old {
				problems = append(problems, fmt.Sprintf("%s:%d: the name %s: the field's term is %s",
					f.path, f.fset.Position(n.Pos()).Line, n.Name, instead))
			}
		}
		return true
	})
	return problems
}
