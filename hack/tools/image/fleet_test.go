//go:build e2e

package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	repository = "../../.."
	// built is the image that `make image` has built.
	built = repository + "/bin/image"
)

// TestImageOfTheFleet checks the image that `make image` has built, and runs its binary.
func TestImageOfTheFleet(t *testing.T) {
	r := builtRelease(t)
	checkImage(t, built, []string{"linux/amd64", "linux/arm64"}, r)
	printed := execute(t, built, "version")
	if want := "version: " + r.version + "\n"; r.version == "" || !strings.Contains(printed, want) {
		t.Errorf("expected a version, and the binary to print %q, got:\n%s", want, printed)
	}
	modules, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		list := readSBOM(t, built, v1.Platform{OS: "linux", Architecture: architecture})
		for _, name := range []string{"k8s.io/client-go", "k8s.io/apimachinery", "go.opentelemetry.io/otel"} {
			want := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(name) + ` (\S+)`).FindSubmatch(modules)
			if want == nil || version(list, name) != string(want[1]) {
				t.Errorf("%s: expected version %s of %s as in go.mod, got %s", architecture, want, name, version(list, name))
			}
		}
	}
}

// TestImageOfTheFleetBuiltElsewhereHasTheSameDigest builds it again, from what .dockerignore lets
// through, in another folder.
func TestImageOfTheFleetBuiltElsewhereHasTheSameDigest(t *testing.T) {
	copied := t.TempDir()
	allowed, err := os.Open(filepath.Join(repository, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	defer allowed.Close()
	for lines := bufio.NewScanner(allowed); lines.Scan(); {
		name, isAllowed := strings.CutPrefix(lines.Text(), "!")
		if !isAllowed {
			continue
		}
		from, to := filepath.Join(repository, name), filepath.Join(copied, name)
		info, err := os.Stat(from)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			err = os.CopyFS(to, os.DirFS(from))
		} else {
			var text []byte
			text, err = os.ReadFile(from)
			err = errors.Join(err, os.WriteFile(to, text, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// One platform is enough: linking takes most of the time.
	want := variantDigests(t, built)["linux/amd64"]
	got := variantDigests(t, buildFrom(t, copied, builtRelease(t), "-platforms", "linux/amd64"))["linux/amd64"]
	if want == "" || got != want {
		t.Errorf("expected %s from another folder, got %s", want, got)
	}
}

// variantDigests returns the digest of the image for each platform.
func variantDigests(t *testing.T, dir string) map[string]string {
	t.Helper()
	digests := map[string]string{}
	for _, m := range indexOf(t, dir).Manifests {
		digests[m.Platform.String()] = m.Digest.String()
	}
	return digests
}

// builtRelease returns what the image's labels say about its sources.
func builtRelease(t *testing.T) release {
	t.Helper()
	labels := indexOf(t, built).Annotations
	const label = "org.opencontainers.image."
	return release{version: labels[label+"version"], commit: labels[label+"revision"], date: labels[label+"created"]}
}

func indexOf(t *testing.T, dir string) *v1.IndexManifest {
	t.Helper()
	index, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return manifest
}
