// Package lint holds the rules of the project's code that a program can check, as tests.
package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/dmindex/dmindex"

// file is a parsed Go file; dir is relative to the module's root, with slashes.
type file struct {
	path, dir string
	generated bool
	test      bool
	src       string
	ast       *ast.File
	fset      *token.FileSet
}

func (f *file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// sources parses every Go file of the project's own module.
func sources(t *testing.T) []*file {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var files []*file
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			_, modErr := os.Stat(filepath.Join(path, "go.mod"))
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata" || modErr == nil) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, rel, src, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		files = append(files, &file{path: rel, dir: dir, src: string(src), ast: parsed, fset: fset,
			generated: strings.HasPrefix(d.Name(), "zz_generated"), test: strings.HasSuffix(rel, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d Go files found below %s", len(files), root)
	}
	return files
}

// rooms says what each room may import of ours: itself, what stands here, and what lies below
// those. The first prefix that fits a folder is its room, so the longer ones stand first. Tests may
// import more: they put parts together.
var rooms = []struct {
	room string
	may  []string
}{
	{"api/config", nil},
	{"api/rpc", nil},
	{"api/v1alpha1", nil},
	{"pkg/accept", nil},
	{"pkg/autoscale", nil},
	{"pkg/env", nil},
	{"pkg/identity", nil},
	{"pkg/grant", nil},
	{"pkg/keyrange", nil},
	{"pkg/sum", nil},
	{"pkg/partition", []string{"pkg/keyrange"}},
	{"pkg/volumes", []string{"pkg/env"}},
	{"pkg/logs", nil},
	{"pkg/profile", nil},
	{"pkg/settings", []string{"pkg/logs"}},
	{"pkg/verbs/verbstest", []string{"pkg/verbs", "pkg/env"}},
	{"pkg/verbs", []string{"pkg/accept", "pkg/env"}},
	{"pkg/pool/pooltest", []string{"pkg/pool", "pkg/verbs", "pkg/env"}},
	{"pkg/pool/poolsim", []string{"pkg/pool", "pkg/verbs", "pkg/env"}},
	{"pkg/pool", []string{"pkg/verbs", "pkg/env", "pkg/keyrange", "pkg/sum"}},
	{"pkg/index/indextest", []string{"pkg/index", "pkg/pool", "pkg/verbs", "pkg/env"}},
	{"pkg/index/indexsim", []string{"pkg/index", "pkg/pool", "pkg/verbs", "pkg/env"}},
	{"pkg/index/internal/ranges", nil},
	// the rooms of dex, from the ground up: none imports a room above it, nor dex itself
	{"pkg/index/dex/internal/record", []string{"pkg/index/internal", "pkg/index"}},
	{"pkg/index/dex/internal/rowcache", []string{"pkg/index/internal", "pkg/env"}},
	{"pkg/index/dex/internal/valuecache", []string{"pkg/index/dex/internal/rowcache", "pkg/index/internal", "pkg/env"}},
	{"pkg/index/dex/internal/offload", []string{"pkg/index/internal", "pkg/index", "pkg/pool", "pkg/sum", "pkg/verbs"}},
	{"pkg/index/dex/internal/budget", []string{"pkg/index/dex/internal/bufferpool", "pkg/index/dex/internal/frame", "pkg/index/dex/internal/rowcache", "pkg/index/dex/internal/valuecache", "pkg/env"}},
	{"pkg/index/dex/internal/wal", []string{"pkg/index/dex/internal/record", "pkg/index/dex/internal/frame", "pkg/pool", "pkg/env"}},
	{"pkg/index/dex/internal/replay", []string{"pkg/index/dex/internal/record", "pkg/index/dex/internal/frame", "pkg/index/internal", "pkg/index", "pkg/keyrange", "pkg/pool", "pkg/env"}},
	{"pkg/index/dex/internal/bufferpool", []string{"pkg/index/dex/internal/frame", "pkg/index/internal", "pkg/pool", "pkg/env"}},
	{"pkg/index/dex/internal/frame", []string{"pkg/index/internal", "pkg/pool", "pkg/verbs", "pkg/env"}},
	{"pkg/index", []string{"pkg/pool", "pkg/verbs", "pkg/env", "pkg/keyrange", "pkg/sum"}},
	{"memserver/internal/core", []string{"memserver/ledger", "pkg/verbs", "pkg/pool", "pkg/env"}},
	{"memserver/internal/admission", []string{"memserver/internal/core", "memserver/ledger", "pkg/pool", "pkg/accept", "pkg/identity", "api/rpc"}},
	{"memserver/internal/region", []string{"memserver/internal/core", "memserver/ledger", "memserver/mirror", "pkg/verbs", "pkg/pool", "pkg/env"}},
	{"memserver/memservertest", []string{"memserver/internal/core", "memserver/ledger", "pkg/verbs", "pkg/pool", "pkg/env"}},
	{"memserver", []string{"pkg/accept", "pkg/profile", "pkg/volumes", "pkg/verbs", "pkg/pool", "pkg/env", "pkg/identity", "api/rpc", "api/config", "pkg/keyrange"}},
	{"computeserver/computeservertest", []string{"api/config", "pkg/index", "pkg/partition", "pkg/verbs", "pkg/env"}},
	{"computeserver/internal/count", nil},
	{"computeserver/internal/statuspage", nil},
	{"computeserver/ownership", []string{"pkg/index", "pkg/partition", "pkg/pool", "pkg/env", "pkg/keyrange", "api/rpc"}},
	{"computeserver/expiry", []string{"pkg/index", "pkg/env"}},
	{"computeserver/hash", nil},
	{"computeserver/pubsub", nil},
	{"computeserver/script", []string{"pkg/env"}},
	{"computeserver/sortedset", []string{"api/rpc"}},
	{"computeserver/engine", []string{
		"computeserver/expiry", "computeserver/hash", "computeserver/sortedset", "computeserver/ownership", "computeserver/script", "computeserver/internal/count",
		"pkg/index", "pkg/partition", "pkg/verbs", "pkg/env", "pkg/keyrange", "api/rpc", "api/config",
	}},
	{"computeserver/users", []string{"pkg/identity", "pkg/keyrange"}},
	{"computeserver/resp", []string{
		"pkg/accept", "computeserver/users", "computeserver/engine", "computeserver/expiry", "computeserver/hash", "computeserver/sortedset", "computeserver/ownership", "computeserver/pubsub", "computeserver/script", "computeserver/internal/count", "pkg/index", "pkg/partition", "pkg/env", "api/rpc",
	}},
	{"computeserver", []string{"pkg/accept", "pkg/profile", "pkg/index", "pkg/partition", "pkg/pool", "pkg/verbs", "pkg/env", "pkg/identity", "pkg/settings", "api/rpc", "api/config", "pkg/keyrange"}},
	{"client", []string{"pkg/partition", "api/rpc", "pkg/identity", "pkg/keyrange"}},
	// the rooms of the operator, from the ground up: none imports a room above it
	{"controllers/internal/state", nil},
	{"controllers/internal/pki", nil},
	{"controllers/internal/kube", []string{"api/v1alpha1"}},
	{"controllers/internal/build", []string{"controllers/internal/pki", "api", "pkg/identity", "pkg/logs", "pkg/settings"}},
	{"controllers/internal/servers", []string{"controllers/internal/pki", "controllers/internal/build", "api/v1alpha1", "api/rpc", "pkg/identity", "pkg/volumes"}},
	{"controllers/internal/outcome", []string{"controllers/internal/kube", "api/v1alpha1"}},
	{"controllers/internal/report", []string{"controllers/internal/kube", "api/v1alpha1"}},
	{"controllers/internal/passwords", []string{"controllers/internal/kube", "api/v1alpha1", "pkg/identity"}},
	{"controllers/internal/decision", []string{"controllers/internal/state", "controllers/internal/kube", "controllers/internal/build", "controllers/internal/outcome", "api/v1alpha1", "pkg/grant"}},
	{"controllers/internal/reconciler", []string{"controllers/internal/decision", "controllers/internal/report", "controllers/internal/servers", "pkg/logs"}},
	{"controllers/internal/podstate", []string{"controllers/internal/kube", "controllers/internal/build", "controllers/internal/report", "controllers/internal/outcome", "api/v1alpha1"}},
	{"controllers/internal/volume", []string{"controllers/internal/reconciler", "controllers/internal/podstate", "controllers/internal/decision", "controllers/internal/build", "controllers/internal/kube", "api/v1alpha1", "pkg/volumes"}},
	{"controllers/internal/serverpod", []string{"controllers/internal/reconciler", "controllers/internal/podstate", "controllers/internal/report", "controllers/internal/outcome", "controllers/internal/build", "controllers/internal/kube", "controllers/internal/servers", "controllers/internal/pki", "api", "pkg/logs", "pkg/profile"}},
	{"controllers/internal/authority", []string{"controllers/internal/reconciler", "controllers/internal/podstate", "controllers/internal/report", "controllers/internal/outcome", "controllers/internal/build", "controllers/internal/kube", "controllers/internal/pki", "api", "pkg/identity"}},
	{"controllers/internal/backup", []string{"controllers/internal/serverpod", "controllers/internal/reconciler", "controllers/internal/podstate", "controllers/internal/decision", "controllers/internal/report", "controllers/internal/outcome", "controllers/internal/build", "controllers/internal/kube", "api"}},
	{"controllers/internal/user", []string{"controllers/internal/authority", "controllers/internal/passwords", "controllers/internal/reconciler", "controllers/internal/servers", "controllers/internal/podstate", "controllers/internal/report", "controllers/internal/outcome", "controllers/internal/build", "controllers/internal/kube", "api", "pkg/identity"}},
	{"controllers/internal/computepool", []string{"controllers/internal/authority", "controllers/internal/serverpod", "controllers/internal/reconciler", "controllers/internal/podstate", "controllers/internal/decision", "controllers/internal/report", "controllers/internal/outcome", "controllers/internal/build", "controllers/internal/kube", "controllers/internal/pki", "api", "pkg/partition"}},
	{"controllers/internal/memorypool", []string{"controllers/internal/authority", "controllers/internal/serverpod", "controllers/internal/volume", "controllers/internal/reconciler", "controllers/internal/podstate", "controllers/internal/decision", "controllers/internal/report", "controllers/internal/outcome", "controllers/internal/servers", "controllers/internal/build", "controllers/internal/kube", "controllers/internal/pki", "api", "pkg/volumes", "pkg/identity"}},
	{"controllers/internal/index", []string{"controllers/internal/passwords", "controllers/internal/backup", "controllers/internal/authority", "controllers/internal/serverpod", "controllers/internal/volume", "controllers/internal/reconciler", "controllers/internal/podstate", "controllers/internal/decision", "controllers/internal/report", "controllers/internal/outcome", "controllers/internal/servers", "controllers/internal/build", "controllers/internal/kube", "controllers/internal/pki", "api", "pkg/autoscale", "pkg/grant", "pkg/identity", "pkg/partition"}},
	{"controllers/internal/serverstest", []string{"controllers", "api", "pkg/volumes", "pkg/env"}},
	{"controllers", []string{"api", "pkg/accept", "pkg/partition", "pkg/logs", "pkg/profile"}},
	{"deviceplugin", []string{"pkg/accept", "pkg/profile"}},
	{"cmd/kubectl-dmindex", []string{"api", "client", "pkg/accept"}},
	{"cmd/dmindex/internal/bench/workload", nil},
	{"cmd/dmindex/internal/bench/report", []string{"cmd/dmindex/internal/bench", "pkg/verbs"}},
	{"cmd/dmindex/internal/bench/papers", []string{"cmd/dmindex/internal/bench", "pkg/index"}},
	{"cmd/dmindex", []string{""}},
	{"examples", []string{"client"}},
	{"test", []string{""}},
	{"hack/servebench", []string{"api/config", "memserver/control", "memserver/keeper", "pkg/partition", "pkg/volumes", "client"}},
	{"hack", nil},
}

// dexRooms are ordered by their rows alone: "pkg/index" in such a row does not include the others.
const dexRooms = "pkg/index/dex/internal"

// TestHouse checks that arrows run down the table of rooms only, and that designs do not know
// providers nor providers indexes.
func TestHouse(t *testing.T) {
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		room, may, ok := roomOf(f.dir)
		if !ok {
			t.Errorf("%s: folder %s is no room of the house: add it to the table in test/lint and to CONTRIBUTING.md", f.path, f.dir)
			continue
		}
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			ours, isOurs := strings.CutPrefix(path, module+"/")
			if !isOurs || within(ours, room) {
				continue
			}
			allowed := false
			for _, m := range may {
				allowed = allowed || m == "" || within(ours, m) && (!within(ours, dexRooms) || within(m, dexRooms) || !within(room, dexRooms))
			}
			if room == "pkg/index" || room == "pkg/pool" {
				// no provider
				allowed = allowed && (!within(ours, "pkg/verbs") || ours == "pkg/verbs")
			}
			if !allowed {
				t.Errorf("%s: %s may not import %s", f.at(imp), room, ours)
			}
		}
	}
}

