// Command schedule writes a copy of Go packages that has schedule points (pkg/env/schedule), and an
// overlay for go build and go test that puts the copy in the place of the sources.
//
//	schedule -to FOLDER [PACKAGE-FOLDER...]
//
// It writes FOLDER/overlay.json. Without packages it takes those that run in the simulator. Lines
// keep their numbers: all that is inserted stands in a line that is there. Test files are left as
// they are, and so are files that stand outside of the simulation ("//env:real" before the package
// clause) or run in one piece there ("//schedule:off").
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	runtimeFolder = "pkg/env/schedule"
	runtimeImport = "github.com/dmindex/dmindex/" + runtimeFolder
)

// simulated are the packages that run in the simulator.
var simulated = []string{
	"pkg/index/chime", "pkg/index/dex", "pkg/index/dex/internal/budget", "pkg/index/dex/internal/bufferpool", "pkg/index/dex/internal/frame", "pkg/index/dex/internal/rowcache",
	"pkg/index/dex/internal/offload", "pkg/index/dex/internal/replay", "pkg/index/dex/internal/valuecache", "pkg/index/dex/internal/wal", "pkg/index/dolphin", "pkg/index/psherman", "pkg/index/sherman", "pkg/index/smart",
	"pkg/index/internal/art", "pkg/index/internal/blocks", "pkg/index/internal/btree", "pkg/index/internal/combine",
	"pkg/index/internal/loader", "pkg/index/internal/nodecache", "pkg/index/internal/op", "pkg/index/internal/rounds", "pkg/index/internal/slottedtree",
	"pkg/pool", "pkg/pool/internal/lock", "pkg/pool/redo", "computeserver/engine", "computeserver/ownership", "memserver/internal/core",
}

func main() {
	to := flag.String("to", "", "folder for the copy and its overlay.json")
	flag.Parse()
	if *to == "" {
		flag.Usage()
		os.Exit(2)
	}
	folders := flag.Args()
	if len(folders) == 0 {
		folders = simulated
	}
	n, err := write(".", *to, folders)
	if err != nil {
		fmt.Fprintln(os.Stderr, "schedule:", err)
		os.Exit(1)
	}
	fmt.Printf("%d schedule points\n", n)
}

// write writes the copy of the packages in folders of a module, and returns how many points it has.
func write(root, to string, folders []string) (points int, err error) {
	to, err = filepath.Abs(to)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return 0, err
	}
	in, replace := &inserter{}, map[string]string{}
	add := func(path, content string) error {
		abs, err := filepath.Abs(filepath.Join(root, path))
		if err != nil {
			return err
		}
		copied := filepath.Join(to, strings.ReplaceAll(filepath.ToSlash(path), "/", "_"))
		replace[abs] = copied
		return os.WriteFile(copied, []byte(content), 0o644)
	}
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			return 0, err
		}
		if len(paths) == 0 {
			return 0, fmt.Errorf("%s has no Go files", folder)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return 0, err
			}
			path := filepath.Join(folder, filepath.Base(path))
			changed, err := in.file(path, string(src))
			if err != nil {
				return 0, err
			}
			if err := add(path, changed); err != nil {
				return 0, err
			}
		}
	}
	if err := add(runtimeFolder+"/zz_sites.go", in.table()); err != nil {
		return 0, err
	}
	overlay, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return 0, err
	}
	return len(in.sites), os.WriteFile(filepath.Join(to, "overlay.json"), overlay, 0o644)
}

// file is the source of a file with points.
func (in *inserter) file(path, src string) (string, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		return "", err
	}
	for _, group := range parsed.Comments {
		for _, c := range group.List {
			if c.Pos() < parsed.Package && (strings.HasPrefix(c.Text, "//env:real ") || strings.HasPrefix(c.Text, "//schedule:off ")) {
				return src, nil
			}
		}
	}
	in.begin(fset, filepath.ToSlash(path))
	for _, d := range parsed.Decls {
		in.declaration(d)
	}
	return in.apply(src, fset.Position(parsed.Name.End()).Offset), nil
}

// table is the source of the file that has the table of sites.
func (in *inserter) table() string {
	var b strings.Builder
	b.WriteString("package schedule\n\nfunc init() {\n\tsites = []Site{\n")
	for _, s := range in.sites {
		fmt.Fprintf(&b, "\t\t{%s, %#x, %d},\n", strconv.Quote(s.name), s.hash, s.kind)
	}
	b.WriteString("\t}\n}\n")
	return b.String()
}
