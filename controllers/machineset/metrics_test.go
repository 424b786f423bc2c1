package machineset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// reported is a scrape of one set with all fields.
const reported = `
# HELP mcm_machine_set_failed_machines A machine whose last operation failed.
# TYPE mcm_machine_set_failed_machines gauge
mcm_machine_set_failed_machines{failed_machine_last_operation_machine_operation_type="Create",failed_machine_last_operation_state="Failed",failed_machine_name="m",failed_machine_owner_ref="set",failed_machine_provider_id="cloud:///1",name="set",namespace="n"} 1
# HELP mcm_machine_set_info A MachineSet, when it was created, and the class of its template.
# TYPE mcm_machine_set_info gauge
mcm_machine_set_info{createdAt="1767323045",name="set",namespace="n",spec_machine_class_api_group="g",spec_machine_class_kind="MachineClass",spec_machine_class_name="c"} 1
# HELP mcm_machine_set_info_spec_min_ready_seconds Seconds for which a machine has to be ready, where that counts.
# TYPE mcm_machine_set_info_spec_min_ready_seconds gauge
mcm_machine_set_info_spec_min_ready_seconds{name="set",namespace="n"} 500
# HELP mcm_machine_set_info_spec_replicas Machines that are wanted.
# TYPE mcm_machine_set_info_spec_replicas gauge
mcm_machine_set_info_spec_replicas{name="set",namespace="n"} 6
# HELP mcm_machine_set_items_total MachineSets.
# TYPE mcm_machine_set_items_total gauge
mcm_machine_set_items_total 1
# HELP mcm_machine_set_status_available_replicas Machines that are available.
# TYPE mcm_machine_set_status_available_replicas gauge
mcm_machine_set_status_available_replicas{name="set",namespace="n"} 3
# HELP mcm_machine_set_status_condition A condition: 1 is True, 0 False, 2 Unknown.
# TYPE mcm_machine_set_status_condition gauge
mcm_machine_set_status_condition{condition="Frozen",name="set",namespace="n"} 2
mcm_machine_set_status_condition{condition="ReplicaFailure",name="set",namespace="n"} 1
mcm_machine_set_status_condition{condition="Valid",name="set",namespace="n"} 0
# HELP mcm_machine_set_status_fully_labelled_replicas Machines with all labels of the template.
# TYPE mcm_machine_set_status_fully_labelled_replicas gauge
mcm_machine_set_status_fully_labelled_replicas{name="set",namespace="n"} 4
# HELP mcm_machine_set_status_ready_replicas Machines that run.
# TYPE mcm_machine_set_status_ready_replicas gauge
mcm_machine_set_status_ready_replicas{name="set",namespace="n"} 2
# HELP mcm_machine_set_status_replicas Machines there are.
# TYPE mcm_machine_set_status_replicas gauge
mcm_machine_set_status_replicas{name="set",namespace="n"} 5
# HELP mcm_machine_stale_machines_total Failed machines that were deleted because their health had timed out.
# TYPE mcm_machine_stale_machines_total counter
mcm_machine_stale_machines_total 0
`

func TestMetrics(t *testing.T) {
	view := objectcache.NewView()
	c, err := New(configOf(apiserver.Recording(), view, &apitest.EventLog{}))
	if err != nil {
		t.Fatal(err)
	}
	acts, registry := true, prometheus.NewPedanticRegistry()
	registry.MustRegister(c.Collectors(func() bool { return acts }, telemetry.SeriesByMachine())...)
	expect := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Name: "set", Namespace: "n", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	}}
	set.Spec.Replicas, set.Spec.MinReadySeconds = 6, 500
	set.Spec.Template.Spec.Class = v1alpha1.ClassSpec{APIGroup: "g", Kind: "MachineClass", Name: "c"}
	set.Spec.MachineClass.Name = "not read"
	set.Status = v1alpha1.MachineSetStatus{
		Replicas: 5, FullyLabeledReplicas: 4, AvailableReplicas: 3, ReadyReplicas: 2,
		Conditions: []v1alpha1.MachineSetCondition{
			{Type: v1alpha1.MachineSetReplicaFailure, Status: "True"},
			{Type: v1alpha1.MachineSetValid, Status: "False"},
			{Type: v1alpha1.MachineSetFrozen, Status: "Unknown"},
			{Type: v1alpha1.MachineSetFrozen, Status: "True"}, // written by another client
		},
		FailedMachines: &[]v1alpha1.MachineSummary{{
			Name: "m", ProviderID: "cloud:///1", OwnerRef: "set",
			LastOperation: v1alpha1.LastOperation{State: v1alpha1.MachineStateFailed, Type: v1alpha1.MachineOperationCreate},
		}},
	}
	view.Sets.Apply(set, false)
	expect(reported)

	acts = false // and so it may be another replica's
	expect(`
# HELP mcm_machine_stale_machines_total Failed machines that were deleted because their health had timed out.
# TYPE mcm_machine_stale_machines_total counter
mcm_machine_stale_machines_total 0
`)
	acts = true

	// It was deleted, or another replica holds it.
	view.Sets.Remove(objectcache.Key(set), "")
	expect(`
# HELP mcm_machine_set_items_total MachineSets.
# TYPE mcm_machine_set_items_total gauge
mcm_machine_set_items_total 0
# HELP mcm_machine_stale_machines_total Failed machines that were deleted because their health had timed out.
# TYPE mcm_machine_stale_machines_total counter
mcm_machine_stale_machines_total 0
`)
}

// Machines that are replaced for their health are counted, others that have failed are not.
func TestStaleMachinesAreCounted(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(3)
		root := &v1alpha1.MachineSet{}
		disruptions := []disruption.Disruption{}
		for i, operation := range []v1alpha1.MachineOperationType{v1alpha1.MachineOperationHealthCheck, v1alpha1.MachineOperationCreate} {
			m := b.machines()[i]
			b.patchMachine(m.GetName(),
				fmt.Sprintf(`{"status":{"currentStatus":{"phase":"Failed"},"lastOperation":{"type":%q}}}`, operation), "status")
			disruptions = append(disruptions, disruption.Disruption{Name: m.GetName(), UID: m.GetUID()})
		}
		disruption.WriteDisruptions(root, disruptions)
		b.patch(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationDisruptions, root.Annotations[v1alpha1.AnnotationDisruptions])
		b.pass(time.Minute)
		if n, deleted := testutil.ToFloat64(b.controller.stale), b.server.Count("delete *"); n != 1 || deleted != 2 {
			t.Errorf("%v of %d deleted machines are counted, want 1 of 2", n, deleted)
		}
	})
}
