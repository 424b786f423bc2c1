package bridge_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	mcmv1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/bridge"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon is an AnswerAfter that a test lets pass.
const soon = 20 * time.Millisecond

// The cases that a bridged driver cannot pass are those of Env.WithoutTags: MCM's drivers do not
// report whose a VM is.
func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		t.Helper()
		c := newCloud()
		return drivertest.Env{
			Driver: drivertest.OverSocket(t, bridge.New(c, bridge.Options{TagField: "tags", ProviderSpec: spec{}})),
			Class: &v1alpha1.MachineClass{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a", Name: "class"}, Provider: "fake",
				ProviderSpec: runtime.RawExtension{Raw: []byte(`{"size": "small", "tags": {"mine": "x"}}`)},
			},
			Secret: map[string][]byte{"key": []byte("credential-of-the-cloud")}, UserData: []byte("boot"), WithoutTags: true,
			VMs: func(*testing.T) (vms []drivertest.VM) {
				c.mu.Lock()
				defer c.mu.Unlock()
				for id, created := range c.vms {
					vms = append(vms, drivertest.VM{ProviderID: id, MachineUID: created.uid})
				}
				return vms
			},
			EndVM: func(_ *testing.T, id string) {
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.vms, id)
			},
			DoubleVM: func(_ *testing.T, m *v1alpha1.Machine) { c.add(vm{m.Name, m.UID}) },
			Fail:     c.fail,
			BadSpecs: map[string]string{"no size": `{}`, "no object": `[]`, "tags are no object": `{"size": "small", "tags": 1}`},
			Volumes: map[string]*corev1.PersistentVolumeSpec{"v": {PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.fake", VolumeHandle: "v"},
			}}},
		}
	})
}

func TestUnknownFieldsWithoutTheTypeOfTheSpecAreNotReported(t *testing.T) {
	_, err := bridge.New(newCloud(), bridge.Options{}).GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: machine().Class})
	if driver.CodeOf(err) != driver.Unimplemented {
		t.Errorf("%v, want Unimplemented", err)
	}
}

// machine is a target for the other tests.
func machine() driver.Target {
	return driver.Target{
		Machine: &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", UID: "uid-m"}, Spec: v1alpha1.MachineSpec{ProviderID: "fake:///other"},
		},
		Class: &v1alpha1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "class"}, Provider: "fake",
			ProviderSpec: runtime.RawExtension{Raw: []byte(`{"size": "small"}`)},
		},
		Secret: map[string][]byte{"key": []byte("value")},
	}
}

func create(t *testing.T, d driver.Driver) (driver.CreateMachineResponse, error) {
	t.Helper()
	return d.CreateMachine(t.Context(), driver.CreateMachineRequest{Target: machine(), UserData: []byte("boot")})
}

func want(t *testing.T, what string, err error, code driver.Code) {
	t.Helper()
	if got := driver.CodeOf(err); got != code {
		t.Errorf("%s: code %v, want %v: %v", what, got, code, err)
	}
}

// A create that takes long holds no worker: the call returns that it is under way, and the next
// ones join it.
func TestACreateThatTakesLong(t *testing.T) {
	c := newCloud()
	c.hold = make(chan struct{})
	d := bridge.New(c, bridge.Options{AnswerAfter: soon})
	for range 3 {
		_, err := create(t, d)
		want(t, "while it waits", err, driver.Aborted)
		if driver.RetryAfterOf(err) == 0 || !strings.Contains(driver.MessageOf(err), "under way") {
			t.Errorf("retry after %v: %v", driver.RetryAfterOf(err), err)
		}
	}
	_, err := d.InitializeMachine(t.Context(), driver.InitializeMachineRequest{Target: machine()})
	want(t, "other work for the machine", err, driver.Aborted)
	removed, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: machine()})
	if want(t, "a delete", err, driver.OK); removed.Gone {
		t.Error("the VM is gone while its create is under way")
	}
	close(c.hold)
	for {
		created, err := create(t, d)
		if driver.CodeOf(err) == driver.Aborted {
			continue
		}
		if err != nil || created.ProviderID != "fake:///1" || c.creates != 1 {
			t.Errorf("%+v, %v after %d creates", created, err, c.creates)
		}
		return
	}
}

// The process has ended in between: what is asked is the cloud.
func TestACreateIsRepeatedByAnotherProcess(t *testing.T) {
	c := newCloud()
	for range 2 {
		created, err := create(t, bridge.New(c, bridge.Options{}))
		if err != nil || created.ProviderID != "fake:///1" {
			t.Errorf("%+v, %v", created, err)
		}
	}
	c.hidden = true // and is listed where the driver cannot look
	if created, err := create(t, bridge.New(c, bridge.Options{})); err != nil || created.ProviderID != "fake:///1" || created.NodeName != "m" {
		t.Errorf("%+v, %v", created, err)
	}
	for _, how := range []drivertest.Failure{drivertest.Unreachable, drivertest.ServerError, drivertest.BadCredentials} {
		heal := c.fail(t, how)
		if _, err := create(t, bridge.New(c, bridge.Options{})); err == nil {
			t.Errorf("%s: created", how)
		}
		heal()
	}
	if c.creates != 1 {
		t.Errorf("%d creates, want 1", c.creates)
	}
}

func TestAFailureIsReportedAfterItsCallHasReturned(t *testing.T) {
	c := newCloud()
	heal := c.fail(t, drivertest.NoAnswer)
	d := bridge.New(c, bridge.Options{AnswerAfter: soon})
	_, err := create(t, d)
	want(t, "while it waits", err, driver.Aborted)
	heal()
	for driver.CodeOf(err) == driver.Aborted {
		_, err = create(t, d)
	}
	want(t, "the failure", err, driver.Unavailable)
	if created, err := create(t, d); err != nil || created.ProviderID == "" {
		t.Errorf("after it: %+v, %v", created, err)
	}
}

