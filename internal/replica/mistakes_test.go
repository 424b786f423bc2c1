package replica

import (
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestMistakesThatTheAPIServerStoresAreServedWhenCorrected stores objects that definitions of
// Machine Controller Manager accept: some are invalid, and some do not decode. They are reported
// and counted, no machine is created for them or taken from others, and nothing is written as long
// as they stay. Others are served, also after a restart, and they are when they are corrected.
func TestMistakesThatTheAPIServerStoresAreServedWhenCorrected(t *testing.T) {
	o := replicaOptions()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.createUnmanaged()
		r.createClass("a")
		r.start("fleet-0")
		want := map[string]string{}
		mistake := func(name, reason string, value any, path ...string) {
			for _, resource := range []string{"machinedeployments", "machinesets"} {
				want[resource+"/"+name] = reason
				r.put(r.control, resource, document(resource, name, value, path...))
			}
		}
		mistake("no-selector", v1alpha1.ReasonSelectorMatchesNothing, nil, "spec", "selector")
		mistake("selector-of-others", v1alpha1.ReasonSelectorMatchesNothing, map[string]any{"root": "right"}, "spec", "selector", "matchLabels")
		mistake("selector-of-all", v1alpha1.ReasonSelectorMatchesEverything, map[string]any{}, "spec", "selector")
		mistake("no-class", v1alpha1.ReasonInvalidSpec, "", "spec", "template", "spec", "class", "name")
		for _, resource := range []string{"machinedeployments", "machinesets"} { // of a class that does not exist, and of no machines
			d := document(resource, "unknown-class", "none", "spec", "template", "spec", "class", "name")
			set(d, int64(0), "spec", "replicas")
			want[resource+"/unknown-class"] = v1alpha1.ReasonInvalidClass
			r.put(r.control, resource, d)
		}
		r.put(r.control, "machinesets", document("machinesets", "undecodable", "soon", "spec", "template", "spec", "drainTimeout"))
		r.storeUndecodable()
		right := r.putRoot("a", "right", 1)
		served := func() bool {
			return r.unserved(right) == "" && len(r.control.List("machines")) == right.replicas+r.spoilt
		}
		r.until("a MachineDeployment is served", served)
		reported := func() string {
			got := map[string]string{}
			for id := range want {
				resource, name, _ := strings.Cut(id, "/")
				got[id] = reasonOf(r.control.Get(resource, "a", name), string(v1alpha1.MachineDeploymentValid), "False")
			}
			return cmp.Diff(want, got)
		}
		if !r.run(10*time.Minute, func() bool { return reported() == "" }) {
			t.Fatalf("reasons of the condition Valid (-want +got):\n%s", reported())
		}
		r.alive()[0].crash()
		right = r.putRoot("a", "right", 2)
		r.until("a MachineDeployment is served after a restart", served)
		if n, _ := r.alive()[0].metric("mcf_undecodable_objects"); n != 2 {
			t.Errorf("%v objects that cannot be decoded are counted, want 2", n)
		}
		r.run(time.Minute, nil)
		before := r.versions()
		r.run(10*time.Minute, nil)
		if after := r.versions(); !maps.Equal(before, after) || !served() {
			t.Errorf("objects were written although nothing changed: %v, and before %v", after, before)
		}

		correct := func(resource, name string, value any, path ...string) {
			r.control.Edit(resource, "a", name, func(u *unstructured.Unstructured) { set(u.Object, value, path...) })
		}
		correct("machinedeployments", "no-class", "small", "spec", "template", "spec", "class", "name")
		correct("machinesets", "undecodable", nil, "spec", "template", "spec", "drainTimeout")
		correct("machines", "bad", "2h", "spec", "drainTimeout")
		r.until("what is corrected is served", func() bool { return len(r.cloud.Live())-unmanagedVMs == right.replicas+3 })
		if n, _ := r.alive()[0].metric("mcf_undecodable_objects"); n != 0 {
			t.Errorf("%v objects that cannot be decoded are counted, want none", n)
		}
		if r.wrong != "" {
			t.Error(r.wrong)
		}
	})
}

// document returns a MachineDeployment or MachineSet of one machine with the value at the path; nil
// removes what is there.
func document(resource, name string, value any, path ...string) map[string]any {
	labels := map[string]any{"root": name}
	d := map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1",
		"kind":       map[string]string{"machinedeployments": "MachineDeployment", "machinesets": "MachineSet"}[resource],
		"metadata":   map[string]any{"namespace": "a", "name": name},
		"spec": map[string]any{
			"replicas": int64(1), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"class": map[string]any{"kind": "MachineClass", "name": "small"}},
			},
		},
	}
	set(d, value, path...)
	return d
}

// set sets a field of an object; nil removes it.
func set(o map[string]any, value any, path ...string) {
	unstructured.RemoveNestedField(o, path...)
	if value != nil {
		_ = unstructured.SetNestedField(o, value, path...) // it is an object
	}
}

// versions returns the versions of all MachineDeployments, MachineSets and Machines.
func (t *trial) versions() map[string]string {
	found := map[string]string{}
	for _, resource := range []string{"machinedeployments", "machinesets", "machines"} {
		for _, o := range t.control.List(resource) {
			found[resource+"/"+o.GetName()] = o.GetResourceVersion()
		}
	}
	return found
}
