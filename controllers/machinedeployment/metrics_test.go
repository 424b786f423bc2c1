package machinedeployment

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// scraped is the result of a scrape of one deployment with all fields.
const scraped = `
# HELP mcm_machine_deployment_failed_machines A machine whose last operation failed.
# TYPE mcm_machine_deployment_failed_machines gauge
mcm_machine_deployment_failed_machines{failed_machine_last_operation_machine_operation_type="Create",failed_machine_last_operation_state="Failed",failed_machine_name="m",failed_machine_owner_ref="set",failed_machine_provider_id="cloud:///1",name="d",namespace="n"} 1
# HELP mcm_machine_deployment_info A MachineDeployment, when it was created, and its strategy.
# TYPE mcm_machine_deployment_info gauge
mcm_machine_deployment_info{createdAt="1767323045",name="d",namespace="n",spec_strategy_type="RollingUpdate"} 1
# HELP mcm_machine_deployment_info_spec_min_ready_seconds Seconds for which a machine has to be ready, where that counts.
# TYPE mcm_machine_deployment_info_spec_min_ready_seconds gauge
mcm_machine_deployment_info_spec_min_ready_seconds{name="d",namespace="n"} 500
# HELP mcm_machine_deployment_info_spec_paused 1 while it is paused.
# TYPE mcm_machine_deployment_info_spec_paused gauge
mcm_machine_deployment_info_spec_paused{name="d",namespace="n"} 1
# HELP mcm_machine_deployment_info_spec_progress_deadline_seconds Seconds for which a rollout may make no progress.
# TYPE mcm_machine_deployment_info_spec_progress_deadline_seconds gauge
mcm_machine_deployment_info_spec_progress_deadline_seconds{name="d",namespace="n"} 60
# HELP mcm_machine_deployment_info_spec_replicas Machines that are wanted.
# TYPE mcm_machine_deployment_info_spec_replicas gauge
mcm_machine_deployment_info_spec_replicas{name="d",namespace="n"} 6
# HELP mcm_machine_deployment_info_spec_revision_history_limit Old MachineSets that are kept.
# TYPE mcm_machine_deployment_info_spec_revision_history_limit gauge
mcm_machine_deployment_info_spec_revision_history_limit{name="d",namespace="n"} 2
# HELP mcm_machine_deployment_info_spec_rollback_to_revision Revision to go back to.
# TYPE mcm_machine_deployment_info_spec_rollback_to_revision gauge
mcm_machine_deployment_info_spec_rollback_to_revision{name="d",namespace="n"} 7
# HELP mcm_machine_deployment_info_spec_rolling_update_max_surge Machines that a rolling update may have beyond the replicas.
# TYPE mcm_machine_deployment_info_spec_rolling_update_max_surge gauge
mcm_machine_deployment_info_spec_rolling_update_max_surge{name="d",namespace="n"} 2
# HELP mcm_machine_deployment_info_spec_rolling_update_max_unavailable Replicas that a rolling update may have missing.
# TYPE mcm_machine_deployment_info_spec_rolling_update_max_unavailable gauge
mcm_machine_deployment_info_spec_rolling_update_max_unavailable{name="d",namespace="n"} 1
# HELP mcm_machine_deployment_items_total MachineDeployments.
# TYPE mcm_machine_deployment_items_total gauge
mcm_machine_deployment_items_total 1
# HELP mcm_machine_deployment_status_available_replicas Machines that are available.
# TYPE mcm_machine_deployment_status_available_replicas gauge
mcm_machine_deployment_status_available_replicas{name="d",namespace="n"} 4
# HELP mcm_machine_deployment_status_collision_count Number of times the name of a new MachineSet was taken.
# TYPE mcm_machine_deployment_status_collision_count gauge
mcm_machine_deployment_status_collision_count{name="d",namespace="n"} 3
# HELP mcm_machine_deployment_status_condition A condition: 1 is True, 0 False, 2 Unknown.
# TYPE mcm_machine_deployment_status_condition gauge
mcm_machine_deployment_status_condition{condition="Available",name="d",namespace="n"} 1
mcm_machine_deployment_status_condition{condition="Progressing",name="d",namespace="n"} 2
mcm_machine_deployment_status_condition{condition="Valid",name="d",namespace="n"} 0
# HELP mcm_machine_deployment_status_ready_replicas Machines that run.
# TYPE mcm_machine_deployment_status_ready_replicas gauge
mcm_machine_deployment_status_ready_replicas{name="d",namespace="n"} 3
# HELP mcm_machine_deployment_status_replicas Machines that exist.
# TYPE mcm_machine_deployment_status_replicas gauge
mcm_machine_deployment_status_replicas{name="d",namespace="n"} 7
# HELP mcm_machine_deployment_status_unavailable_replicas Machines that its MachineSets should have and that are not available.
# TYPE mcm_machine_deployment_status_unavailable_replicas gauge
mcm_machine_deployment_status_unavailable_replicas{name="d",namespace="n"} 2
# HELP mcm_machine_deployment_status_updated_replicas Machines of the current template.
# TYPE mcm_machine_deployment_status_updated_replicas gauge
mcm_machine_deployment_status_updated_replicas{name="d",namespace="n"} 5
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
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
		Name: "d", Namespace: "n", ResourceVersion: "1", CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	}}
	surge, unavailable := intstr.Parse("25%"), intstr.Parse("25%")
	d.Spec = v1alpha1.MachineDeploymentSpec{
		Replicas: 6, MinReadySeconds: 500, Paused: true, RevisionHistoryLimit: new(int32(2)), ProgressDeadlineSeconds: new(int32(60)),
		RollbackTo: &v1alpha1.RollbackConfig{Revision: 7},
		Strategy: v1alpha1.MachineDeploymentStrategy{
			Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
			RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
				UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &surge, MaxUnavailable: &unavailable},
			},
		},
	}
	d.Status = v1alpha1.MachineDeploymentStatus{
		Replicas: 7, UpdatedReplicas: 5, ReadyReplicas: 3, AvailableReplicas: 4, UnavailableReplicas: 2, CollisionCount: new(int32(3)),
		Conditions: []v1alpha1.MachineDeploymentCondition{
			{Type: v1alpha1.MachineDeploymentAvailable, Status: "True"},
			{Type: v1alpha1.MachineDeploymentValid, Status: "False"},
			{Type: v1alpha1.MachineDeploymentProgressing, Status: "Unknown"},
			{Type: v1alpha1.MachineDeploymentProgressing, Status: "True"}, // written by another client
		},
		FailedMachines: []*v1alpha1.MachineSummary{{
			Name: "m", ProviderID: "cloud:///1", OwnerRef: "set",
			LastOperation: v1alpha1.LastOperation{State: v1alpha1.MachineStateFailed, Type: v1alpha1.MachineOperationCreate},
		}},
	}
	view.Deployments.Apply(d, false)
	expect(scraped)

	acts = false // and so it may be another replica's
	expect("")
	acts = true

	// It is gone, or another replica's.
	view.Deployments.Remove(objectcache.Key(d), "")
	expect(`
# HELP mcm_machine_deployment_items_total MachineDeployments.
# TYPE mcm_machine_deployment_items_total gauge
mcm_machine_deployment_items_total 0
`)

	// Fields that are not set have no metric.
	d = d.DeepCopy()
	d.Spec = v1alpha1.MachineDeploymentSpec{Strategy: v1alpha1.MachineDeploymentStrategy{Type: v1alpha1.RecreateMachineDeploymentStrategyType}}
	d.Status = v1alpha1.MachineDeploymentStatus{}
	view.Deployments.Apply(d, false)
	silent := []string{
		"info_spec_rolling_update_max_surge", "info_spec_rolling_update_max_unavailable", "info_spec_revision_history_limit",
		"info_spec_progress_deadline_seconds", "info_spec_rollback_to_revision", "status_collision_count", "failed_machines",
	}
	for _, name := range silent {
		if n, err := testutil.GatherAndCount(registry, "mcm_machine_deployment_"+name); n > 0 || err != nil {
			t.Errorf("%s is reported %d times, %v", name, n, err)
		}
	}
}
