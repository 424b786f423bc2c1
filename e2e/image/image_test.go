//go:build e2e

package image

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

const (
	fleetBinary  = "machine-controller-fleet"
	versionLabel = "org.opencontainers.image.version"
)

// descriptor and document are the parts of an OCI image layout that lead to a file in it.
type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

type document struct {
	Manifests   []descriptor
	Layers      []descriptor
	Annotations map[string]string
}

// TestFleetOfTheImage: replicas that run the image's binary create and delete machines, and report
// the image's version.
func TestFleetOfTheImage(t *testing.T) {
	bin, err := harness.Bin()
	if err != nil {
		t.Fatal(err)
	}
	layout := filepath.Join(bin, "image", "oci")
	own := t.TempDir()
	version := extract(t, layout, filepath.Join(own, fleetBinary))
	// The lab takes all binaries from the folder of its own program, so that has to be a copy.
	copyFile(t, filepath.Join(bin, "lab"), filepath.Join(own, "lab"))
	for _, name := range []string{"cloudsim", "hyperkube", "simulated-driver"} {
		if err := os.Symlink(filepath.Join(bin, name), filepath.Join(own, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("BIN", own)

	const namespace, machines = "image", 2
	ctx, lab := harness.Begin(t, harness.Options{Replicas: 2}, nil)
	pids, err := lab.Pids()
	if err != nil {
		t.Fatal(err)
	}
	for _, replica := range []string{"fleet-0", "fleet-1"} {
		program, err := os.Readlink("/proc/" + strconv.Itoa(pids[replica]) + "/exe")
		if err != nil || program != filepath.Join(own, fleetBinary) {
			t.Errorf("%s: expected the program %s, got %q, %v", replica, filepath.Join(own, fleetBinary), program, err)
		}
		build, err := lab.Metrics(ctx, replica, "mcf_build_info")
		if err != nil || !strings.Contains(fmt.Sprint(build), `version="`+version+`"`) {
			t.Errorf("%s: expected version %q in mcf_build_info, got %v, %v", replica, version, build, err)
		}
	}
	if err := lab.Prepare(ctx, namespace, ""); err != nil {
		t.Fatal(err)
	}
	deployments := lab.Machines.MachineV1alpha1().MachineDeployments(namespace)
	if _, err := deployments.Create(ctx, harness.Deployment(namespace, "pool", machines), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := lab.Running(ctx, namespace, machines); err != nil {
		t.Fatal(err)
	}
	if err := lab.ScaleDeployment(ctx, namespace, "pool", 0); err != nil {
		t.Fatal(err)
	}
	if err := lab.Running(ctx, namespace, 0); err != nil {
		t.Fatal(err)
	}
	if vms, err := lab.Cloud.VMs(ctx, namespace); err != nil || len(vms) != 0 {
		t.Errorf("expected no VMs without machines, got %v, %v", vms, err)
	}
}

// extract writes the fleet's binary in the image for this computer to a file, and returns the
// version that the image has as a label.
func extract(t *testing.T, layout, file string) (version string) {
	t.Helper()
	top := read(t, filepath.Join(layout, "index.json"))
	if len(top.Manifests) != 1 {
		t.Fatalf("%s: expected one image, got %d", layout, len(top.Manifests))
	}
	index := read(t, blob(layout, top.Manifests[0]))
	for _, platform := range index.Manifests {
		if platform.Platform.OS != "linux" || platform.Platform.Architecture != runtime.GOARCH {
			continue
		}
		for _, layer := range read(t, blob(layout, platform)).Layers {
			if unpack(t, blob(layout, layer), file) {
				return index.Annotations[versionLabel]
			}
		}
	}
	t.Fatalf("%s: expected %s in an image for linux/%s, found none; build it with make image", layout, fleetBinary, runtime.GOARCH)
	return ""
}

// blob returns the file of what a descriptor describes.
func blob(layout string, d descriptor) string {
	return filepath.Join(layout, "blobs", strings.Replace(d.Digest, ":", "/", 1))
}

func read(t *testing.T, file string) (d document) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; make image builds it", err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

// unpack writes the fleet's binary in a layer to a file, and reports whether the layer has it.
func unpack(t *testing.T, layer, file string) bool {
	t.Helper()
	packed, err := os.Open(layer)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unzipped, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatalf("%s: %v", layer, err)
	}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return false
		case err != nil:
			t.Fatalf("%s: %v", layer, err)
		case header.Name == fleetBinary:
			store(t, reader, file)
			return true
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatalf("%v; make build builds it", err)
	}
	defer source.Close()
	store(t, source, to)
}

// store writes a program to a file.
func store(t *testing.T, content io.Reader, file string) {
	t.Helper()
	program, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(program, content)
	if err := errors.Join(err, program.Close()); err != nil {
		t.Fatal(err)
	}
}
