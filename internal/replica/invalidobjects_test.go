package replica

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// invalidObject is an error in a user's input. Class, Secret and MachineDeployment have its name.
type invalidObject struct {
	name string
	// class has the fields that differ from a valid class; nil omits the class.
	class map[string]any
	// noSecret omits the Secret, noUserData its user data.
	noSecret, noUserData bool
	// again has another error of the class; nil skips it.
	again map[string]any
	code  driver.Code
	// message is part of the message; messageAgain is that after the other error.
	message, messageAgain string
}

func invalidObjects() []invalidObject {
	secretRef := func(name string) map[string]any { return map[string]any{"secretRef": map[string]any{"name": name}} }
	spec := func(field string) map[string]any { return map[string]any{"providerSpec": map[string]any{field: "red"}} }
	return []invalidObject{
		{name: "no-class", code: driver.NotFound, message: `MachineClass "no-class" does not exist`},
		{
			name: "unknown-provider", class: map[string]any{"provider": "unknown"}, again: map[string]any{"provider": "not known"},
			code: driver.InvalidArgument, message: `"unknown"`, messageAgain: `"not known"`,
		},
		{name: "no-secret", class: map[string]any{}, noSecret: true, code: driver.NotFound, message: `Secret "no-secret"`},
		{
			name: "wrong-secret", class: secretRef("lost"), again: secretRef("gone"),
			code: driver.NotFound, message: `Secret "lost"`, messageAgain: `Secret "gone"`,
		},
		{name: "no-secret-named", class: map[string]any{"secretRef": nil}, code: driver.InvalidArgument, message: `have no key "userData"`},
		{name: "no-user-data", class: map[string]any{}, noUserData: true, code: driver.InvalidArgument, message: `have no key "userData"`},
		{
			name: "refused-by-the-cloud", class: spec("colour"), again: spec("flavour"),
			code: driver.InvalidArgument, message: "colour", messageAgain: "flavour",
		},
	}
}

// strict is a driver that rejects each provider spec with a field.
type strict struct{ driver.Driver }

func (s strict) CreateMachine(ctx context.Context, req driver.CreateMachineRequest) (driver.CreateMachineResponse, error) {
	if spec := string(req.Class.ProviderSpec.Raw); spec != "{}" {
		return driver.CreateMachineResponse{}, driver.Errorf(driver.OpCreate, driver.InvalidArgument, "unknown field in %s", spec)
	}
	return s.Driver.CreateMachine(ctx, req)
}

// TestInvalidObjects creates all invalid objects, next to a valid one. Each machine reports its
// error, and the error after that, with one Event, and is neither given up nor replaced; all
// machines run when the errors have been corrected.
func TestInvalidObjects(t *testing.T) {
	t.Parallel()
	o := replicaOptions()
	o.Machine.CreationTimeout = 2 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.wrapDriver = func(d driver.Driver) driver.Driver { return strict{d} }
		var reads secretReads
		r.watch = reads.note
		r.createUnmanaged()
		r.createClass("a")
		r.putRoot("a", "valid", 2)
		for _, of := range invalidObjects() {
			r.putInvalid(of)
		}
		r.start("fleet-0")
		for _, of := range invalidObjects() {
			r.until(of.name+" is reported", func() bool { return r.reports(of, of.message) })
		}
		r.until("the valid ones run", func() bool { return r.unserved(r.roots["a/valid"]) == "" })
		before := r.machineUIDs()
		r.run(2*o.Machine.CreationTimeout, nil)
		for _, of := range invalidObjects() {
			if of.again == nil {
				continue
			}
			r.putClassOf(of, of.again)
			r.until(of.name+" is reported again", func() bool { return r.reports(of, of.messageAgain) })
		}
		reads.check(t, "no-secret")
		for _, of := range invalidObjects() {
			r.putSecretOf(of.name, map[string]any{"userData": base64.StdEncoding.EncodeToString([]byte("join"))})
			r.putClassOf(of, map[string]any{})
		}
		r.until("all machines run", func() bool { return r.missing() == "" })
		if after := r.machineUIDs(); !slices.Equal(before, after) {
			t.Errorf("machines %v were replaced by %v", before, after)
		}
		r.run(time.Minute, nil) // conditions are removed
		for _, of := range invalidObjects() {
			if r.isFailing(of, "") {
				t.Errorf("%s: a failure is still reported", of.name)
			}
			if n := r.eventsOf(of.name, v1alpha1.EventCreateFailed); n != 2 {
				t.Errorf("%s: %d Events %s, want one for each of two machines", of.name, n, v1alpha1.EventCreateFailed)
			}
		}
	})
}

// putInvalid creates the objects of a case.
func (t *trial) putInvalid(of invalidObject) {
	t.putRoot("a", of.name, 2)
	t.control.Edit("machinedeployments", "a", of.name, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, of.name, "spec", "template", "spec", "class", "name") // it is an object
	})
	switch {
	case of.noUserData:
		t.putSecretOf(of.name, map[string]any{})
	case !of.noSecret:
		t.putSecretOf(of.name, map[string]any{"userData": base64.StdEncoding.EncodeToString([]byte("join"))})
	}
	if of.class != nil {
		t.putClassOf(of, of.class)
	}
}

func (t *trial) putSecretOf(name string, data map[string]any) {
	if t.control.Edit("secrets", "a", name, func(u *unstructured.Unstructured) { u.Object["data"] = data }) {
		return
	}
	t.put(t.control, "secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "a", "name": name}, "data": data,
	})
}

