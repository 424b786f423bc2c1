//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// servesBesideUndecodable stores a Machine and a MachineSet that MCM's definitions accept and that cannot be decoded. A
// MachineDeployment in the same slot and namespace is served nevertheless: by watches that deliver them, and by lists that
// contain them. The two are reported, and are served when they are corrected.
func (s *space) servesBesideUndecodable() {
	const spec = `{"class":{"kind":"MachineClass","name":"` + harness.ClassName + `"},"drainTimeout":"soon"}`
	name := s.name + "-pool" // roots of one name are in one slot
	machine := s.store("machines", fmt.Sprintf(`{"kind":"Machine","metadata":{"name":%q},"spec":%s}`, name, spec))
	set := s.store("machinesets", fmt.Sprintf(`{"kind":"MachineSet","metadata":{"name":%q},"spec":{"replicas":1,"selector":{"matchLabels":{"name":"set"}},`+
		`"template":{"metadata":{"labels":{"name":"set"}},"spec":%s}}}`, name, spec))
	s.emitted(machine, v1alpha1.EventUndecodable, `: spec.drainTimeout: time: invalid duration "soon"`)
	s.emitted(set, v1alpha1.EventUndecodable, `: spec.template.spec.drainTimeout: time: invalid duration "soon"`)
	s.countsUndecodable(1, 1)

	s.deploy(name, 1) // it is served by the watches
	s.running(name, 1)
	s.must(s.lab.Restart(s.Context(), harness.Fleet))
	s.scale(name, 2) // it is served by the lists
	s.running(name, 2)
	s.countsUndecodable(1, 1)
	if vms := s.history(); len(vms) != 2 {
		s.Errorf("the cloud has created %d VMs, want those 2 of the MachineDeployment: %v", len(vms), vms)
	}

	s.patch("machines", name, `{"spec":{"drainTimeout":"2h"}}`) // what is corrected is served
	s.patch("machinesets", name, `{"spec":{"template":{"spec":{"drainTimeout":null}}}}`)
	s.running("", 4)
	s.joined()
	s.countsUndecodable(0, 0)
	for _, resource := range []string{"machinedeployments", "machinesets", "machines"} {
		s.remove(resource, name)
	}
	s.gone()
}

// store creates an object of the machine API that may not decode, and returns its metadata.
func (s *space) store(resource, content string) *metav1.PartialObjectMetadata {
	s.Helper()
	body := fmt.Sprintf(`{"apiVersion":%q,%s`, v1alpha1.SchemeGroupVersion, content[1:])
	stored, err := s.api().RESTClient().Post().Namespace(s.name).Resource(resource).Body([]byte(body)).Do(s.Context()).Raw()
	s.must(err)
	o := &metav1.PartialObjectMetadata{}
	s.must(json.Unmarshal(stored, o))
	return o
}

// countsUndecodable waits until the replica counts so many objects that cannot be decoded, and no others.
func (s *space) countsUndecodable(machines, sets float64) {
	s.Helper()
	want := map[string]float64{`{kind="Machine"}`: machines, `{kind="MachineSet"}`: sets, `{kind="MachineDeployment"}`: 0, `{kind="MachineClass"}`: 0}
	s.eventually("objects that cannot be decoded are counted", func(ctx context.Context) error {
		got, err := s.lab.Metrics(ctx, harness.Fleet, "mcf_undecodable_objects")
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			err = fmt.Errorf("(-want +got):\n%s", diff)
		}
		return err
	})
}
