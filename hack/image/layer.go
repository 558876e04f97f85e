package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// entry is one file, folder (no content, mode with os.ModeDir) or symbolic link (target set) of the
// layer.
type entry struct {
	mode    os.FileMode
	content []byte
	target  string
}

// base is what every image has besides its programs: users with names, a place for certificate
// bundles to be mounted at, and a scratch folder. With the 65532 of -user they are what people know
// from "distroless" images.
func base() map[string]entry {
	file := func(content string) entry { return entry{mode: 0o644, content: []byte(content)} }
	return map[string]entry{
		"etc/passwd":        file("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"),
		"etc/group":         file("root:x:0:\nnonroot:x:65532:\n"),
		"etc/nsswitch.conf": file("hosts: files dns\n"),
		"etc/ssl/certs":     {mode: os.ModeDir | 0o755},
		"tmp":               {mode: os.ModeDir | os.ModeSticky | 0o777},
	}
}

// buildLayer returns the uncompressed tar of the only layer of an image for an architecture. Every
// element of files is SOURCE=/PATH, and so is sbom unless it is empty.
func buildLayer(arch string, files []string, sbom string) ([]byte, error) {
	entries := base()
	for _, f := range files {
		if err := addFile(entries, ofArch(f, arch)); err != nil {
			return nil, err
		}
	}
	if sbom != "" {
		if err := addSBOM(entries, ofArch(sbom, arch)); err != nil {
			return nil, err
		}
	}
	addParents(entries)
	return tarOf(entries)
}

// ofArch is SOURCE=/PATH for an architecture.
func ofArch(spec, arch string) string {
	source, dest, found := strings.Cut(spec, "=")
	if !found {
		return spec
	}
	return strings.ReplaceAll(source, "{arch}", arch) + "=" + dest
}

// addSBOM adds the bill of materials of the program SOURCE as /PATH.
func addSBOM(entries map[string]entry, spec string) error {
	source, dest, found := strings.Cut(spec, "=")
	if !found || source == "" || !path.IsAbs(dest) || path.Clean(dest) == "/" {
		return fmt.Errorf("-sbom %q is not SOURCE=/PATH", spec)
	}
	program, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("read %s for its bill of materials: %w", source, err)
	}
	content, err := sbomOf(program, path.Base(source))
	if err != nil {
		return err
	}
	entries[strings.TrimPrefix(path.Clean(dest), "/")] = entry{mode: 0o644, content: content}
	return nil
}

func addFile(entries map[string]entry, spec string) error {
	source, dest, found := strings.Cut(spec, "=")
	if !found || source == "" || !path.IsAbs(dest) || path.Clean(dest) == "/" {
		return fmt.Errorf("%q is not SOURCE=/PATH", spec)
	}
	name := strings.TrimPrefix(path.Clean(dest), "/")
	if target, isLink := strings.CutPrefix(source, "link:"); isLink {
		entries[name] = entry{mode: os.ModeSymlink | 0o777, target: target}
		return nil
	}
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("read %s for the image: %w", source, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file: name files one by one", source)
	}
	content, err := os.ReadFile(source)
	if err != nil {
		return fmt.Errorf("read %s for the image: %w", source, err)
	}
	// Only the executable bit counts; the rest would bring the host's umask into the digest.
	mode := os.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	entries[name] = entry{mode: mode, content: content}
	return nil
}

// addParents adds every folder that an entry lies in; a layer that leaves them out gets them with
// chance modes.
func addParents(entries map[string]entry) {
	for _, name := range slices.Collect(maps.Keys(entries)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, exists := entries[dir]; !exists {
				entries[dir] = entry{mode: os.ModeDir | 0o755}
			}
		}
	}
}

// tarOf writes the entries in the order of their names, which puts a folder before what lies in it.
func tarOf(entries map[string]entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		header := &tar.Header{
			Name:    name,
			Mode:    int64(e.mode.Perm()),
			ModTime: time.Unix(0, 0),
			Format:  tar.FormatUSTAR,
		}
		switch {
		case e.mode.IsDir():
			header.Typeflag = tar.TypeDir
			header.Name += "/"
			if e.mode&os.ModeSticky != 0 {
				header.Mode |= 0o1000
			}
		case e.mode&os.ModeSymlink != 0:
			header.Typeflag = tar.TypeSymlink
			header.Linkname = e.target
		default:
			header.Typeflag = tar.TypeReg
			header.Size = int64(len(e.content))
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("add %s to the layer: %w", name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("add %s to the layer: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("finish the layer: %w", err)
	}
	return out.Bytes(), nil
}
