package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is a number, because a kubelet that is asked for a user other than root cannot look up names
// in the image. It is the chart's, and that of distroless images.
const user = "65532:65532"

// content contains what the image consists of.
type content struct {
	program program

	binary, license, certificates []byte
}

// file is a file of the image. Folders above it are created.
type file struct {
	name string
	mode int64
	data []byte
}

// assemble returns the image for a platform.
func assemble(c content, platform v1.Platform, r release, created time.Time) (v1.Image, error) {
	// What changes rarely is first, in a separate layer: nodes that have it do not fetch it again.
	certificates, err := layer(
		file{"etc/ssl/certs/ca-certificates.crt", 0o644, c.certificates},
		file{"licenses/LICENSE", 0o644, c.license},
	)
	if err != nil {
		return nil, err
	}
	binary, err := layer(file{c.program.name, 0o755, c.binary})
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base,
		mutate.Addendum{Layer: certificates, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "certificates and license"}},
		mutate.Addendum{Layer: binary, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "go build " + c.program.folder}},
	)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, v1.Time{Time: created}
	config.Config = v1.Config{User: user, Entrypoint: []string{"/" + c.program.name}, WorkingDir: "/", Labels: labels(c.program.name, r)}
	return mutate.ConfigFile(image, config)
}

// descriptions are those of programs by name.
var descriptions = map[string]string{
	fleet: "Keeps virtual machines running as Kubernetes Nodes, as a fleet of equal replicas that share the work.",
}

// labels describe the image of a program. What is not known has none.
func labels(program string, r release) map[string]string {
	const name = "org.opencontainers.image."
	all := map[string]string{
		name + "title":       program,
		name + "description": descriptions[program],
		name + "source":      "https://" + module,
		name + "licenses":    "Apache-2.0",
		name + "version":     r.version,
		name + "revision":    r.commit,
		name + "created":     r.date,
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// layer packs files and the folders above them, in the order of their names, as root's and with one
// time.
func layer(files ...file) (v1.Layer, error) {
	entries := map[string]file{}
	for _, f := range files {
		entries[f.name] = f
		for i, c := range f.name {
			if c == '/' {
				entries[f.name[:i+1]] = file{name: f.name[:i+1], mode: 0o755}
			}
		}
	}
	var packed bytes.Buffer
	writer := tar.NewWriter(&packed)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		f := entries[name]
		header := &tar.Header{
			Name: name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
		}
		if strings.HasSuffix(name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
		if _, err := writer.Write(f.data); err != nil {
			return nil, fmt.Errorf("pack %s: %w", name, err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching,
		tarball.WithCompressionLevel(gzip.BestCompression))
}