// The fleet cancels a call when it releases the slot; a deadline is no such end. The next call does
// not get the end of that one.
func TestACancelledCallCancelsTheWork(t *testing.T) {
	c := newCloud()
	c.hold = make(chan struct{})
	d := bridge.New(c, bridge.Options{AnswerAfter: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var call sync.WaitGroup
	call.Go(func() {
		_, err := d.CreateMachine(ctx, driver.CreateMachineRequest{Target: machine()})
		want(t, "a call that is cancelled", err, driver.Canceled)
	})
	for len(c.named(mcmMachine("m"))) == 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("no create")
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	call.Wait() // the held create ends with its context: goleak finds it otherwise
	created, err := create(t, d)
	if err != nil || created.ProviderID != "fake:///1" || c.creates != 1 {
		t.Errorf("the next call: %+v, %v after %d creates", created, err, c.creates)
	}
}

// VMs have the provider IDs of their Nodes, in all answers; a Machine may have that of Machine
// Controller Manager.
func TestProviderIDsOfNodes(t *testing.T) {
	const ofDriver, ofNode = "fake:///1", "fake:///node/1"
	options := bridge.Options{ProviderID: func(id string, class *mcmv1alpha1.MachineClass, secret *corev1.Secret) string {
		if class.Name != "class" || string(secret.Data["key"]) != "value" {
			t.Errorf("class %q, Secret %q", class.Name, secret.Data)
		}
		return strings.Replace(id, ofDriver, ofNode, 1)
	}}
	for _, recorded := range []string{ofDriver, ofNode} {
		d := bridge.New(newCloud(), options)
		created, err := create(t, d)
		want(t, "create", err, driver.OK)
		found, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: machine()})
		want(t, "status", err, driver.OK)
		listed, err := d.ListMachines(t.Context(), driver.ListMachinesRequest{Class: machine().Class, Secret: machine().Secret})
		want(t, "list", err, driver.OK)
		if created.ProviderID != ofNode || found.ProviderID != ofNode || listed.Machines[ofNode] != "m" {
			t.Errorf("create returned %q, status %q, list %q; want %q", created.ProviderID, found.ProviderID, listed.Machines, ofNode)
		}
		target := machine()
		target.Machine.Spec.ProviderID = recorded
		removed, err := d.DeleteMachine(t.Context(), driver.DeleteMachineRequest{Target: target})
		if want(t, "delete", err, driver.OK); !removed.Owned {
			t.Errorf("%s: the VM that was deleted is not the Machine's", recorded)
		}
	}
}

func TestWhatADriverIsGiven(t *testing.T) {
	c := newCloud()
	d := bridge.New(c, bridge.Options{TagField: "tags"})
	if _, err := create(t, d); err != nil {
		t.Fatal(err)
	}
	got := c.lastCreate
	if id := got.Machine.Spec.ProviderID; id != "" {
		t.Errorf("a provider ID that a client has written: %q", id)
	}
	if raw := string(got.MachineClass.ProviderSpec.Raw); !strings.Contains(raw, `"machine-uid":"uid-m"`) ||
		!strings.Contains(raw, `"size":"small"`) {
		t.Errorf("provider spec %s", raw)
	}
	if data := got.Secret.Data; string(data["userData"]) != "boot" || string(data["key"]) != "value" {
		t.Errorf("secret %v", data)
	}
	if data := c.lastStatus.Secret.Data; len(data["userData"]) == 0 {
		t.Error("a Secret without user data, which MCM's drivers reject")
	}
	d = bridge.New(c, bridge.Options{PassProviderID: true})
	if _, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: machine()}); err != nil ||
		c.lastStatus.Machine.Spec.ProviderID != "fake:///other" {
		t.Errorf("%v, provider ID %q", err, c.lastStatus.Machine.Spec.ProviderID)
	}
	if strings.Contains(string(machine().Class.ProviderSpec.Raw), "uid-m") {
		t.Error("the request was changed")
	}
}

// failing is a driver all of whose answers are one error, or a panic.
type failing struct {
	*cloud

	err error
}

func TestCodes(t *testing.T) {
	for code := codes.Canceled; code <= codes.Uninitialized; code++ {
		d := bridge.New(failing{newCloud(), status.Error(code, "because [of] this")}, bridge.Options{})
		_, err := d.GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: machine()})
		if want(t, code.String(), err, driver.Code(code)); driver.MessageOf(err) != "because [of] this" ||
			driver.CodeOf(err).String() != code.String() {
			t.Errorf("%s: message %q", code, driver.MessageOf(err))
		}
	}
	for name, failure := range map[string]error{
		"no code":   errors.New("machine codes error: code = [NotFound] message = [a text is not read]"),
		"OK":        status.Error(codes.OK, "not OK"),
		"a new one": status.Error(codes.Code(77), "unknown"),
		"no VM":     nil,
	} {
		_, err := bridge.New(failing{newCloud(), failure}, bridge.Options{}).
			GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: machine()})
		want(t, name, err, driver.Unknown)
	}
	_, err := bridge.New(failing{newCloud(), errPanic}, bridge.Options{}).
		GetMachineStatus(t.Context(), driver.GetMachineStatusRequest{Target: machine()})
	want(t, "a panic", err, driver.Internal)
	_, err = create(t, bridge.New(failing{newCloud(), errPanic}, bridge.Options{}))
	want(t, "a panic in a create", err, driver.Internal)
}
