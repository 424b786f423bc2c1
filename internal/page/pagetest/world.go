package pagetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/model"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

const (
	inNamespaces, pools, slots, inReplicas = 5, 40, 256, 4
	fleetName                              = "fleet"
)

// World is a source of the page with a generated fleet. NewWorld returns one. It is safe for
// concurrent use.
type World struct {
	mu      sync.Mutex
	in      model.Input
	changes uint64
	runs    int
}

// Run counts that the page watches, until ctx ends.
func (w *World) Run(ctx context.Context) {
	w.count(1)
	<-ctx.Done()
	w.count(-1)
}

func (w *World) count(more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs += more
}

// Watched returns how many times the world is watched now.
func (w *World) Watched() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs
}

// Changes is page.Source's.
func (w *World) Changes() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes
}

// Read is page.Source's.
func (w *World) Read() model.Input {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.in
}

// Change changes the input. What has been read before must not be changed, but replaced.
func (w *World) Change(change func(in *model.Input)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.in)
	w.changes++
}

// Step has some machines of a rollout go on: those after the number of the step.
func (w *World) Step(step, machines int, now time.Time) {
	w.Change(func(in *model.Input) {
		in.Now = now
		all := append([]*v1alpha1.Machine{}, in.Machines...)
		for i := range machines {
			at := (step*machines + i) % len(all)
			m := all[at].DeepCopy()
			switch m.Status.CurrentStatus.Phase { //nolint:exhaustive // others stay
			case v1alpha1.MachineRunning:
				m.Status.CurrentStatus.Phase = v1alpha1.MachinePending
			case v1alpha1.MachinePending:
				m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
			}
			m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(now)
			all[at] = m
		}
		in.Machines = all
	})
}

// NewWorld returns a fleet with so many machines.
func NewWorld(machines int, now time.Time) *World {
	in := model.Input{Replica: "fleet-1", Version: "v0.1.0", Loaded: true, Since: now.Add(-10 * time.Minute)}
	in.Snapshot = view.Snapshot{Now: now, FleetName: fleetName, Timeouts: view.DefaultTimeouts()}
	w := builder{in: &in, now: now}
	w.leases()
	for i := range pools {
		w.pool(i, machines/pools+btoi(i < machines%pools))
	}
	in.Targets = []view.TargetRead{
		{Namespace: "shoot--a--eu1", Asked: true},
		{Namespace: "shoot--a--eu2", Asked: true},
		{Namespace: "shoot--b--us1", Asked: true, Err: errors.New("its API server has not answered this replica for some time")},
	}
	slot, epoch := 17, int64(4)
	for i, rule := range []receipt.Rule{receipt.ScaledDown, receipt.Unhealthy, receipt.Orphaned} {
		in.Receipts = append(in.Receipts, receipt.Receipt{
			Time: now.Add(-time.Duration(9-i) * time.Minute), Outcome: receipt.Accepted, Reason: receipt.Because(rule, "3 of 2 replicas"),
			Object: receipt.Object{
				Kind: receipt.Machine, Namespace: "shoot--a--eu1", Name: fmt.Sprintf("worker-0-gone-%d", i), UID: types.UID(rune('a' + i)),
			},
			By: receipt.By{Replica: "fleet-1", Session: "fleet-1_aaaaa", Slot: &slot, Epoch: &epoch},
		})
	}
	return &World{in: in}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

type builder struct {
	in  *model.Input
	now time.Time
}

func (w builder) ago(d time.Duration) metav1.Time { return metav1.NewTime(w.now.Add(-d)) }

func (w builder) lease(name, kind, holder string, renewed time.Duration, annotations map[string]string) {
	at := metav1.NewMicroTime(w.now.Add(-renewed))
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: fleetName + "-" + name, UID: types.UID(name), Annotations: annotations,
		Labels: map[string]string{v1alpha1.LabelFleet: fleetName, v1alpha1.LabelLease: kind},
	}, Spec: coordinationv1.LeaseSpec{RenewTime: &at, AcquireTime: &at}}
	if holder != "" {
		l.Spec.HolderIdentity = &holder
	}
	w.in.Leases = append(w.in.Leases, l)
}