// TestTools checks that packages for tests, whose names end with "test", are imported by tests and
// by each other only.
func TestTools(t *testing.T) {
	isTool := func(dir string) bool {
		for part := range strings.SplitSeq(dir, "/") {
			if strings.HasSuffix(part, "test") {
				return true
			}
		}
		return false
	}
	for _, f := range sources(t) {
		if f.test || isTool(f.dir) || within(f.dir, "test") {
			continue
		}
		for _, imp := range f.ast.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			if ours, isOurs := strings.CutPrefix(path, module+"/"); isOurs && isTool(ours) {
				t.Errorf("%s: %s is for tests only", f.at(imp), ours)
			}
		}
	}
}

func within(path, room string) bool { return path == room || strings.HasPrefix(path, room+"/") }

func roomOf(dir string) (room string, may []string, ok bool) {
	for _, r := range rooms {
		if within(dir, r.room) {
			return r.room, r.may, true
		}
	}
	return "", nil, false
}

// TestRoomsAreOrdered keeps a longer prefix before a shorter one, so that roomOf finds the closest
// room.
func TestRoomsAreOrdered(t *testing.T) {
	for i, r := range rooms {
		for _, later := range rooms[i+1:] {
			if within(later.room, r.room) {
				t.Errorf("room %s hides %s, which stands after it", r.room, later.room)
			}
		}
	}
}
