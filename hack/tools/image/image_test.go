package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
)

// sources are a small program in place of the fleet, which takes minutes to compile.
var sources = map[string]string{
	"go.mod":  "module " + module + "\n\ngo 1.26.0\n",
	"LICENSE": "a license\n",
	"internal/buildinfo/buildinfo.go": "package buildinfo\n\nvar version, commit, date string\n\n" +
		"func Text() string { return version + \" \" + commit + \" \" + date }\n",
	"driver/x/go.mod":               "module example.org/x\n\ngo 1.26.0\n",
	"driver/x/cmd/x-driver/main.go": "package main\n\nfunc main() { println(\"x\") }\n",
	"cmd/" + fleet + "/main.go": "package main\n\nimport \"" + module +
		"/internal/buildinfo\"\n\nfunc main() { println(buildinfo.Text()) }\n",
}

const (
	testName = "registry.example.org/fleet:1.2.3"
	testDate = "2026-01-02T03:04:05Z"
)

var testRelease = release{version: "v1.2.3", commit: "0123abc", date: testDate}

// source builds the small program in a separate folder.
func source(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range sources {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// command runs the program, and fails the test when it fails.
func command(t *testing.T, args ...string) (printed string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// buildFrom builds an image from a folder, and returns that of the image.
func buildFrom(t *testing.T, source string, r release, more ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	command(t, append([]string{
		"build", "-source", source, "-dir", dir, "-name", testName, "-version", r.version, "-commit", r.commit, "-date", r.date,
	}, more...)...)
	return dir
}

// digestOf returns the digest in the folder of an image.
func digestOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, digestFile))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestLayoutOfTwoPlatformsIsComplete(t *testing.T) {
	dir := buildFrom(t, source(t), testRelease)
	checkImage(t, dir, []string{"linux/amd64", "linux/arm64"}, testRelease)

	all, err := layout.ImageIndexFromPath(filepath.Join(dir, layoutFolder))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"io.containerd.image.name": testName, "org.opencontainers.image.ref.name": "1.2.3"}
	if diff := cmp.Diff(want, manifest.Manifests[0].Annotations); diff != "" {
		t.Errorf("annotations of the name (-want +got):\n%s", diff)
	}
	if printed := execute(t, dir); printed != "v1.2.3 0123abc "+testDate+"\n" {
		t.Errorf("expected the binary to print its build, got %q", printed)
	}
}

// TestBuildOtherProgram: an image of a driver, which has its own module.
func TestBuildOtherProgram(t *testing.T) {
	dir := buildFrom(t, source(t), testRelease, "-program", "driver/x/cmd/x-driver")
	index, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if title := manifest.Annotations["org.opencontainers.image.title"]; title != "x-driver" {
		t.Errorf("expected the title x-driver, got %q", title)
	}
	if description, ok := manifest.Annotations["org.opencontainers.image.description"]; ok {
		t.Errorf("expected no description, got %q", description)
	}
	if printed := execute(t, dir); printed != "x\n" {
		t.Errorf("expected the driver to print x, got %q", printed)
	}
}

func TestSameInputResultsInTheSameDigest(t *testing.T) {
	first := buildFrom(t, source(t), testRelease)
	// What a user of Go may have set does not change the binary.
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("TZ", "Asia/Tokyo")
	if got, want := digestOf(t, buildFrom(t, source(t), testRelease)), digestOf(t, first); got != want {
		t.Errorf("expected %s from another folder, got %s", want, got)
	}
	other := testRelease
	other.version = "v1.2.4"
	if got := digestOf(t, buildFrom(t, source(t), other)); got == digestOf(t, first) {
		t.Errorf("expected another digest for another version, got %s twice", got)
	}
}

func TestUnknownReleaseHasNoLabels(t *testing.T) {
	dir := buildFrom(t, source(t), release{}, "-platforms", "linux/arm64")
	checkImage(t, dir, []string{"linux/arm64"}, release{})
}

// TestBuildAgainReplacesTheImage: only what an earlier build has written is removed.
func TestBuildAgainReplacesTheImage(t *testing.T) {
	from, dir := source(t), t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "build", "-source", from, "-dir", dir, "-platforms", "linux/amd64")
	command(t, "build", "-source", from, "-dir", dir, "-platforms", "linux/arm64")
	checkImage(t, dir, []string{"linux/arm64"}, release{})
	if _, err := os.Stat(other); err != nil {
		t.Errorf("expected the other file to stay: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "linux-amd64.spdx.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("expected the earlier list to be removed, got %v", err)
	}
}