// leases has four replicas: one leads, one is silent, and one is new and gets slots.
func (w builder) leases() {
	w.lease("leader", "", "fleet-0_aaaaa", time.Second, map[string]string{
		v1alpha1.AnnotationSlots: strconv.Itoa(slots), v1alpha1.AnnotationTakeOver: "15s", v1alpha1.AnnotationShardBy: "deployment",
	})
	for i := range inReplicas {
		name := fmt.Sprintf("fleet-%d", i)
		renewed := time.Second
		if i == 2 {
			renewed = 20 * time.Second
		}
		w.lease("session-"+name, v1alpha1.LeaseOfSession, name+"_aaaaa", renewed, map[string]string{
			v1alpha1.AnnotationFitness: `{"acts":true,"observes":true}`,
		})
	}
	for i := range slots {
		holder, assigned := i%3, i%3
		if i%11 == 0 && holder != 2 {
			assigned = 3
		}
		name := fmt.Sprintf("slot-%03d", i)
		annotations := map[string]string{
			v1alpha1.AnnotationAssignedReplica: fmt.Sprintf("fleet-%d", assigned), v1alpha1.AnnotationWeight: "40",
			v1alpha1.AnnotationLeaseUID: name,
		}
		session := fmt.Sprintf("fleet-%d_aaaaa", holder)
		if i == 200 {
			session = ""
		}
		w.lease(name, v1alpha1.LeaseOfSlot, session, time.Hour, annotations)
	}
}

func namespaceOf(pool int) string {
	return []string{"shoot--a--eu1", "shoot--a--eu2", "shoot--b--us1", "shoot--b--us2", "shoot--c--ap1"}[pool%inNamespaces]
}

// pool adds a MachineDeployment with a set. The first ones have trouble: a stalled rollout, an open
// circuit breaker with a dead zone, a target cluster that is away.
func (w builder) pool(number, machines int) {
	namespace, name := namespaceOf(number), fmt.Sprintf("worker-%d", number)
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("d-" + name), Generation: 2, CreationTimestamp: w.ago(48 * time.Hour),
		Labels: map[string]string{v1alpha1.LabelSlot: strconv.Itoa(number)},
	}}
	d.Spec.Replicas = int32(machines)
	d.Spec.Template.Spec.Class.Name = name
	d.Status = v1alpha1.MachineDeploymentStatus{
		ObservedGeneration: 2, Replicas: int32(machines), UpdatedReplicas: int32(machines), AvailableReplicas: int32(machines),
		ReadyReplicas: int32(machines),
	}
	condition := func(kind v1alpha1.MachineDeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
		d.Status.Conditions = append(d.Status.Conditions, v1alpha1.MachineDeploymentCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: w.ago(12 * time.Minute),
		})
	}
	switch number {
	case 0:
		d.Status.UpdatedReplicas, d.Status.AvailableReplicas = int32(machines/3), int32(machines-2)
		condition(v1alpha1.MachineDeploymentRolloutStalled, corev1.ConditionTrue, "DrainBlocked",
			"the drain of Node worker-0-00002 is held by PodDisruptionBudget shop/cart")
	case 1:
		condition(v1alpha1.MachineDeploymentCircuitBreakerOpen, corev1.ConditionTrue, "ZoneUnhealthy",
			"83 of 84 machines in zone eu-2c are not Ready; none of them is replaced for its health")
	case 2:
		condition(v1alpha1.MachineDeploymentValid, corev1.ConditionFalse, v1alpha1.ReasonTargetUnavailable,
			"the API server of the target cluster does not answer: dial tcp 10.1.2.3:443: i/o timeout")
	case 3:
		d.Status.UpdatedReplicas = int32(machines / 2)
	}
	if number != 0 && number != 3 {
		condition(v1alpha1.MachineDeploymentProgressing, corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable, "the new set is available")
	}
	set := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name + "-6f9c8", UID: types.UID("s-" + name), OwnerReferences: owner("MachineDeployment", d), Generation: 1,
		Labels: d.Labels, CreationTimestamp: w.ago(48 * time.Hour), Annotations: map[string]string{v1alpha1.AnnotationRevision: "1"},
	}}
	set.Spec.Replicas, set.Spec.Template = d.Spec.Replicas, d.Spec.Template
	set.Status = v1alpha1.MachineSetStatus{Replicas: d.Spec.Replicas, AvailableReplicas: d.Spec.Replicas, ObservedGeneration: 1}
	class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if number == 4 {
		class.Annotations = map[string]string{
			v1alpha1.AnnotationOrphans: `{"scope":"x","suspects":{"a":{"age":840},"b":{"age":60,"approved":true}}}`,
		}
	}
	w.in.Deployments, w.in.Sets, w.in.Classes = append(w.in.Deployments, d), append(w.in.Sets, set), append(w.in.Classes, class)
	for i := range machines {
		w.in.Machines = append(w.in.Machines, w.machine(number, i, set))
	}
}

