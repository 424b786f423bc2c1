package bridged

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

const (
	// weaknessVariable is the number of the weakness that a process of TestWeaknesses tries.
	weaknessVariable = "BRIDGED_WEAKNESS"
	// begun is the line that a test prints when its driver is connected, and the case begins.
	begun = "the case begins"
)

// TestConformance: MCM's driver for Azure, bridged, gives the guarantees of package driver, but for
// the weaknesses.
func TestConformance(t *testing.T) {
	var tried *weakness
	if text := os.Getenv(weaknessVariable); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		tried = &weaknesses[number]
	}
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		t.Helper()
		test := strings.TrimPrefix(t.Name(), "TestConformance/")
		env := newEnv(t)
		if tried == nil {
			expect(t, test)
		}
		all := env.Fail
		env.Fail = func(t *testing.T, how drivertest.Failure) func() {
			t.Helper()
			if tried == nil && weaknessOf(test, how) != nil || tried != nil && tried.failure != "" && tried.failure != how {
				return nil
			}
			return all(t, how)
		}
		return env
	})
}

// expect skips a case that is a weakness, and fails one that is skipped and is none.
func expect(t *testing.T, test string) {
	t.Helper()
	w := weaknessOf(test, "")
	switch {
	case w == nil:
		t.Cleanup(func() {
			if t.Skipped() && weaknessOf(test, anyFailure) == nil {
				t.Error("the case was skipped, and is not among the weaknesses")
			}
		})
	case w.skipped:
		t.Cleanup(func() {
			if !t.Skipped() {
				t.Error("the case was not skipped: it is no weakness any more")
			}
		})
	default:
		t.Skip(w.reason)
	}
}

// TestWeaknesses: no case that is named as a weakness passes. One that does has to be removed from
// the list, and from docs/drivers/bridge.md.
func TestWeaknesses(t *testing.T) {
	for number, w := range weaknesses {
		if w.skipped {
			continue
		}
		t.Run(w.test+" "+string(w.failure), func(t *testing.T) {
			t.Parallel()
			name := regexp.QuoteMeta(strings.ReplaceAll(w.test, " ", "_"))
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestConformance$/^"+name+"$")
			command.Env = append(os.Environ(), weaknessVariable+"="+strconv.Itoa(number))
			printed, err := command.CombinedOutput()
			_, after, _ := strings.Cut(string(printed), begun)
			if err == nil || !strings.Contains(after, "--- FAIL: TestConformance/") {
				t.Errorf("want a case that fails, because %s; it ended with %v\n%s", w.reason, err, printed)
			}
		})
	}
}

func newEnv(t *testing.T) drivertest.Env {
	t.Helper()
	s := open(t)
	t.Log(begun)
	return drivertest.Env{
		Driver: s.driver, Class: target(), Secret: secret(), UserData: []byte(userData),
		CallTimeout: time.Minute, // on a machine that is busy with other tests
		VMs:         s.vms,
		Fail:        func(_ *testing.T, how drivertest.Failure) func() { return s.fail(how) },
		Hide: func(*testing.T) func() {
			s.HideVMs(true)
			return func() { s.HideVMs(false) }
		},
		// A VM that has ended is one that is being deleted: the cloud does not know it after that.
		EndVM: func(_ *testing.T, id string) { s.End(strings.TrimPrefix(id, "azure://")) },
		CreateBare: func(_ *testing.T, m *v1alpha1.Machine) string {
			s.Create(vmID(m.Name), map[string]string{"kubernetes.io-cluster-shoot--a": "1", "kubernetes.io-role-node": "1"})
			return providerID(m.Name)
		},
		Leftovers: func(*testing.T) (machines []types.UID) {
			for _, r := range s.Leftovers() {
				machines = append(machines, types.UID(r.Tags[tagUID]))
			}
			return machines
		},
		Confidential:  []string{"clientSecret"},
		MoreThanAPage: pageSize + 1,
		BadSpecs: map[string]string{
			"no object":    `"Standard_D4_v3"`,
			"nothing":      `{}`,
			"another type": strings.Replace(spec, `"zone": 2`, `"zone": "2"`, 1),
			"disk of 0":    strings.Replace(spec, `"diskSizeGB": 50`, `"diskSizeGB": 0`, 1),
			"no role":      strings.Replace(spec, `"kubernetes.io-role-node": "1"`, `"other": "1"`, 1),
		},
		Volumes: map[string]*corev1.PersistentVolumeSpec{
			"/subscriptions/s/disks/pv-1": {PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.azure.com", VolumeHandle: "/subscriptions/s/disks/pv-1"},
			}},
			"pv-2": {PersistentVolumeSource: corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "pv-2"}}},
		},
	}
}

// A create that is repeated after any time finds the VM: names are unique at Azure, and no token is
// forgotten.
func TestCreateIsRepeatedTheNextDay(t *testing.T) {
	s := open(t)
	request := driver.CreateMachineRequest{
		Target: driver.Target{Machine: machine("m"), Class: target(), Secret: secret()}, UserData: []byte(userData),
	}
	first, err := s.driver.CreateMachine(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	s.clock.Step(25 * time.Hour)
	second, err := s.driver.CreateMachine(t.Context(), request)
	if err != nil || second.ProviderID != first.ProviderID {
		t.Errorf("the second create returned %q, %v; want %q", second.ProviderID, err, first.ProviderID)
	}
	if created := s.Stats().VMs; created != 1 {
		t.Errorf("%d VMs were created, want 1", created)
	}
}

// A Machine may have the provider ID of its VM's Node, or that which MCM has written.
func TestProviderIDs(t *testing.T) {
	s := open(t)
	for id, owned := range map[string]bool{
		providerID("m"): true, "azure:///westeurope/m": true, "azure:///westeurope/other": false, providerID("other"): false, "m": false,
		"": false,
	} {
		target := driver.Target{Machine: machine("m"), Class: target(), Secret: secret()}
		created, err := s.driver.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: target, UserData: []byte(userData)})
		if err != nil || created.ProviderID != providerID("m") {
			t.Fatalf("CreateMachine returned %q, %v; want %q", created.ProviderID, err, providerID("m"))
		}
		target.Machine.Spec.ProviderID = id
		for {
			removed, err := s.driver.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: target})
			if err != nil {
				t.Fatal(err)
			}
			if !removed.Gone {
				continue
			}
			if removed.Owned != owned {
				t.Errorf("DeleteMachine with the provider ID %q: owned=%t, want %t", id, removed.Owned, owned)
			}
			break
		}
	}
}