// putClassOf creates or changes the class of a case: a valid one with other fields, of which nil
// takes away.
func (t *trial) putClassOf(of invalidObject, fields map[string]any) {
	class := map[string]any{"provider": "simulated", "providerSpec": map[string]any{}, "secretRef": map[string]any{"name": of.name}}
	for name, value := range fields {
		class[name] = value
		if value == nil {
			delete(class, name)
		}
	}
	set := func(u *unstructured.Unstructured) {
		for _, name := range []string{"provider", "providerSpec", "secretRef"} {
			delete(u.Object, name)
			if value, ok := class[name]; ok {
				u.Object[name] = value
			}
		}
	}
	if t.control.Edit("machineclasses", "a", of.name, set) {
		return
	}
	document := map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": map[string]any{"namespace": "a", "name": of.name},
	}
	set(&unstructured.Unstructured{Object: document})
	t.put(t.control, "machineclasses", document)
}

// reports reports whether both machines of a case fail with its code and a message, and their set
// and MachineDeployment report that.
func (t *trial) reports(of invalidObject, message string) bool {
	failing := 0
	for _, m := range t.machinesOf(of.name) {
		op := m.Status.LastOperation
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineCrashLoopBackOff && op.State == v1alpha1.MachineStateFailed &&
			op.ErrorCode == of.code.String() && strings.Contains(op.Description, message) {
			failing++
		}
	}
	return failing == 2 && t.isFailing(of, message)
}

// isFailing reports whether the MachineDeployment of a case and its set report a failure with a
// message, and both machines.
func (t *trial) isFailing(of invalidObject, message string) bool {
	d := typed[v1alpha1.MachineDeployment](t, t.control.Get("machinedeployments", "a", of.name))
	ofSet := slices.ContainsFunc(t.control.List("machinesets"), func(o *apiserver.Object) bool {
		set := typed[v1alpha1.MachineSet](t, o)
		return set.Labels["root"] == of.name && slices.ContainsFunc(set.Status.Conditions, func(c v1alpha1.MachineSetCondition) bool {
			return c.Type == v1alpha1.MachineSetMachineCreateFailure && c.Status == corev1.ConditionTrue &&
				c.Reason == v1alpha1.ReasonMachineCreateFailed && strings.Contains(c.Message, message)
		})
	})
	ofDeployment := slices.ContainsFunc(d.Status.Conditions, func(c v1alpha1.MachineDeploymentCondition) bool {
		return c.Type == v1alpha1.MachineDeploymentMachineCreateFailure && c.Status == corev1.ConditionTrue &&
			c.Reason == v1alpha1.ReasonMachineCreateFailed && strings.Contains(c.Message, message)
	})
	if message == "" {
		return ofSet || ofDeployment || len(d.Status.FailedMachines) > 0
	}
	return ofSet && ofDeployment && len(d.Status.FailedMachines) == 2
}

// machinesOf returns the machines of some roots.
func (t *trial) machinesOf(roots ...string) (machines []*v1alpha1.Machine) {
	for _, o := range t.control.List("machines") {
		if slices.Contains(roots, o.GetLabels()["root"]) {
			machines = append(machines, typed[v1alpha1.Machine](t, o))
		}
	}
	return machines
}

func (t *trial) machineUIDs() (uids []string) {
	for _, o := range t.control.List("machines") {
		uids = append(uids, string(o.GetUID()))
	}
	slices.Sort(uids)
	return uids
}

// eventsOf counts the Events with a reason on the machines of a root.
func (t *trial) eventsOf(root, reason string) (n int) {
	machines := t.machinesOf(root)
	for _, o := range t.control.List("events") {
		of, _, _ := unstructured.NestedString(o.Object, "regarding", "uid")
		got, _, _ := unstructured.NestedString(o.Object, "reason")
		if got == reason && slices.ContainsFunc(machines, func(m *v1alpha1.Machine) bool { return string(m.UID) == of }) {
			n++
		}
	}
	return n
}

// typed returns an object of the API server with its Go type.
func typed[T any](t *trial, o *apiserver.Object) *T {
	var object T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &object); err != nil {
		t.fail("%s: %v", o.GetName(), err)
	}
	return &object
}

// secretReads counts the requests for Secrets.
type secretReads struct {
	mu      sync.Mutex
	gets    map[string]int // by name
	watches map[string]int // by field selector
}

func (s *secretReads) note(q request, r *http.Request) {
	namespaced, name, _ := strings.Cut(q.path, "/secrets")
	if !strings.HasSuffix(namespaced, "/a") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gets == nil {
		s.gets, s.watches = map[string]int{}, map[string]int{}
	}
	switch q.kind {
	case gets:
		s.gets[strings.TrimPrefix(name, "/")]++
	case watches:
		s.watches[r.URL.Query().Get("fieldSelector")]++
	}
}

// check expects that a Secret which machines wait for is watched by its name, and not polled.
func (s *secretReads) check(t *testing.T, name string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches["metadata.name="+name] == 0 || s.gets[name] > 4 {
		t.Errorf("Secret %s: watches %v, read %d times", name, s.watches, s.gets[name])
	}
	for selector := range s.watches {
		if !strings.HasPrefix(selector, "metadata.name=") {
			t.Errorf("Secrets are watched with the selector %q", selector)
		}
	}
}
