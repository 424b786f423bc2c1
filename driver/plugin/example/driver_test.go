package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

// The driver has the guarantees of package driver, called directly and over a socket.
func TestConformance(t *testing.T) {
	t.Run("called directly", func(t *testing.T) { drivertest.Run(t, newEnv) })
	t.Run("over a socket", func(t *testing.T) {
		drivertest.Run(t, func(t *testing.T) drivertest.Env {
			t.Helper()
			env := newEnv(t)
			env.Driver = drivertest.OverSocket(t, env.Driver)
			return env
		})
	})
}

// newEnv is a cloud for one subtest.
func newEnv(t *testing.T) drivertest.Env {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "vms")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return drivertest.Env{
		Driver: &cloud{folder: folder},
		Class: &v1alpha1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a", Name: "class"}, Provider: "folder",
			ProviderSpec: runtime.RawExtension{Raw: []byte(`{"size": "small"}`)},
		},
		UserData: []byte("#cloud-config"),
		VMs:      func(t *testing.T) []drivertest.VM { t.Helper(); return vmsIn(t, folder) },
		Fail:     func(t *testing.T, how drivertest.Failure) func() { t.Helper(); return fail(t, folder, how) },
		EndVM: func(t *testing.T, providerID string) {
			t.Helper()
			file := filepath.Join(folder, strings.TrimPrefix(providerID, providerIDPrefix))
			ended, err := json.Marshal(vm{UID: types.UID(filepath.Base(file)), Ended: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, ended, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		BadSpecs: map[string]string{
			"unknown size": `{"size": "huge"}`, "unknown field": `{"size": "small", "flavor": "x"}`, "no object": `[]`, "nothing": ``,
		},
		// A folder returns all names at once, and a sweep has pages.
		MoreThanAPage: 2*pageSize + 1,
	}
}

// vmsIn reads the cloud, without the driver.
func vmsIn(t *testing.T, folder string) (vms []drivertest.VM) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "[^.]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var found vm
		if err := json.Unmarshal(raw, &found); err != nil {
			t.Fatal(err)
		}
		if found.Ended {
			continue
		}
		vms = append(vms, drivertest.VM{ProviderID: providerIDPrefix + filepath.Base(file), MachineUID: found.UID})
	}
	return vms
}

// fail takes the folder away, which is the one way in which this cloud can fail.
func fail(t *testing.T, folder string, how drivertest.Failure) (heal func()) {
	t.Helper()
	if how != drivertest.Unreachable {
		return nil
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move(folder, folder+".away")
	return func() { move(folder+".away", folder) }
}
