package main

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	module = "github.com/machine-controller-fleet/machine-controller-fleet"
	// fleet is the program that an image is built of by default.
	fleet = "machine-controller-fleet"
)

// build is the command that builds the image.
type build struct {
	// source is the folder of the repository, program that of the program below it, and dir that of
	// the result.
	source, program string
	dir             *string
	// name and tag of the image, for those who load the layout.
	name      string
	platforms string
	release   release
}

// release contains what is known about the sources. Each may be empty.
type release struct{ version, commit, date string }

// created returns the time of the image: that of the commit, so that the same sources result in the
// same image.
func (r release) created() (time.Time, error) {
	if r.date == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	date, err := time.Parse(time.RFC3339, r.date)
	if err != nil {
		return time.Time{}, fmt.Errorf("date: expected a time such as 2026-01-02T03:04:05Z, got %q: %w", r.date, err)
	}
	return date.UTC(), nil
}

// ldflags are the arguments of the linker: nothing for debuggers, and what internal/buildinfo
// reports.
func (r release) ldflags() string {
	flags := []string{"-s", "-w"}
	for _, field := range []struct{ name, value string }{{"version", r.version}, {"commit", r.commit}, {"date", r.date}} {
		if field.value != "" {
			flags = append(flags, fmt.Sprintf("-X %s/internal/buildinfo.%s=%s", module, field.name, field.value))
		}
	}
	return strings.Join(flags, " ")
}

// variant is the image for one platform, and the list of what is in it.
type variant struct {
	platform v1.Platform
	image    v1.Image
	sbom     []byte
}

// run builds the image of each platform, and writes all of them, the lists and the digest. Nothing
// is replaced before all are built.
func (b build) run(ctx context.Context, out io.Writer) error {
	if _, err := name.NewTag(b.name); err != nil {
		return fmt.Errorf("name: expected a name and a tag such as registry.example.org/fleet:0.1.0, got %q: %w", b.name, err)
	}
	created, err := b.release.created()
	if err != nil {
		return err
	}
	platforms, err := parsePlatforms(b.platforms)
	if err != nil {
		return err
	}
	found, err := findProgram(b.source, b.program)
	if err != nil {
		return err
	}
	var variants []variant
	for _, platform := range platforms {
		fmt.Fprintf(out, "building %s\n", platform)
		v, err := b.variant(ctx, found, platform, created)
		if err != nil {
			return fmt.Errorf("build %s: %w", platform, err)
		}
		variants = append(variants, v)
	}
	return write(*b.dir, b.name, labels(found.name, b.release), variants, out)
}

// variant builds the image for one platform.
func (b build) variant(ctx context.Context, p program, platform v1.Platform, created time.Time) (v variant, err error) {
	work, err := os.MkdirTemp("", "image-")
	if err != nil {
		return variant{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	file := filepath.Join(work, p.name)
	if err := b.compile(ctx, p, platform, file); err != nil {
		return variant{}, err
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		return variant{}, err
	}
	license, err := os.ReadFile(filepath.Join(b.source, "LICENSE"))
	if err != nil {
		return variant{}, err
	}
	modules, err := buildinfo.ReadFile(file)
	if err != nil {
		return variant{}, fmt.Errorf("read which modules are in the binary: %w", err)
	}
	image, err := assemble(content{program: p, binary: binary, license: license, certificates: certificates()}, platform, b.release, created)
	if err != nil {
		return variant{}, err
	}
	list, err := sbom(p.name, image, platform, modules, b.release, created)
	return variant{platform: platform, image: image, sbom: list}, err
}

// compile builds the binary. What the environment and `go env -w` may set otherwise, and changes
// the binary, is set here.
func (b build) compile(ctx context.Context, p program, platform v1.Platform, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", b.release.ldflags(),
		"-o", file, p.folder)
	cmd.Dir = p.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, printed)
	}
	return nil
}

// program is the program that an image is built of.
type program struct {
	// name is that of its binary. module is the folder of its Go module, and folder its own, as seen
	// from there.
	name, module, folder string
}

// findProgram returns the program in a folder below the repository. Errors: there is no folder, or
// it is outside.
func findProgram(source, folder string) (program, error) {
	if info, err := os.Stat(filepath.Join(source, folder)); err != nil || !info.IsDir() || !filepath.IsLocal(folder) {
		return program{}, fmt.Errorf("program: expected the folder of a program such as cmd/%s, got %q", fleet, folder)
	}
	for module := filepath.Clean(folder); ; module = filepath.Dir(module) {
		if _, err := os.Stat(filepath.Join(source, module, "go.mod")); err != nil && module != "." {
			continue
		}
		inside, err := filepath.Rel(module, folder)
		if err != nil {
			return program{}, fmt.Errorf("program %s: %w", folder, err)
		}
		return program{name: filepath.Base(folder), module: filepath.Join(source, module), folder: "./" + filepath.ToSlash(inside)}, nil
	}
}

// parsePlatforms returns the platforms of a list that is split at commas.
func parsePlatforms(list string) ([]v1.Platform, error) {
	var platforms []v1.Platform
	seen := map[string]bool{}
	for text := range strings.SplitSeq(list, ",") {
		platform, err := v1.ParsePlatform(text)
		if err != nil || platform.OS != "linux" || platform.Architecture == "" || platform.Variant != "" || platform.OSVersion != "" {
			return nil, fmt.Errorf("platforms: expected a list such as linux/amd64,linux/arm64, got %q", list)
		}
		if seen[text] {
			return nil, fmt.Errorf("platforms: expected each once, got %q", list)
		}
		seen[text] = true
		platforms = append(platforms, *platform)
	}
	return platforms, nil
}
