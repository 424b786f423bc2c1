package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
)

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func limits() Limits {
	return Limits{
		CreationTimeout: 20 * time.Minute, HealthTimeout: 10 * time.Minute, ResourceExhaustedRetry: 10 * time.Minute,
		NodeConditions: []string{"DiskPressure"}, PreserveTimeout: 96 * time.Hour, InPlaceUpdateTimeout: 20 * time.Minute,
		Drain: drain.Settings{Timeout: drainTimeout},
	}
}

// fresh is the world of a machine that was just created and whose inputs are all right.
func fresh(change ...func(*World)) World {
	w := World{
		Now: born, Limits: limits(),
		Machine: &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{
				Name: "m", Namespace: "n", UID: "u", CreationTimestamp: metav1.NewTime(born), Finalizers: []string{v1alpha1.FinalizerName},
			},
			Spec: v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
		},
		Class: ClassFact{
			Class: &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, HasFinalizers: true, Fields: FieldsFact{Read: true},
		},
		Secret: SecretFact{Read: true, UserData: []byte("boot with <<BOOTSTRAP_TOKEN>>"), Versions: "1"},
	}
	for _, c := range change {
		c(&w)
	}
	return w
}

func vm(state VMState) func(*World) {
	return func(w *World) {
		w.VM = VMFact{State: state, VM: driver.VM{ProviderID: "cloud:///i-1", NodeName: "m"}}
		if state == VMAbsent || state == VMUnknown {
			w.VM.VM = driver.VM{}
		}
	}
}

// created is a machine whose VM was written down.
func created(w *World) {
	w.Machine.Spec.ProviderID = "cloud:///i-1"
	w.Machine.Labels = map[string]string{v1alpha1.LabelNode: "m"}
	w.Machine.Status.CurrentStatus.Phase = v1alpha1.MachinePending
	w.Machine.Status.LastOperation = v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateProcessing, LastUpdateTime: metav1.NewTime(born),
	}
}

// joined is a machine that runs.
func joined(w *World) {
	w.Machine.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
	w.Machine.Status.LastOperation.State = v1alpha1.MachineStateSuccessful
}

func node(change ...func(*corev1.Node)) func(*World) {
	return func(w *World) {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "m", Labels: map[string]string{v1alpha1.LabelMachineName: "m"}, Finalizers: []string{v1alpha1.NodeFinalizerName},
				Annotations: map[string]string{v1alpha1.AnnotationMachine: "n/m/u"},
			},
			Spec:   corev1.NodeSpec{ProviderID: "cloud:///i-1"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		for _, c := range change {
			c(n)
		}
		w.Node = NodeFact{State: NodePresent, Node: n}
	}
}
