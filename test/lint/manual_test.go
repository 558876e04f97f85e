package lint

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// manual is a page of the manual.
type manual struct {
	path string // from the project's folder
	text string
}

// pages reads the whole manual.
func pages(t *testing.T) (all []manual) {
	t.Helper()
	root := filepath.Join("..", "..")
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md", "hack/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			path, _ = filepath.Rel(root, path)
			all = append(all, manual{path, string(text)})
		}
	}
	if len(all) < 20 {
		t.Fatalf("%d pages", len(all))
	}
	return all
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchors   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names under which the headings of a page can be linked to.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, h := range headingPattern.FindAllStringSubmatch(text, -1) {
		name := notInAnchors.ReplaceAllString(strings.ToLower(h[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// TestLinks: what a page links to exists, headings included.
func TestLinks(t *testing.T) {
	all := map[string]manual{}
	for _, p := range pages(t) {
		all[p.path] = p
	}
	checked := 0
	for _, p := range all {
		for _, l := range linkPattern.FindAllStringSubmatch(p.text, -1) {
			target, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(target, "://") || strings.Contains(target, "*") {
				continue // of another host, or a regular expression
			}
			checked++
			path := p.path
			if target != "" {
				path = filepath.Join(filepath.Dir(p.path), target)
			}
			if _, err := os.Stat(filepath.Join("..", "..", path)); err != nil {
				t.Errorf("%s links to %s, which does not exist", p.path, l[1])
			} else if page, is := all[path]; anchor != "" && is && !anchors(page.text)[anchor] {
				t.Errorf("%s links to %s: that page has no such heading", p.path, l[1])
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d links", checked)
	}
}

// longestPage is how many lines a page on a mechanism has at most.
const longestPage = 250

// TestDesignPages: a page on a mechanism can be read at once.
func TestDesignPages(t *testing.T) {
	checked := 0
	for _, p := range pages(t) {
		if dir, _ := filepath.Split(p.path); dir != "docs/design/" {
			continue
		}
		checked++
		if n := strings.Count(p.text, "\n"); n > longestPage {
			t.Errorf("%s has %d lines: divide it, a page has at most %d; what is history goes to docs/design/notes", p.path, n, longestPage)
		}
	}
	if checked < 10 {
		t.Errorf("only %d pages", checked)
	}
}

var (
	commandPattern = regexp.MustCompile(`\b(kubectl )?dmindex ([a-z-]+)([^|;&\n` + "`" + `]*)`)
	flagPattern    = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
	namePattern    = regexp.MustCompile("`(kubectl )?(?:bin/)?dmindex ([a-z][a-z-]*)")
	targetPattern  = regexp.MustCompile("`make ([a-z0-9-]+)")
)

// TestCommands: the commands and flags that the manual names are those that programs have, and the
// targets those of the Makefile.
func TestCommands(t *testing.T) {
	reference, err := os.ReadFile("../../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, s := range strings.Split(string(reference), "\n### ")[1:] {
		name, text, _ := strings.Cut(s, "\n")
		sections[name] = text
	}
	flags := 0
	for _, p := range pages(t) {
		if p.path == "docs/reference/commands.md" {
			continue
		}
		for _, c := range commandPattern.FindAllStringSubmatch(strings.ReplaceAll(p.text, "\\\n", " "), -1) {
			section, known := sections[c[1]+"dmindex "+c[2]]
			if c[2] == "charts" {
				continue // helm's
			}
			for _, f := range flagPattern.FindAllStringSubmatch(c[3], -1) {
				flags++
				if !known || !strings.Contains(section, f[1]+" ") {
					t.Errorf("%s: %s: dmindex %s has no flag %s", p.path, strings.TrimSpace(c[0]), c[2], f[1])
				}
			}
		}
		for _, m := range namePattern.FindAllStringSubmatch(p.text, -1) {
			if _, known := sections[m[1]+"dmindex "+m[2]]; !known {
				t.Errorf("%s: `%sdmindex %s` is no command", p.path, m[1], m[2])
			}
		}
		for _, m := range targetPattern.FindAllStringSubmatch(p.text, -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %s", p.path, m[1])
			}
		}
	}
	if flags < 20 {
		t.Errorf("only %d flags", flags)
	}
}

var tagPattern = regexp.MustCompile(`--set [^\n` + "`" + `]*image\.tag=([^\s,` + "`" + `]+)`)

// TestImageTags: the tags in the manual's commands are strings to Helm. It takes digits after --set
// for a number, which the chart's schema refuses.
func TestImageTags(t *testing.T) {
	checked := 0
	for _, p := range pages(t) {
		for _, tag := range tagPattern.FindAllStringSubmatch(p.text, -1) {
			checked++
			if _, err := strconv.ParseInt(tag[1], 10, 64); err == nil {
				t.Errorf("%s: --set image.tag=%s is a number to Helm: use another tag, or --set-string", p.path, tag[1])
			}
		}
	}
	if checked < 2 {
		t.Errorf("only %d tags", checked)
	}
}

var (
	filePattern = regexp.MustCompile("`([a-z0-9_/.-]*?)([a-z0-9_]+\\.go)`")
	testPattern = regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z][A-Za-z0-9]+)`")
)

// TestFilesAndTests: the Go files and the tests that pages of the manual name exist. Dated notes
// speak of the code of their day.
func TestFilesAndTests(t *testing.T) {
	paths, functions := map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		for at := f.path; ; {
			paths[at] = true
			_, rest, more := strings.Cut(at, "/")
			if !more {
				break
			}
			at = rest
		}
		for _, d := range f.ast.Decls {
			if d, is := d.(*ast.FuncDecl); is {
				functions[d.Name.Name] = true
			}
		}
	}
	checked := 0
	for _, p := range pages(t) {
		if strings.Contains(p.path, "/notes/") {
			continue
		}
		for _, m := range filePattern.FindAllStringSubmatch(p.text, -1) {
			checked++
			if !paths[strings.TrimPrefix(m[1]+m[2], "./")] {
				t.Errorf("%s names %s, which does not exist", p.path, m[0])
			}
		}
		for _, m := range testPattern.FindAllStringSubmatch(p.text, -1) {
			checked++
			if !functions[m[1]] {
				t.Errorf("%s names %s, which does not exist", p.path, m[0])
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d names", checked)
	}
}