func owner(kind string, o metav1.Object) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes,
	}}
}

func (w builder) machine(pool, i int, set *v1alpha1.MachineSet) *v1alpha1.Machine {
	name := fmt.Sprintf("worker-%d-%05d", pool, i)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: set.Namespace, Name: name, UID: types.UID(name), OwnerReferences: owner("MachineSet", set),
		CreationTimestamp: w.ago(24 * time.Hour),
		Labels:            map[string]string{v1alpha1.LabelSlot: strconv.Itoa(pool), v1alpha1.LabelNode: name},
	}}
	m.Spec.Class.Name = set.Spec.Template.Spec.Class.Name
	m.Spec.NodeTemplateSpec.Labels = map[string]string{corev1.LabelTopologyZone: fmt.Sprintf("eu-%d%c", pool%2+1, 'a'+rune(i%3))}
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{
		Phase: v1alpha1.MachineRunning, LastUpdateTime: w.ago(time.Duration(i%50+1) * time.Hour / 3),
	}
	last := func(kind v1alpha1.MachineOperationType, state v1alpha1.MachineState, text string) {
		m.Status.LastOperation = v1alpha1.LastOperation{Type: kind, State: state, Description: text, LastUpdateTime: w.ago(4 * time.Minute)}
	}
	last(v1alpha1.MachineOperationHealthCheck, v1alpha1.MachineStateSuccessful, "Node "+name+" is Ready")
	ending := func(since time.Duration) {
		at := w.ago(since)
		m.DeletionTimestamp = &at
		m.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
	}
	fresh := func(phase v1alpha1.MachinePhase) {
		m.Status.CurrentStatus.Phase, m.Status.CurrentStatus.LastUpdateTime = phase, w.ago(time.Duration(i%14)*time.Minute)
	}
	switch {
	case pool == 0 && i == 2:
		ending(25 * time.Minute)
		last(v1alpha1.MachineOperationDelete, v1alpha1.MachineStateFailed,
			"Draining Node "+name+": 2 pods left; shop/cart-0 and shop/cart-1 held by PodDisruptionBudget shop/cart, "+
				"although all pods there are healthy: change what it allows")
	case pool == 0 && i%19 == 3:
		ending(2 * time.Minute)
		last(v1alpha1.MachineOperationDelete, v1alpha1.MachineStateProcessing, "Draining Node "+name+": 5 pods left")
	case pool == 0 && i%11 == 4, pool == 3 && i%9 == 1:
		fresh(v1alpha1.MachinePending)
		last(v1alpha1.MachineOperationCreate, v1alpha1.MachineStateProcessing, "waiting for Node "+name+" to join")
	case pool == 1 && i%3 == 2:
		m.Status.CurrentStatus.Phase = v1alpha1.MachineUnknown
		last(v1alpha1.MachineOperationHealthCheck, v1alpha1.MachineStateProcessing,
			"Node "+name+" is not Ready: NodeStatusUnknown: Kubelet stopped posting node status.")
	case pool == 4 && i%40 == 7:
		m.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		last(v1alpha1.MachineOperationCreate, v1alpha1.MachineStateFailed, "the quota of the account is exhausted: Standard_D4s_v5 in eu-1")
		m.Status.LastOperation.ErrorCode = "ResourceExhausted"
	case pool == 5 && i%60 == 9:
		m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
		last(v1alpha1.MachineOperationHealthCheck, v1alpha1.MachineStateFailed, "<script>alert(1)</script> Node "+name+" was not Ready for 10m0s")
	case pool == 6 && i%13 == 5:
		fresh(v1alpha1.MachineInPlaceUpdating)
		last(v1alpha1.MachineOperationInPlaceUpdate, v1alpha1.MachineStateProcessing, "the agent updates the Node")
	}
	return m
}
