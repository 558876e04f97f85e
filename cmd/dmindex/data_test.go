package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
	"github.com/dmindex/dmindex/cmd/dmindex/internal/local"
)

// typed is a local index and what a person types to talk to it.
type typed struct {
	t        *testing.T
	endpoint string
	resp     string
}

func newIndex(t *testing.T, change func(*local.Config)) *typed {
	t.Helper()
	c := local.Config{
		Listen: "127.0.0.1:0", ListenRPC: "127.0.0.1:0", Transport: "shm", Design: "sherman", MemoryServers: 2, ComputeServers: 2,
		MemoryBytes: 64 << 20, KeyType: config.KeyBytes, MaxKeyBytes: 256, MaxValueBytes: 256, Routing: config.RoutingAny,
		Version: "test", Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&c)
	}
	l, err := local.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- l.Run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &typed{t, l.RPC[0], l.RESP[0]}
}

// run runs a command and returns what it printed on stdout, and its error.
func (i *typed) run(stdin string, args ...string) (string, error) {
	i.t.Helper()
	cmd := root()
	var out, errOut bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetArgs(append(args, "--endpoint", i.endpoint))
	err := cmd.ExecuteContext(i.t.Context())
	return out.String(), err
}

func (i *typed) want(out string, args ...string) {
	i.t.Helper()
	if got, err := i.run("", args...); err != nil || got != out {
		i.t.Errorf("dmindex %s\nprinted %q, %v\nwant    %q", strings.Join(args, " "), got, err, out)
	}
}

func (i *typed) refuse(message string, args ...string) {
	i.t.Helper()
	if out, err := i.run("", args...); err == nil || !strings.Contains(err.Error(), message) {
		i.t.Errorf("dmindex %s: printed %q, error %v; want one with %q", strings.Join(args, " "), out, err, message)
	}
}

func TestPointOperationsAndScans(t *testing.T) {
	i := newIndex(t, nil)
	i.want("", "put", "b", "2")
	i.want("", "put", "a", "1")
	i.want("", "put", "c/x", "3")
	i.want("", "put", "--key", "hex", "632f79", "4") // c/y
	i.want("1\n", "get", "a")
	i.want("4\n", "get", "c/y")
	i.want("a\t1\nb\t2\nc/x\t3\nc/y\t4\n", "scan")
	i.want("b\t2\n", "scan", "b", "c")
	i.want("c/y\nc/x\n", "scan", "--prefix", "c/", "--reverse", "--keys")
	i.want("c/y\t4\n", "scan", "--reverse", "--limit", "1")
	i.want("4\n", "scan", "--count")
	i.want("2 deleted\n", "del", "a", "b", "nothing")
	i.refuse("key not found", "get", "a")
	if _, err := i.run("from stdin", "put", "s", "-"); err != nil {
		t.Error(err)
	}
	i.want("from stdin\n", "get", "s")
}

func TestNumbersAsKeys(t *testing.T) {
	i := newIndex(t, func(c *local.Config) { c.KeyType, c.MaxKeyBytes = config.KeyUint64, 8 })
	i.want("", "put", "--key", "uint64", "18446744073709551615", "last")
	i.want("", "put", "--key", "uint64", "0", "first")
	i.want("0\tfirst\n18446744073709551615\tlast\n", "scan", "--key", "uint64")
	i.refuse("8 bytes", "put", "text", "1")
}

func TestBadInput(t *testing.T) {
	i := newIndex(t, nil)
	i.refuse("at most 256", "put", strings.Repeat("k", 257), "v")
	i.refuse("at most 256", "put", "k", strings.Repeat("v", 257))
	i.refuse("--key octal", "get", "--key", "octal", "1")
	i.refuse(`key "xyz"`, "get", "--key", "hex", "xyz")
	i.refuse("not both", "scan", "a", "--prefix", "b")
	i.refuse("not both", "load")
	i.refuse("no such file", "restore", filepath.Join(t.TempDir(), "missing"))
	if _, err := i.run("a\t1\nno tab\n", "load", "-"); err == nil || !strings.Contains(err.Error(), "line 2 has no tab") {
		t.Errorf("a line without tab: %v", err)
	}
	i.want("1\n", "get", "a") // what stood before the bad line
	elsewhere := &typed{t: t, endpoint: "192.0.2.1:7480"}
	elsewhere.refuse("--ca", "get", "a")
}

