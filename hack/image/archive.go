package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// The few parts of the OCI image specification that one image with one layer needs.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// epoch is when every image was made: a real date would change the digest.
const epoch = "1970-01-01T00:00:00Z"

type imageConfig struct {
	Created      string    `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type runConfig struct {
	User       string            `json:"User,omitempty"`
	Env        []string          `json:"Env,omitempty"`
	Entrypoint []string          `json:"Entrypoint,omitempty"`
	WorkingDir string            `json:"WorkingDir,omitempty"`
	Labels     map[string]string `json:"Labels,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

func digestOf(blob []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(blob)) }

func describe(mediaType string, blob []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: digestOf(blob), Size: len(blob)}
}

// part is the image for one architecture.
type part struct {
	config imageConfig
	layer  []byte
}

// writeArchive writes the archive to a file beside it first, so that a reader never meets half an
// image.
func writeArchive(file, name, tag string, parts []part) error {
	archive, err := archiveOf(name, tag, parts)
	if err != nil {
		return fmt.Errorf("write image %s: %w", name, err)
	}
	if err := os.WriteFile(file+".new", archive, 0o644); err != nil {
		return fmt.Errorf("write image %s: %w", name, err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("write image %s: %w", name, err)
	}
	return nil
}

// archiveOf returns an OCI image layout as a tar:
//
//	oci-layout             which version of the layout this is
//	index.json          -> the manifest, with the image's name; or, of several architectures,
//	                       an index, which leads to the manifest of each
//	blobs/sha256/...       manifest -> config and layer
func archiveOf(name, tag string, parts []part) ([]byte, error) {
	var blobs [][]byte
	var manifests []descriptor
	for _, p := range parts {
		configBlob, err := json.Marshal(p.config)
		if err != nil {
			return nil, err
		}
		manifestBlob, err := json.Marshal(manifest{
			SchemaVersion: 2,
			MediaType:     typeManifest,
			Config:        describe(typeConfig, configBlob),
			Layers:        []descriptor{describe(typeLayer, p.layer)},
		})
		if err != nil {
			return nil, err
		}
		entry := describe(typeManifest, manifestBlob)
		entry.Platform = &platform{Architecture: p.config.Architecture, OS: p.config.OS}
		manifests = append(manifests, entry)
		blobs = append(blobs, manifestBlob, configBlob, p.layer)
	}
	entry := manifests[0]
	if len(manifests) > 1 {
		indexBlob, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: manifests})
		if err != nil {
			return nil, err
		}
		entry = describe(typeIndex, indexBlob)
		blobs = append([][]byte{indexBlob}, blobs...)
	}
	entry.Annotations = map[string]string{
		"io.containerd.image.name":          name, // containerd takes the name from here,
		"org.opencontainers.image.ref.name": tag,  // everybody else the tag from here
	}
	indexBlob, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{entry}})
	if err != nil {
		return nil, err
	}

	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(path string, content []byte) {
		if err != nil {
			return
		}
		header := &tar.Header{Name: path, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if err = w.WriteHeader(header); err == nil {
			_, err = w.Write(content)
		}
	}
	add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	add("index.json", indexBlob)
	added := map[string]bool{} // two architectures may share a blob
	for _, blob := range blobs {
		if added[digestOf(blob)] {
			continue
		}
		added[digestOf(blob)] = true
		add("blobs/sha256/"+strings.TrimPrefix(digestOf(blob), "sha256:"), blob)
	}
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
