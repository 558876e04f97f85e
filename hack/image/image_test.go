package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSameInputSameBytes(t *testing.T) {
	program := hostFile(t, "program", 0o755)
	first := build(t, program+"=/bin/program", "link:/bin/program=/entry", "-label", "a=1", "-label", "b=2")
	// Neither the order of arguments nor the age nor the umask of a file may show.
	if err := os.Chtimes(program, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	second := build(t, "link:/bin/program=/entry", program+"=/bin/program", "-label", "b=2", "-label", "a=1")
	if !bytes.Equal(first, second) {
		t.Error("two images of the same files differ")
	}
	if third := build(t, program+"=/bin/other"); bytes.Equal(first, third) {
		t.Error("images of different files are the same")
	}
}

func TestArchiveLeadsFromIndexToLayer(t *testing.T) {
	program := hostFile(t, "program", 0o755)
	archive := contents(t, build(t, program+"=/program", "-label", "org.opencontainers.image.title=dmindex"))

	var idx index
	decode(t, archive["index.json"], &idx)
	if got := idx.Manifests[0].Annotations["io.containerd.image.name"]; got != "localhost/test:one" {
		t.Errorf("name is %q", got)
	}
	if got := idx.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != "one" {
		t.Errorf("tag is %q", got)
	}
	var man manifest
	decode(t, blob(t, archive, idx.Manifests[0]), &man)
	var config imageConfig
	decode(t, blob(t, archive, man.Config), &config)
	layer := blob(t, archive, man.Layers[0])
	if got := config.RootFS.DiffIDs[0]; got != digestOf(layer) {
		t.Errorf("the configuration names layer %s, which is %s", got, digestOf(layer))
	}
	if got := config.Config.User; got != "65532:65532" {
		t.Errorf("runs as %q by default, which is not the nonroot user", got)
	}
	if got := config.Config.Entrypoint; !slices.Equal(got, []string{"/program", "serve"}) {
		t.Errorf("entry point is %q", got)
	}
	if got := config.Config.Labels["org.opencontainers.image.title"]; got != "dmindex" {
		t.Errorf("label is %q", got)
	}
}

func TestLayer(t *testing.T) {
	program, data := hostFile(t, "program", 0o755), hostFile(t, "data", 0o640)
	layer, err := buildLayer("amd64", []string{program + "=/opt/a/program", data + "=/opt/data", "link:/opt/a/program=/program"}, "")
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]int64{}
	var order []string
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
		order = append(order, h.Name)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s carries something of the host: %+v", h.Name, h)
		}
		if h.Name == "program" && h.Linkname != "/opt/a/program" {
			t.Errorf("the link points to %q", h.Linkname)
		}
	}
	want := func(name string, mode int64) {
		t.Helper()
		if got, exists := modes[name]; !exists || got != mode {
			t.Errorf("%s has mode %o (exists: %v), want %o", name, got, exists, mode)
		}
	}
	want("opt/a/program", 0o755)
	want("opt/data", 0o644)
	want("opt/", 0o755)
	want("opt/a/", 0o755)
	want("tmp/", 0o1777)
	want("etc/ssl/certs/", 0o755)
	want("etc/passwd", 0o644)
	if !slices.IsSorted(order) {
		t.Errorf("entries are not sorted, so a folder may follow its files: %q", order)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	program := hostFile(t, "program", 0o755)
	out := filepath.Join(t.TempDir(), "out.tar")
	f := func(want string, args ...string) {
		t.Helper()
		err := run(args)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("run(%q) = %v, want an error with %q", args, err, want)
		}
	}
	f("no -o", "-name", "a:b", "-entrypoint", "/p", program+"=/p")
	f("no -entrypoint", "-o", out, "-name", "a:b", program+"=/p")
	f("no files", "-o", out, "-name", "a:b", "-entrypoint", "/p")
	f("has no tag", "-o", out, "-name", "host:5000/a", "-entrypoint", "/p", program+"=/p")
	f("has no tag", "-o", out, "-entrypoint", "/p", program+"=/p")
	f("not SOURCE=/PATH", "-o", out, "-name", "a:b", "-entrypoint", "/p", program)
	f("not SOURCE=/PATH", "-o", out, "-name", "a:b", "-entrypoint", "/p", program+"=relative")
	f("not a regular file", "-o", out, "-name", "a:b", "-entrypoint", "/p", filepath.Dir(program)+"=/p")
	f("no such file", "-o", out, "-name", "a:b", "-entrypoint", "/p", program+"gone=/p")
	f("name each architecture once", "-o", out, "-name", "a:b", "-entrypoint", "/p", "-arch", "amd64,amd64", program+"=/p")
	f("not SOURCE=/PATH", "-o", out, "-name", "a:b", "-entrypoint", "/p", "-sbom", program, program+"=/p")
	f("was built of", "-o", out, "-name", "a:b", "-entrypoint", "/p", "-sbom", program+"=/sbom", program+"=/p")
	f("not KEY=VALUE", "-o", out, "-name", "a:b", "-entrypoint", "/p", "-label", "x", program+"=/p")
}

// build runs the program with flags and files in any order and returns the archive.
func build(t *testing.T, args ...string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.tar")
	flags, files := []string{"-o", out, "-name", "localhost/test:one", "-entrypoint", "/program,serve"}, []string{}
	for i := 0; i < len(args); i++ {
		if strings.HasPrefix(args[i], "-") {
			flags = append(flags, args[i], args[i+1])
			i++
			continue
		}
		files = append(files, args[i])
	}
	if err := run(append(flags, files...)); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

func hostFile(t *testing.T, name string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte("content of "+name), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func contents(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// blob returns what a descriptor points to, after checking digest and size.
func blob(t *testing.T, archive map[string][]byte, d descriptor) []byte {
	t.Helper()
	b, exists := archive["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if !exists {
		t.Fatalf("the archive has no blob %s", d.Digest)
	}
	if digestOf(b) != d.Digest || len(b) != d.Size {
		t.Fatalf("blob %s has another content than its name says", d.Digest)
	}
	return b
}

func decode(t *testing.T, blob []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(blob, into); err != nil {
		t.Fatal(err)
	}
}
