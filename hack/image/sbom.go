package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbomOf is the bill of materials of a Go program, in CycloneDX as JSON: the modules that its build
// information names, with their hashes as in go.sum, and Go itself. The same program gives the same
// bytes: it has no serial number and no time.
func sbomOf(program []byte, name string) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("read what %s was built of: %w", name, err)
	}
	main := component(&info.Main)
	main.Type, main.Name = cdx.ComponentTypeApplication, name
	main.BOMRef = "main"
	var settings []cdx.Property
	for _, s := range info.Settings {
		// what changes the program's code; not the machine that built it
		if strings.HasPrefix(s.Key, "GO") || s.Key == "CGO_ENABLED" || s.Key == "-tags" {
			settings = append(settings, cdx.Property{Name: "go:" + s.Key, Value: s.Value})
		}
	}
	main.Properties = &settings
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	components := []cdx.Component{{
		BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: goVersion, PackageURL: "pkg:golang/std@" + goVersion,
	}}
	uses := []string{"std"}
	for _, m := range info.Deps {
		for m.Replace != nil {
			m = m.Replace
		}
		c := component(m)
		components = append(components, c)
		uses = append(uses, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &uses}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, fmt.Errorf("write what %s was built of: %w", name, err)
	}
	return out.Bytes(), nil
}

func component(m *debug.Module) cdx.Component {
	url := "pkg:golang/" + m.Path
	if m.Version != "" {
		url += "@" + m.Version
	}
	c := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url}
	if m.Sum != "" { // a hash of hashes, which no algorithm of CycloneDX is
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}
