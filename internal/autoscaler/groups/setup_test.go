package groups_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const stamp = "2026-01-02T03:04:05Z"

// deployment returns a node group of namespace n.
func deployment(name string, replicas int32, limits string, change ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("uid-of-" + name)}}
	d.Spec.Replicas = replicas
	d.Spec.Template.Spec.Class = v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}
	if limits != "" {
		var least, most string
		if _, err := fmt.Sscanf(limits, "%s %s", &least, &most); err != nil {
			panic(err)
		}
		d.Annotations = map[string]string{v1alpha1.AnnotationMinSize: least, v1alpha1.AnnotationMaxSize: most}
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func condition(t v1alpha1.MachineDeploymentConditionType, status corev1.ConditionStatus, reason string) func(*v1alpha1.MachineDeployment) {
	return func(d *v1alpha1.MachineDeployment) {
		d.Status.Conditions = append(d.Status.Conditions, v1alpha1.MachineDeploymentCondition{Type: t, Status: status, Reason: reason})
	}
}

func rolling(d *v1alpha1.MachineDeployment) {
	condition(v1alpha1.MachineDeploymentProgressing, corev1.ConditionTrue, v1alpha1.ReasonMachineSetUpdated)(d)
	d.Status.Replicas, d.Status.UpdatedReplicas = 3, 1
}

// machine returns a machine of a MachineSet. With a phase it has the VM vm://<name>, and a Node of
// its name.
func machine(name, set string, phase v1alpha1.MachinePhase, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{},
	}}
	if set != "" {
		m.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: set, UID: types.UID("uid-of-" + set), Controller: new(true)}}
	}
	m.Status.CurrentStatus.Phase = phase
	m.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
	if phase != "" && phase != v1alpha1.MachineCrashLoopBackOff {
		m.Spec.ProviderID = "vm://" + name
		m.Labels[v1alpha1.LabelNode] = "node-" + name
	}
	if phase == v1alpha1.MachineRunning || phase == v1alpha1.MachineUnknown {
		m.Status.LastOperation.Type = v1alpha1.MachineOperationHealthCheck
	}
	for _, f := range change {
		f(m)
	}
	return m
}

func failing(code string) func(*v1alpha1.Machine) {
	return func(m *v1alpha1.Machine) {
		m.Status.LastOperation = v1alpha1.LastOperation{
			Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateFailed, ErrorCode: code, Description: "the cloud's message",
		}
	}
}

func leaving(m *v1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(now)) }

func marked(m *v1alpha1.Machine) {
	m.Annotations = map[string]string{v1alpha1.AnnotationMarkedForDeletionTime: stamp, v1alpha1.AnnotationPriority: "1"}
}

func preserved(m *v1alpha1.Machine) {
	m.Status.CurrentStatus.PreserveExpiryTime = new(metav1.NewTime(now.Add(time.Hour)))
}

// world is a namespace in which each set <pool>-set belongs to the deployment <pool>.
type world struct {
	deployments []*v1alpha1.MachineDeployment
	machines    []*v1alpha1.Machine
	classes     []*v1alpha1.MachineClass
	held, off   string
}

func (w world) read() *groups.Namespace {
	all := groups.World{Name: "n", Deployments: w.deployments, Classes: w.classes, Held: w.held, Off: w.off, Sets: map[types.UID]types.UID{}}
	for _, d := range w.deployments {
		all.Sets[d.UID+"-set"] = d.UID
	}
	for _, m := range w.machines {
		all.Machines = append(all.Machines, groups.MachineOf(m, now))
	}
	return groups.NewNamespace(all)
}

func (w world) live(i int) groups.Live {
	return groups.Live{Deployment: w.deployments[i], Held: w.held, Off: w.off, Now: now}
}

func nodeOf(name string) groups.Node {
	return groups.Node{Name: "node-" + name, ProviderID: "vm://" + name}
}

// instance is the Node that the autoscaler invents for an instance.
func instance(id string) groups.Node { return groups.Node{Name: id, ProviderID: id} }

func checkCode(t *testing.T, err error, want groups.Code) {
	t.Helper()
	var got groups.Code
	if refusal, ok := errors.AsType[*groups.RefusedError](err); ok {
		got = refusal.Code
	} else if err != nil {
		t.Fatalf("want a RefusedError, got %v", err)
	}
	if got != want {
		t.Errorf("code %d, want %d: %v", got, want, err)
	}
}
