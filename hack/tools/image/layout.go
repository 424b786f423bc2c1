package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Files in the folder of the image.
const (
	layoutFolder = "oci"
	digestFile   = "digest"
	sbomSuffix   = ".spdx.json"
)

// sbomFile returns the name of the list of what is in the image of a platform.
func sbomFile(platform v1.Platform) string {
	return platform.OS + "-" + platform.Architecture + sbomSuffix
}

// write replaces the image in the folder, and reports digest and sizes.
func write(dir, imageName string, labels map[string]string, variants []variant, out io.Writer) error {
	index := v1.ImageIndex(empty.Index)
	for _, v := range variants {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: v.image, Descriptor: v1.Descriptor{Platform: &v.platform}})
	}
	// Registries show what the index has.
	index, ok := mutate.Annotations(index, labels).(v1.ImageIndex)
	if !ok {
		return errors.New("annotate the index: expected an index, got another type")
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if err := removeEarlier(dir); err != nil {
		return err
	}
	written, err := layout.Write(filepath.Join(dir, layoutFolder), empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	// With the name containerd imports it, and with the tag others do.
	tag, err := name.NewTag(imageName)
	if err != nil {
		return err
	}
	annotations := map[string]string{"io.containerd.image.name": tag.Name(), "org.opencontainers.image.ref.name": tag.TagStr()}
	if err := written.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	for _, v := range variants {
		if err := os.WriteFile(filepath.Join(dir, sbomFile(v.platform)), v.sbom, 0o600); err != nil {
			return err
		}
		if err := describe(v, out); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%s@%s is in %s\n", imageName, digest, dir)
	return os.WriteFile(filepath.Join(dir, digestFile), []byte(digest.String()+"\n"), 0o600)
}

// removeEarlier removes an earlier image from the folder, and nothing else.
func removeEarlier(dir string) error {
	lists, err := filepath.Glob(filepath.Join(dir, "*"+sbomSuffix))
	if err != nil {
		return err
	}
	for _, list := range lists {
		if err := os.Remove(list); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(dir, layoutFolder))
}

// describe reports the sizes of an image's layers, as they are transferred.
func describe(v variant, out io.Writer) error {
	manifest, err := v.image.Manifest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s:", v.platform)
	for _, layer := range manifest.Layers {
		fmt.Fprintf(out, " %.1f MB", float64(layer.Size)/1e6)
	}
	fmt.Fprintln(out)
	return nil
}

// push sends the image in a folder to a registry, and reports its digest there. Credentials are
// those of Docker's configuration.
func push(ctx context.Context, dir, reference string, out io.Writer) error {
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("expected a registry, a name and a tag such as registry.example.org/fleet:0.1.0, got %q: %w", reference, err)
	}
	index, err := open(dir)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push to %s: %w", tag, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s@%s\n", tag.Context(), digest)
	return nil
}

// open returns the image in a folder.
func open(dir string) (v1.ImageIndex, error) {
	all, err := layout.ImageIndexFromPath(filepath.Join(dir, layoutFolder))
	if err != nil {
		return nil, fmt.Errorf("open the image in %s, which `make image` builds: %w", dir, err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("open the image in %s: expected one, got %d; build it anew with `make image`", dir, len(manifest.Manifests))
	}
	return all.ImageIndex(manifest.Manifests[0].Digest)
}
