package machinedeployment

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// runs adds a machine of the set that has the template of the deployment. It begins to run now.
func (b *bench) runs(name string) {
	b.Helper()
	set := b.current()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: name, Labels: set.Spec.Template.Labels, Finalizers: []string{v1alpha1.FinalizerName},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
	}}
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachineRunning, LastUpdateTime: metav1.Now()}
	apiserver.Add(b.server, m)
}

// current is the set of the highest revision.
func (b *bench) current() (current *v1alpha1.MachineSet) {
	b.Helper()
	for _, set := range b.mine() {
		if set.Annotations[v1alpha1.AnnotationRevision] == b.deployment().Annotations[v1alpha1.AnnotationRevision] {
			return set
		}
	}
	b.Fatalf("none of the sets has the revision of the deployment: %v", b.mine())
	return nil
}

// TestARolloutWaitsForMinReadySeconds where that counts, by the flag or by what the deployment
// says, which goes before: the old machine stays until the new one has run for so long.
func TestARolloutWaitsForMinReadySeconds(t *testing.T) {
	for name, tc := range map[string]struct {
		flag  bool
		value string
		waits bool
	}{
		"as Machine Controller Manager has it":  {false, "", false},
		"the flag":                              {true, "", true},
		"the annotation":                        {false, "true", true},
		"the annotation against the flag":       {true, "false", false},
		"an annotation that means nothing":      {true, "yes, please", true},
		"an annotation that means nothing here": {false, "yes, please", false},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				one, none := intstr.FromInt32(1), intstr.FromInt32(0)
				b.create(func(d *v1alpha1.MachineDeploymentSpec) {
					d.Replicas, d.MinReadySeconds = 1, 500
					d.Strategy = v1alpha1.MachineDeploymentStrategy{
						Type: v1alpha1.RollingUpdateMachineDeploymentStrategyType,
						RollingUpdate: &v1alpha1.RollingUpdateMachineDeployment{
							UpdateConfiguration: v1alpha1.UpdateConfiguration{MaxSurge: &one, MaxUnavailable: &none},
						},
					}
				})
				b.patch(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationCountMinReady, tc.value)
				old := b.current().Name
				b.runs("old")
				b.pass(time.Hour)
				b.patch(`{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
				b.pass(time.Minute)
				b.runs("new")
				size := func() int32 {
					set := apiserver.Read[v1alpha1.MachineSet](b.server, "machinesets", "n", old)
					if set == nil {
						t.Fatal("the old set is gone")
					}
					return set.Spec.Replicas
				}
				b.pass(499 * time.Second)
				if waits := size() == 1; waits != tc.waits {
					t.Errorf("after 499 s the size of the old set is %d; minReadySeconds counts: %v, want %v", size(), waits, tc.waits)
				}
				b.pass(2 * time.Second)
				if size() != 0 {
					t.Errorf("after 501 s the size of the old set is %d", size())
				}
			}, func(_ *bench, cfg *Config) { cfg.CountMinReady = tc.flag })
		})
	}
}