func TestLoadTreeDumpAndRestore(t *testing.T) {
	tree := t.TempDir()
	const n = 300
	for f := range n {
		path := filepath.Join(tree, fmt.Sprintf("dir%d", f%7), fmt.Sprintf("file%03d", f))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Repeat([]byte("x"), f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	from := newIndex(t, nil)
	from.want("", "load", "--tree", tree)
	from.want(fmt.Sprintln(n), "scan", "--count")
	from.want("0 -rw-r--r-- e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n", "get", "dir0/file000")
	all, err := from.run("", "scan")
	if err != nil {
		t.Fatal(err)
	}

	dump := filepath.Join(t.TempDir(), "all.dump")
	from.want("", "dump", dump)
	from.refuse("not empty", "restore", dump)

	to := newIndex(t, nil)
	damaged := filepath.Join(t.TempDir(), "damaged.dump")
	content, err := os.ReadFile(dump)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(damaged, content, 0o644); err != nil {
		t.Fatal(err)
	}
	to.refuse("nothing was restored", "restore", damaged)
	to.want("0\n", "scan", "--count")
	to.want("", "restore", dump)
	to.want(all, "scan")
	to.want("", "put", "another", "1")
	to.want("", "restore", "--replace", dump)
	to.want(fmt.Sprintln(n+1), "scan", "--count")

	if left, err := filepath.Glob(dump + ".*"); err != nil || len(left) > 0 {
		t.Errorf("beside the dump lie %v, %v", left, err)
	}
	missing := filepath.Join(t.TempDir(), "no", "such", "dir", "x.dump")
	from.refuse("no such file", "dump", missing)
}

// TestLoadTreeByALink loads a directory that is named by a link, and refuses what is no directory.
func TestLoadTreeByALink(t *testing.T) {
	dir := t.TempDir()
	tree, link, file := filepath.Join(dir, "tree"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	for _, err := range []error{
		os.Mkdir(tree, 0o755), os.WriteFile(filepath.Join(tree, "a"), nil, 0o644), os.Symlink("a", filepath.Join(tree, "b")),
		os.Symlink("tree", link), os.WriteFile(file, nil, 0o644), os.Symlink("nowhere", filepath.Join(dir, "dangling")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	i := newIndex(t, nil)
	for _, name := range []string{link, link + "/", filepath.Join(link, ".")} {
		i.want("", "load", "--tree", name)
		i.want("a\n", "scan", "--keys")
		i.want("1 deleted\n", "del", "a")
	}
	i.refuse("it is no directory", "load", "--tree", file)
	i.refuse("no such file", "load", "--tree", filepath.Join(dir, "dangling"))
	i.refuse("no such file", "load", "--tree", filepath.Join(dir, "missing"))
	i.want("0\n", "scan", "--count")
}

// TestLoadKeepsBytes loads keys and values with bytes that text programs like to change.
func TestLoadKeepsBytes(t *testing.T) {
	i := newIndex(t, nil)
	if _, err := i.run("a\tone\r\nb\t\r\nc\r\t \t \r\r\nd\t\ne\tlast\r", "load", "-"); err != nil {
		t.Fatal(err)
	}
	i.want("a\tone\r\nb\t\r\nc\r\t \t \r\r\nd\t\ne\tlast\r\n", "scan")
	if _, err := i.run("a\t1\nb\t"+strings.Repeat("x", longestLine)+"\n", "load", "-"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a line that is too long: %v", err)
	}
}

func TestStatus(t *testing.T) {
	i := newIndex(t, nil)
	out, err := i.run("", "status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"index local", "compute-1", "compute-2", "serving", "generation 1"} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not say %q:\n%s", want, out)
		}
	}
}

func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("sesame"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := newIndex(t, func(c *local.Config) { c.Users.PasswordFile = file })
	i.refuse("access was refused", "get", "a")
	i.want("", "put", "a", "1", "--password", file)
	i.want("1\n", "get", "a", "--password", file)
}
