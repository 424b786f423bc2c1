package simulated

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// A VM that the provider ID names is the Machine's by its tags only.
func TestOwnershipOfVMIsDecidedByTags(t *testing.T) {
	ofMCM := map[string]string{TagMachine: "a", TagCluster: "ns"}
	with := func(tags map[string]string, key, value string) map[string]string {
		tags = maps.Clone(tags)
		tags[key] = value
		return tags
	}
	for name, c := range map[string]struct {
		state         cloudapi.InstanceState
		tags          map[string]string
		adopt         bool
		owns, foreign bool
	}{
		"its own": {state: cloudapi.StateRunning, tags: map[string]string{TagMachineUID: "uid-a"}, owns: true},
		"its own, and it adopts": {
			state: cloudapi.StateRunning, tags: map[string]string{TagMachineUID: "uid-a"}, adopt: true, owns: true,
		},
		"its own, which has ended":           {state: cloudapi.StateTerminated, tags: map[string]string{TagMachineUID: "uid-a"}},
		"another machine's":                  {state: cloudapi.StateRunning, tags: map[string]string{TagMachineUID: "uid-b"}, foreign: true},
		"another machine's, which has ended": {state: cloudapi.StateTerminated, tags: map[string]string{TagMachineUID: "uid-b"}},
		"of no machine":                      {state: cloudapi.StateRunning, foreign: true},
		"of no machine, and it adopts":       {state: cloudapi.StateRunning, adopt: true, foreign: true},
		"without UID":                        {state: cloudapi.StateRunning, tags: ofMCM, foreign: true},
		"without UID, and it adopts":         {state: cloudapi.StateRunning, tags: ofMCM, adopt: true, owns: true},
		"of another name":                    {state: cloudapi.StateRunning, tags: with(ofMCM, TagMachine, "b"), adopt: true, foreign: true},
		"of another namespace":               {state: cloudapi.StateRunning, tags: with(ofMCM, TagCluster, "other"), adopt: true, foreign: true},
		"of its names and another UID": {
			state: cloudapi.StateRunning, tags: with(ofMCM, TagMachineUID, "uid-b"), adopt: true, foreign: true,
		},
	} {
		found := vm(c.state)
		found.Tags = c.tags
		d, _ := against(t, answer{200, nil, found}, answer{200, nil, cloudapi.InstanceList{}})
		requested := withID(target(""), found.ProviderID)
		requested.Adopt = c.adopt
		resp, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: requested})
		if owns := err == nil && resp.ProviderID != ""; owns != c.owns || resp.Left != c.foreign ||
			!owns && driver.CodeOf(err) != driver.NotFound {
			t.Errorf("%s: %+v, %v; want it: %t, foreign: %t", name, resp, err, c.owns, c.foreign)
		}
	}
}

// A delete reports whose the VM of the provider ID is, or was.
func TestDeleteReportsAVMThatWasTheMachines(t *testing.T) {
	mine, others := map[string]string{TagMachineUID: "uid-a"}, map[string]string{TagMachineUID: "uid-b"}
	for name, c := range map[string]struct {
		state cloudapi.InstanceState
		tags  map[string]string
		want  bool
	}{
		"its own, which ends":                {cloudapi.StateStopping, mine, true},
		"its own, which has ended":           {cloudapi.StateTerminated, mine, true},
		"another machine's, which has ended": {cloudapi.StateTerminated, others, false},
	} {
		found := vm(c.state)
		found.Tags = c.tags
		d, _ := against(t, answer{200, nil, found}, answer{200, nil, cloudapi.InstanceList{}}, answer{200, nil, cloudapi.LeftoverList{}})
		resp, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: withID(target(""), found.ProviderID)})
		if err != nil || resp.Owned != c.want {
			t.Errorf("%s: %+v, %v; want owned=%t", name, resp, err, c.want)
		}
	}
}

// The VM that the cloud describes has to be the requested one.
func TestAnswerWithAnotherVMIsRejected(t *testing.T) {
	other := vm(cloudapi.StateRunning)
	other.ID, other.ProviderID = "i-2", "simulated:///r/z/i-2"
	d, _ := against(t, answer{200, nil, other})
	if resp, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{
		Target: withID(target(""), "simulated:///r/z/i-1"),
	}); driver.CodeOf(err) != driver.Internal {
		t.Errorf("%+v, %v; want Internal", resp, err)
	}
}

func TestMachineWithoutUIDSendsNoRequest(t *testing.T) {
	requested := target("")
	requested.Machine = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	d, cloud := against(t)
	if _, err := d.GetMachineStatus(t.Context(),
		driver.GetMachineStatusRequest{Target: requested}); driver.CodeOf(err) != driver.InvalidArgument || len(cloud.requests) > 0 {
		t.Errorf("%v after %d requests, want InvalidArgument after none", err, len(cloud.requests))
	}
}

func TestIDs(t *testing.T) {
	for id, want := range map[string]bool{
		"azAZ09": true, "i-1": true, "a_b": true, "a.b": true,
		"": false, ".": false, "..": false, "a/b": false, "a:b": false, "a@b": false, "a[b": false, "a`b": false, "a{b": false, "ä": false,
		"a b": false,
	} {
		if got := isID(id); got != want {
			t.Errorf("%q: %t, want %t", id, got, want)
		}
		if _, got := parseProviderID(cloudapi.ProviderIDPrefix + "r/z/" + id); got != want {
			t.Errorf("a provider ID with %q: %t, want %t", id, got, want)
		}
	}
	for _, providerID := range []string{"other:///r/z/i-1", "simulated:///z/i-1", "simulated:///q/r/z/i-1", "i-1", "r/z/i-1"} {
		if id, ok := parseProviderID(providerID); ok {
			t.Errorf("%s is VM %s", providerID, id)
		}
	}
}

func TestAVMWithoutAnAddress(t *testing.T) {
	created := vm(cloudapi.StateRunning)
	created.PrivateIP = ""
	for _, a := range describe(created).Addresses {
		if a.Address == "" {
			t.Errorf("an address %+v", a)
		}
	}
}