func TestRunWrongArgumentsRefused(t *testing.T) {
	dir := t.TempDir()
	for message, args := range map[string][]string{
		"got no command":                             {},
		"expected build or push":                     {"load"},
		"expected 0 arguments":                       {"build", "fleet:1"},
		"expected a name and a tag":                  {"build", "-name", "No Name"},
		"date: expected a time":                      {"build", "-date", "yesterday"},
		"platforms: expected a list":                 {"build", "-platforms", "windows/amd64"},
		"platforms: expected each once":              {"build", "-platforms", "linux/amd64,linux/amd64"},
		"go build":                                   {"build", "-source", source(t), "-dir", dir, "-program", "internal"},
		"program: expected the folder":               {"build", "-source", dir, "-dir", dir},
		`got "../main"`:                              {"build", "-source", dir, "-dir", dir, "-program", "../main"},
		"expected 1 arguments":                       {"push"},
		"expected a registry, a name and a tag":      {"push", "fleet"},
		"which `make image` builds":                  {"push", "-dir", dir, "registry.example.org/fleet:1"},
		`got "linux/arm/v7"`:                         {"build", "-platforms", "linux/arm/v7"},
		`got "linux"`:                                {"build", "-platforms", "linux"},
		"expected a name and a tag such as registry": {"build", "-name", "a@sha256:00"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%q: expected an error with %q, got %v", args, message, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, digestFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("expected nothing to be written, got %v", err)
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	dir := buildFrom(t, source(t), testRelease)
	reference := strings.TrimPrefix(server.URL, "http://") + "/fleet:1.2.3"
	printed := command(t, "push", "-dir", dir, reference)
	if want := strings.TrimSuffix(reference, ":1.2.3") + "@" + digestOf(t, dir) + "\n"; printed != want {
		t.Errorf("expected %q, got %q", want, printed)
	}
	tag, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if digest, err := index.Digest(); err != nil || digest.String() != digestOf(t, dir) {
		t.Errorf("expected %s in the registry, got %s, %v", digestOf(t, dir), digest, err)
	}
}

// checkImage checks everything that is guaranteed of the image in a folder, except what its binary
// does.
func checkImage(t *testing.T, dir string, platforms []string, r release) {
	t.Helper()
	index, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("expected an index whose digests and sizes are right: %v", err)
	}
	if digest, err := index.Digest(); err != nil || digest.String() != digestOf(t, dir) {
		t.Errorf("expected digest %s, got %s, %v", digestOf(t, dir), digest, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{
		"org.opencontainers.image.title": "machine-controller-fleet",
		"org.opencontainers.image.description": "Keeps virtual machines running as Kubernetes Nodes, " +
			"as a fleet of equal replicas that share the work.",
		"org.opencontainers.image.source":   "https://github.com/machine-controller-fleet/machine-controller-fleet",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	for name, value := range map[string]string{"version": r.version, "revision": r.commit, "created": r.date} {
		if value != "" {
			labels["org.opencontainers.image."+name] = value
		}
	}
	if diff := cmp.Diff(labels, manifest.Annotations); diff != "" || manifest.MediaType != types.OCIImageIndex {
		t.Errorf("annotations of the index, a %s (-want +got):\n%s", manifest.MediaType, diff)
	}
	var got []string
	for _, m := range manifest.Manifests {
		got = append(got, m.Platform.String())
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkPlatform(t, image, *m.Platform, labels, r)
		checkSBOM(t, dir, m, r)
	}
	if diff := cmp.Diff(platforms, got); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
}

// checkPlatform checks the configuration and the files of the image for a platform.
func checkPlatform(t *testing.T, image v1.Image, platform v1.Platform, labels map[string]string, r release) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{User: "65532:65532", Entrypoint: []string{"/machine-controller-fleet"}, WorkingDir: "/", Labels: labels}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration of %s (-want +got):\n%s", platform, diff)
	}
	created, err := r.created()
	if err != nil {
		t.Fatal(err)
	}
	if !config.Created.Equal(created) || config.OS != platform.OS || config.Architecture != platform.Architecture {
		t.Errorf("expected %s of %s, got %s/%s of %s", platform, created, config.OS, config.Architecture, config.Created)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for i, layer := range layers {
		if kind, err := layer.MediaType(); err != nil || kind != types.OCILayer {
			t.Errorf("layer %d of %s: expected %s, got %s, %v", i, platform, types.OCILayer, kind, err)
		}
	}
	var names []string
	for header, content := range files(t, image) {
		names = append(names, header.FileInfo().Mode().String()+" "+header.Name)
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: expected root's and the epoch, got %+v", header.Name, header)
		}
		if header.Typeflag == tar.TypeReg && len(content) == 0 {
			t.Errorf("%s is empty", header.Name)
		}
	}
	slices.Sort(names)
	wantNames := []string{
		"-rw-r--r-- etc/ssl/certs/ca-certificates.crt",
		"-rw-r--r-- licenses/LICENSE",
		"-rwxr-xr-x machine-controller-fleet",
		"drwxr-xr-x etc/",
		"drwxr-xr-x etc/ssl/",
		"drwxr-xr-x etc/ssl/certs/",
		"drwxr-xr-x licenses/",
	}
	if diff := cmp.Diff(wantNames, names); diff != "" {
		t.Errorf("files of %s (-want +got):\n%s", platform, diff)
	}
}

// files returns the files of an image with their content.
func files(t *testing.T, image v1.Image) map[*tar.Header][]byte {
	t.Helper()
	all := map[*tar.Header][]byte{}
	packed := mutate.Extract(image)
	defer packed.Close()
	for reader := tar.NewReader(packed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeDir && !strings.HasSuffix(header.Name, "/") { // as Extract returns them
			header.Name += "/"
		}
		all[header] = content
	}
}

// checkSBOM checks the list of what is in the image of a platform.
func checkSBOM(t *testing.T, dir string, m v1.Descriptor, r release) {
	t.Helper()
	d := readSBOM(t, dir, *m.Platform)
	ids := map[string]bool{"DOCUMENT": true}
	for _, p := range d.Packages {
		if id := string(p.PackageSPDXIdentifier); ids[id] {
			t.Errorf("two packages have the identifier %s", id)
		} else {
			ids[id] = true
		}
		if p.PackageName == bundleModule && p.PackageVersion == "" {
			t.Errorf("expected a version of %s", bundleModule)
		}
	}
	for _, relationship := range d.Relationships {
		if from, to := string(relationship.RefA.ElementRefID), string(relationship.RefB.ElementRefID); !ids[from] || !ids[to] {
			t.Errorf("%s %s %s: one of them is not in the list", from, relationship.Relationship, to)
		}
	}
	// A document describes one image, and a changed image is another.
	if !strings.HasSuffix(d.DocumentNamespace, m.Digest.String()) {
		t.Errorf("expected the digest %s in the namespace, got %s", m.Digest, d.DocumentNamespace)
	}
	if got := version(d, "stdlib"); got != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("expected the standard library of %s, got %q", runtime.Version(), got)
	}
	if got := version(d, module); got != r.version {
		t.Errorf("expected version %q of the main module, got %q", r.version, got)
	}
}

func readSBOM(t *testing.T, dir string, platform v1.Platform) *spdx.Document {
	t.Helper()
	text, err := os.Open(filepath.Join(dir, sbomFile(platform)))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	d, err := spdxjson.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// version returns that of a package, or "none" when the document does not have it.
func version(d *spdx.Document, name string) string {
	for _, p := range d.Packages {
		if p.PackageName == name {
			return p.PackageVersion
		}
	}
	return "none"
}

// execute runs the binary of the image for this computer as a container runtime does, and returns
// what it prints: as the image's user, and with nothing but the image's files where the test may
// change its root folder.
func execute(t *testing.T, dir string, args ...string) string {
	t.Helper()
	index, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(manifest.Manifests, func(m v1.Descriptor) bool { return m.Platform.Architecture == runtime.GOARCH })
	if at < 0 {
		t.Skipf("there is no image for %s", runtime.GOARCH)
	}
	image, err := index.Image(manifest.Manifests[at].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root, entry := t.TempDir(), config.Config.Entrypoint[0]
	for header, content := range files(t, image) {
		file := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, header.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(root, entry), args...)
	if os.Geteuid() == 0 {
		cmd = exec.CommandContext(ctx, entry, args...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	cmd.Env = []string{}
	printed, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	return string(printed)
}
