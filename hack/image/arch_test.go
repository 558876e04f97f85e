package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestArchitectures: an image of several leads to the manifest of each, whose layer has its program.
func TestArchitectures(t *testing.T) {
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		if err := os.WriteFile(filepath.Join(dir, "program-"+arch), []byte("of "+arch), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	archive := contents(t, build(t, filepath.Join(dir, "program-{arch}")+"=/program", "-arch", "amd64,arm64"))
	var top, idx index
	decode(t, archive["index.json"], &top)
	if d := top.Manifests[0]; len(top.Manifests) != 1 || d.MediaType != typeIndex || d.Annotations["io.containerd.image.name"] != "localhost/test:one" {
		t.Fatalf("index.json: %+v", top)
	}
	decode(t, blob(t, archive, top.Manifests[0]), &idx)
	var archs []string
	for _, d := range idx.Manifests {
		var man manifest
		var config imageConfig
		decode(t, blob(t, archive, d), &man)
		decode(t, blob(t, archive, man.Config), &config)
		layer := blob(t, archive, man.Layers[0])
		if config.Architecture != d.Platform.Architecture || config.RootFS.DiffIDs[0] != digestOf(layer) {
			t.Errorf("%+v leads to %+v", d.Platform, config)
		}
		if got := string(fileOf(t, layer, "program")); got != "of "+config.Architecture {
			t.Errorf("the program for %s is %q", config.Architecture, got)
		}
		archs = append(archs, config.Architecture)
	}
	if !slices.Equal(archs, []string{"amd64", "arm64"}) {
		t.Errorf("architectures %v", archs)
	}
}

func fileOf(t *testing.T, layer []byte, name string) []byte {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Name == name {
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return content
		}
	}
}

// TestSBOM: the bill of materials names the modules of a program with their versions, Go among them,
// and is the same each time. This test is the program.
func TestSBOM(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := buildLayer("amd64", []string{self + "=/program"}, self+"=/usr/share/sbom/program.cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	text := fileOf(t, layer, "usr/share/sbom/program.cdx.json")
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	met := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		met[c.Name] = c
	}
	if c := met["github.com/CycloneDX/cyclonedx-go"]; c.PackageURL != "pkg:golang/github.com/CycloneDX/cyclonedx-go@"+c.Version || c.Version == "" || c.Properties == nil {
		t.Errorf("a module: %+v", c)
	}
	if c := met["std"]; !strings.HasPrefix(c.Version, "1.") {
		t.Errorf("Go itself: %+v", c)
	}
	if bom.SerialNumber != "" || bom.Metadata.Timestamp != "" {
		t.Error("it differs each time")
	}
	if again, err := sbomOf(fileOf(t, layer, "program"), filepath.Base(self)); err != nil || !bytes.Equal(again, text) {
		t.Errorf("it differs: %v", err)
	}
}
