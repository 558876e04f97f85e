// image writes a container image without a container engine: static programs in, an OCI archive
// out.
//
//	go run . -o out.tar -name localhost/dmindex:dev -entrypoint /dmindex bin/dmindex=/dmindex
//
// `ctr images import`, `podman load`, `kind load image-archive` and `skopeo copy oci-archive:` take
// the archive. The same input gives the same bytes, hence the same digest: no clock, no user of the
// host and no compression (whose output differs between Go versions) goes into it.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

const usage = `usage: image -o FILE -name NAME:TAG -entrypoint PROGRAM[,ARG...] [flags] SOURCE=/PATH...

SOURCE is a file of the host, or link:TARGET for a symbolic link. A file keeps whether it may be executed. {arch} in SOURCE stands for
the architecture, of which -arch may name several: the image then has one part for each.

`

// run is main with its arguments given and its failure returned, for the tests.
func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	out := flags.String("o", "", "archive to write")
	name := flags.String("name", "", "full image name with tag, such as localhost/dmindex:dev")
	entrypoint := flags.String("entrypoint", "", "program to run, and its first arguments, separated by commas")
	user := flags.String("user", "65532:65532", "user and group to run as, by number so that runAsNonRoot can be checked")
	arch := flags.String("arch", runtime.GOARCH, "architectures that the programs were built for, separated by commas")
	sbom := flags.String("sbom", "", "SOURCE=/PATH: add the bill of materials (CycloneDX) of the Go program SOURCE")
	labels := pairs{}
	flags.Var(labels, "label", "KEY=VALUE of a label; may be repeated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case *out == "":
		return fmt.Errorf("no -o: say which archive to write")
	case *entrypoint == "":
		return fmt.Errorf("no -entrypoint: say which program of the image to run")
	case flags.NArg() == 0:
		return fmt.Errorf("no files: give at least one SOURCE=/PATH")
	}
	tag, err := tagOf(*name)
	if err != nil {
		return err
	}
	var parts []part
	for _, arch := range strings.Split(*arch, ",") {
		if slices.ContainsFunc(parts, func(p part) bool { return p.config.Architecture == arch }) || arch == "" {
			return fmt.Errorf("-arch %q: name each architecture once", arch)
		}
		layer, err := buildLayer(arch, flags.Args(), *sbom)
		if err != nil {
			return err
		}
		parts = append(parts, part{layer: layer, config: imageConfig{
			Created:      epoch,
			Architecture: arch,
			OS:           "linux",
			Config: runConfig{
				User:       *user,
				Env:        []string{"PATH=/:/bin:/usr/bin"},
				Entrypoint: strings.Split(*entrypoint, ","),
				WorkingDir: "/",
				Labels:     labels,
			},
			RootFS: rootFS{Type: "layers", DiffIDs: []string{digestOf(layer)}},
		}})
	}
	return writeArchive(*out, *name, tag, parts)
}

// tagOf returns what follows the last colon of an image name; a port's colon is followed by a
// slash.
func tagOf(name string) (string, error) {
	colon := strings.LastIndexByte(name, ':')
	if colon <= 0 || colon == len(name)-1 || strings.Contains(name[colon:], "/") {
		return "", fmt.Errorf("-name %q has no tag: write it in full, such as localhost/dmindex:dev", name)
	}
	return name[colon+1:], nil
}

// pairs is a flag.Value of KEY=VALUE flags.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(s string) error {
	key, value, found := strings.Cut(s, "=")
	if !found || key == "" {
		return fmt.Errorf("%q is not KEY=VALUE", s)
	}
	p[key] = value
	return nil
}
