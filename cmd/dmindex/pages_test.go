package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page is a page of the manual whose commands are run as they stand there, in a folder of their
// own. The programs that they name are scripts that put the addresses of the test in the place of
// those of the page.
type page struct {
	t    *testing.T
	text string
	dir  string
}

func newPage(t *testing.T, file string, programs map[string]string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t, string(text), t.TempDir()}
	if err := os.Mkdir(filepath.Join(p.dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(p.dir, "bin", name), []byte("#!/bin/bash\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// section is the text below a heading, up to the next one.
func (p *page) section(heading string) string {
	p.t.Helper()
	_, text, ok := strings.Cut(p.text, "\n"+heading+"\n")
	if !ok {
		p.t.Fatalf("the page has no heading %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n#")
	return text
}

// run runs a line in bash, and returns what it printed.
func (p *page) run(line string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "bash", "-ec", line)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "PATH="+filepath.Join(p.dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Errorf("%s: %v\n%s", line, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// follow runs the lines of a section that begin with one of the programs, in their order. Each of
// them prints the answer whose key it contains.
func (p *page) follow(section string, programs []string, answers [][2]string) {
	p.t.Helper()
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		begins := false
		for _, program := range programs {
			begins = begins || strings.HasPrefix(line, program+" ")
		}
		switch {
		case !begins || strings.HasPrefix(line, "bin/dmindex local"):
		case len(answers) == 0 || !strings.Contains(line, answers[0][0]):
			p.t.Fatalf("%s: the test has no answer for it, and waits for %q; write into the test what it answers", line, answers)
		default:
			if got := p.run(line); !strings.Contains(got+"\n", answers[0][1]+"\n") {
				p.t.Errorf("%s\nprinted %q\nwant    %q", line, got, answers[0][1])
			}
			answers = answers[1:]
		}
	}
	if len(answers) > 0 {
		p.t.Errorf("the page has no command any more with %q", answers)
	}
}

// asks is redis-cli for an index, whatever address it is told.
func (i *typed) asks() string {
	host, port, err := net.SplitHostPort(i.resp)
	if err != nil {
		i.t.Fatal(err)
	}
	path, err := exec.LookPath("redis-cli")
	if err != nil {
		i.t.Fatal("redis-cli is not installed; install Debian's package redis-tools")
	}
	return fmt.Sprintf(`all=(); for w; do case $w in 6380) w=%[1]s;; my-index) w=%[2]s;; esac; all+=("$w"); done; exec %[3]s -e -p %[1]s "${all[@]}"`, port, host, path)
}

// TestFiveMinutes: the first commands of README, as they stand there, are answered as it says.
func TestFiveMinutes(t *testing.T) {
	i := newIndex(t, nil)
	tree := t.TempDir()
	for _, file := range []string{"archive/zip/reader.go", "archive/zip/writer.go", "archive/tar/reader.go"} {
		path := filepath.Join(tree, "src", file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("package zip\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := newPage(t, "README.md", map[string]string{
		"redis-cli": i.asks(),
		"go":        "echo " + tree,
		"dmindex":   fmt.Sprintf(`%s=yes exec %s "$@" --endpoint %s`, childEnv, os.Args[0], i.endpoint),
	})
	p.follow(p.section("## Five minutes, without Kubernetes"), []string{"redis-cli", "bin/dmindex"}, [][2]string{
		{"set fruit:apple red", "OK"},
		{"mset", "OK"},
		{"range fruit:", "fruit:apple\nred\nfruit:banana\nyellow\nfruit:cherry\nred"},
		{"rev", "veg:leek\ngreen\nfruit:cherry\nred"},
		{"dbsize", "4"},
		{"put fruit:date brown", ""},
		{"scan fruit:", "fruit:apple\tred\nfruit:banana\tyellow\nfruit:cherry\tred"},
		{"load --tree", ""},
		{"scan archive/zip/", ""},
		{"dump", ""},
		{"status", ""},
	})
	if got := p.run("bin/dmindex scan --prefix archive/zip/ --keys"); got != "archive/zip/reader.go\narchive/zip/writer.go" {
		t.Errorf("the tree that the page loads gave %q", got)
	}
	if dump, err := os.Stat(filepath.Join(p.dir, "bin", "all.dump")); err != nil || dump.Size() == 0 {
		t.Errorf("the page's dump: %v", err)
	}
}

// TestRangeOfTheManual: what the manual shows of RANGE is what redis-cli prints.
func TestRangeOfTheManual(t *testing.T) {
	i := newIndex(t, nil)
	i.want("", "put", "fruit/pear", "green")
	i.want("", "put", "fruit/apple", "red")
	i.want("", "put", "fruit0", "no fruit")
	p := newPage(t, "docs/redis-commands.md", map[string]string{"redis-cli": i.asks()})
	_, shown, _ := strings.Cut(p.text, "\n    $ redis-cli ")
	shown, _, _ = strings.Cut(shown, "\n\n")
	line, want, ok := strings.Cut(strings.ReplaceAll(shown, "\n    ", "\n"), "\n")
	if got := p.run("redis-cli " + line); !ok || got != want {
		t.Errorf("redis-cli %s\nprints       %q\nand the page %q", line, got, want)
	}
}

// TestShopOfTheManual: the page of examples asks the shop as it can be asked. curl, which not every
// machine has, is a request of this test with the page's method and path.
func TestShopOfTheManual(t *testing.T) {
	_, server := shop(t)
	p := newPage(t, "examples/README.md", nil)
	asked := 0
	for _, m := range regexp.MustCompile(`(?m)^    curl (?:-X ([A-Z]+) )?'?localhost:8080(/[^'\s]*)'?$`).FindAllStringSubmatch(p.section("## The shop"), -1) {
		request, err := http.NewRequestWithContext(t.Context(), m[1], server.URL+m[2], nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		want := []string{"5", "sold", `[{"Name":"pear","Count":3}]`}[min(asked, 2)]
		if err != nil || response.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s %q, %v; want %q", m[0], response.Status, body, err, want)
		}
		asked++
	}
	if asked != 3 {
		t.Errorf("the page has %d requests; this test knows the answers of three", asked)
	}
}
