package lifecycle

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func limits() Limits {
	return Limits{CreationTimeout: 20 * time.Minute, ResourceExhaustedRetry: 10 * time.Minute, NodeConditions: []string{"DiskPressure"}}
}

// fresh is the world of a machine that was just made and whose inputs are all right.
func fresh(change ...func(*World)) World {
	w := World{
		Now: born, Limits: limits(),
		Machine: &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{
				Name: "m", Namespace: "n", UID: "u", CreationTimestamp: metav1.NewTime(born), Finalizers: []string{v1alpha1.FinalizerName},
			},
			Spec: v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "c"}},
		},
		Class:  ClassFact{Class: &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, Held: true},
		Secret: SecretFact{Read: true, UserData: []byte("boot")},
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

// made is a machine whose VM was written down.
func made(w *World) {
	w.Machine.Spec.ProviderID = "cloud:///i-1"
	w.Machine.Labels = map[string]string{v1alpha1.LabelNode: "m"}
	w.Machine.Status.CurrentStatus.Phase = v1alpha1.MachinePending
	w.Machine.Status.LastOperation = v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateProcessing, LastUpdateTime: metav1.NewTime(born),
	}
}

func phase(p v1alpha1.MachinePhase) func(*World) {
	return func(w *World) { w.Machine.Status.CurrentStatus.Phase = p }
}

// joined is a machine that runs.
func joined(w *World) {
	w.Machine.Status.CurrentStatus.Phase = v1alpha1.MachineRunning
	w.Machine.Status.LastOperation.State = v1alpha1.MachineStateSuccessful
}

func failed(code driver.Code) func(*World) {
	return func(w *World) { w.Failure = &Failure{Code: code, Message: "no"} }
}

func lastFailed(op v1alpha1.MachineOperationType, code driver.Code, since time.Time) func(*World) {
	return func(w *World) {
		w.Machine.Status.CurrentStatus.Phase = v1alpha1.MachineCrashLoopBackOff
		w.Machine.Status.LastOperation = v1alpha1.LastOperation{
			Type: op, State: v1alpha1.MachineStateFailed, ErrorCode: code.String(), LastUpdateTime: metav1.NewTime(since),
		}
	}
}

func at(d time.Duration) func(*World) { return func(w *World) { w.Now = born.Add(d) } }

func node(change ...func(*corev1.Node)) func(*World) {
	return func(w *World) {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "m", Labels: map[string]string{v1alpha1.LabelMachineName: "m"}, Finalizers: []string{v1alpha1.NodeFinalizerName},
			},
			Spec:   corev1.NodeSpec{ProviderID: "cloud:///zone/i-1"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		for _, c := range change {
			c(n)
		}
		w.Node = NodeFact{State: NodePresent, Node: n}
	}
}

func deleted(w *World) {
	now := metav1.NewTime(born)
	w.Machine.DeletionTimestamp = &now
	w.Machine.Status.CurrentStatus.Phase = v1alpha1.MachineTerminating
	w.Machine.Status.LastOperation = v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDelete, State: v1alpha1.MachineStateProcessing}
}

func TestDecide(t *testing.T) {
	notReady := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	for _, tc := range []struct {
		name   string
		given  []func(*World)
		want   Action
		phase  v1alpha1.MachinePhase // "" means: not looked at
		code   string
		wake   time.Duration
		reason string
	}{
		{name: "no finalizer", given: []func(*World){func(w *World) { w.Machine.Finalizers = nil }}, want: Save},
		{name: "secrets not read", given: []func(*World){func(w *World) { w.Secret = SecretFact{} }}, want: ReadSecret},
		{name: "class not held", given: []func(*World){func(w *World) { w.Class.Held = false }}, want: Hold},
		{name: "cloud not asked", want: FindVM},
		{name: "no VM, no token", given: []func(*World){vm(VMAbsent)}, want: MakeToken},
		{name: "no VM, token", given: []func(*World){vm(VMAbsent), func(w *World) { w.Token = TokenPresent }}, want: CreateVM},
		{name: "VM made", given: []func(*World){vm(VMUninitialized)}, want: InitializeVM},
		{name: "VM complete", given: []func(*World){vm(VMPresent)}, want: Save, phase: v1alpha1.MachinePending},
		{name: "the VM that spec names is gone", given: []func(*World){made, phase(""), vm(VMAbsent)}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "Aborted", wake: 5 * time.Second, reason: v1alpha1.EventCreateFailed},

		{name: "class missing", given: []func(*World){func(w *World) { w.Class = ClassFact{} }}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "NotFound", reason: v1alpha1.EventCreateFailed},
		{name: "class missing for a day", given: []func(*World){func(w *World) { w.Class = ClassFact{} }, at(24 * time.Hour)}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "NotFound", reason: v1alpha1.EventCreateFailed},
		{name: "class without a name", given: []func(*World){func(w *World) { w.Machine.Spec.Class.Name = "" }}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "InvalidArgument", reason: v1alpha1.EventCreateFailed},
		{name: "class is being deleted", given: []func(*World){func(w *World) {
			now := metav1.NewTime(born)
			w.Class.Class.DeletionTimestamp = &now
		}}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "FailedPrecondition", reason: v1alpha1.EventCreateFailed},
		{name: "class is being deleted and held", given: []func(*World){func(w *World) {
			now := metav1.NewTime(born)
			w.Class.Class.DeletionTimestamp, w.Class.Class.Finalizers = &now, []string{v1alpha1.FinalizerName}
		}}, want: FindVM},
		{name: "bad nodeTemplate", given: []func(*World){func(w *World) { w.Class.Class.NodeTemplate = &v1alpha1.NodeTemplate{} }}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "InvalidArgument", reason: v1alpha1.EventCreateFailed},
		{name: "unknown provider", given: []func(*World){func(w *World) { w.Class.ProviderError = errors.New("no driver") }}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "InvalidArgument", reason: v1alpha1.EventCreateFailed},
		{name: "secret missing", given: []func(*World){func(w *World) { w.Secret = SecretFact{Read: true, Missing: "s"} }}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "NotFound", wake: SecretRetry, reason: v1alpha1.EventCreateFailed},
		{name: "no user data", given: []func(*World){func(w *World) { w.Secret.UserData = nil }}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "InvalidArgument", wake: SecretRetry, reason: v1alpha1.EventCreateFailed},

		{name: "create fails", given: []func(*World){vm(VMAbsent), failed(driver.Internal)}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "Internal", wake: 5 * time.Second, reason: v1alpha1.EventCreateFailed},
		{name: "create fails again, no second Event", given: []func(*World){lastFailed("Create", driver.Internal, born), at(5 * time.Second), vm(VMAbsent), failed(driver.Internal)}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "Internal", wake: 10 * time.Second},
		{name: "no capacity", given: []func(*World){vm(VMAbsent), failed(driver.ResourceExhausted)}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "ResourceExhausted", wake: 10 * time.Minute, reason: v1alpha1.EventCreateFailed},
		{name: "throttled", given: []func(*World){func(w *World) {
			w.Failure = &Failure{Code: driver.Unavailable, RetryAfter: time.Minute}
		}}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "Unavailable", wake: time.Minute, reason: v1alpha1.EventCreateFailed},
		{name: "time is over", given: []func(*World){at(20 * time.Minute), failed(driver.Internal)}, want: Rest, phase: v1alpha1.MachineFailed, code: "Internal", reason: v1alpha1.EventCreateFailed},
		{name: "time is over, a replacement would fare no better", given: []func(*World){at(20 * time.Minute), failed(driver.ResourceExhausted)}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "ResourceExhausted", wake: 10 * time.Minute, reason: v1alpha1.EventCreateFailed},
		{name: "waiting", given: []func(*World){lastFailed("Create", driver.Internal, born), at(time.Second)}, want: Rest, wake: 4 * time.Second},
		{name: "waiting, by memory", given: []func(*World){lastFailed("Create", driver.Internal, born), func(w *World) { w.RetryAt = born.Add(time.Second) }}, want: Rest, wake: time.Second},
		{name: "waited", given: []func(*World){lastFailed("Create", driver.Internal, born), at(time.Second), func(w *World) { w.RetryAt = born.Add(time.Second) }}, want: FindVM},
		{name: "waiting is pointless with another class", given: []func(*World){lastFailed("Create", driver.Internal, born), func(w *World) { w.InputsChanged = true }}, want: FindVM},
		{name: "a new process tries what users mend at once", given: []func(*World){lastFailed("Create", driver.InvalidArgument, born)}, want: FindVM},
		{name: "time is over while waiting", given: []func(*World){lastFailed("Create", driver.Internal, born), at(20 * time.Minute)}, want: Rest, phase: v1alpha1.MachineFailed, code: "Internal"},
		{name: "failed machines are given up", given: []func(*World){lastFailed("Create", driver.Internal, born), phase(v1alpha1.MachineFailed)}, want: Rest, code: "Internal"},

		{name: "Node awaited", given: []func(*World){made}, want: Rest, phase: v1alpha1.MachinePending, wake: 20 * time.Minute},
		{name: "Node awaited for too long, by the cache", given: []func(*World){made, at(20 * time.Minute)}, want: FindNode},
		{name: "Node awaited for too long", given: []func(*World){made, at(20 * time.Minute), func(w *World) { w.Node.State = NodeAbsent }}, want: Rest, phase: v1alpha1.MachineFailed, code: "DeadlineExceeded", reason: v1alpha1.EventJoinTimedOut},
		{name: "Node in no slot yet", given: []func(*World){made, func(w *World) { w.Node.State = NodeNamed }}, want: FindNode},
		{name: "VM found, Node of its name in no slot", given: []func(*World){vm(VMPresent), func(w *World) { w.Node.State = NodeNamed }}, want: FindNode},
		{name: "Node ready, not claimed", given: []func(*World){made, node(func(n *corev1.Node) { n.Finalizers = nil })}, want: ClaimNode},
		{name: "Node in another slot", given: []func(*World){made, node(func(n *corev1.Node) { n.Labels[v1alpha1.LabelSlot] = "8" })}, want: ClaimNode},
		{name: "running, Node not claimed", given: []func(*World){made, joined, node(func(n *corev1.Node) { n.Finalizers = nil })}, want: ClaimNode},
		{name: "Node neither ready nor claimed", given: []func(*World){made, node(notReady, func(n *corev1.Node) { n.Finalizers = nil })}, want: ClaimNode},
		{name: "Node of another VM", given: []func(*World){made, node(func(n *corev1.Node) { n.Spec.ProviderID = "cloud:///i-2" })}, want: Rest, phase: v1alpha1.MachineCrashLoopBackOff, code: "Internal", wake: 20 * time.Minute, reason: v1alpha1.EventCreateFailed},
		{name: "Node not ready yet", given: []func(*World){made, node(notReady)}, want: Rest, phase: v1alpha1.MachinePending, wake: 20 * time.Minute},
		{name: "critical components not ready yet", given: []func(*World){made, node(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintCriticalComponentsNotReady}}
		})}, want: Rest, phase: v1alpha1.MachinePending, wake: 20 * time.Minute},
		{name: "Node ready, claimed before, token left", given: []func(*World){made, node()}, want: DropToken},
		{name: "joined", given: []func(*World){made, node(), func(w *World) { w.Token = TokenAbsent }}, want: Save, phase: v1alpha1.MachineRunning, reason: v1alpha1.EventJoined},
		{name: "running", given: []func(*World){made, phase(v1alpha1.MachineRunning), node()}, want: Rest, phase: v1alpha1.MachineRunning},
		{name: "running, Node not ready", given: []func(*World){made, phase(v1alpha1.MachineRunning), node(notReady)}, want: Rest, phase: v1alpha1.MachineUnknown, reason: v1alpha1.EventNodeUnhealthy},
		{name: "running, bad condition", given: []func(*World){made, phase(v1alpha1.MachineRunning), node(func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "DiskPressure", Status: corev1.ConditionTrue})
		})}, want: Rest, phase: v1alpha1.MachineUnknown, reason: v1alpha1.EventNodeUnhealthy},
		{name: "running, Node not in the cache", given: []func(*World){made, phase(v1alpha1.MachineRunning)}, want: FindNode},
		{name: "running, Node gone", given: []func(*World){made, phase(v1alpha1.MachineRunning), func(w *World) { w.Node.State = NodeAbsent }}, want: Rest, phase: v1alpha1.MachineUnknown, reason: v1alpha1.EventNodeUnhealthy},
		{name: "unknown, Node ready again", given: []func(*World){made, phase(v1alpha1.MachineUnknown), func(w *World) {
			w.Machine.Status.LastOperation.Type = v1alpha1.MachineOperationHealthCheck
		}, node()}, want: Save, phase: v1alpha1.MachineRunning, reason: v1alpha1.EventNodeHealthy},
		{name: "Node is being deleted", given: []func(*World){made, phase(v1alpha1.MachineRunning), node(func(n *corev1.Node) {
			now := metav1.NewTime(born)
			n.DeletionTimestamp = &now
		})}, want: DeleteMachine, reason: v1alpha1.EventNodeDeleted},

		{name: "deletion, never joined", given: []func(*World){made, deleted, phase(v1alpha1.MachinePending), func(w *World) {
			w.Machine.Status.LastOperation.Type = v1alpha1.MachineOperationCreate
		}}, want: DropToken},
		{name: "deletion, token left", given: []func(*World){deleted, made}, want: DropToken},
		{name: "deletion, Node in no slot", given: []func(*World){made, deleted, vm(VMAbsent), func(w *World) { w.Node.State = NodeNamed }}, want: FindNode},
		{name: "deletion begins", given: []func(*World){made, deleted, phase(v1alpha1.MachineRunning), node()}, want: Save, phase: v1alpha1.MachineTerminating},
		{name: "deletion, VM", given: []func(*World){made, deleted}, want: DeleteVM},
		{name: "deletion, VM ending", given: []func(*World){made, deleted, vm(VMEnding)}, want: Rest, wake: EndingRetry},
		{name: "deletion, VM not written down", given: []func(*World){deleted}, want: FindVM},
		{name: "deletion, VM found", given: []func(*World){deleted, vm(VMPresent)}, want: Save},
		{name: "deletion, VM gone", given: []func(*World){made, deleted, vm(VMAbsent)}, want: FindNode},
		{name: "deletion, Node left", given: []func(*World){made, deleted, vm(VMAbsent), node()}, want: DeleteNode},
		{name: "deletion, foreign Node left", given: []func(*World){made, deleted, vm(VMAbsent), node(func(n *corev1.Node) { n.Spec.ProviderID = "cloud:///i-2" })}, want: Rest},
		{name: "deletion, all gone", given: []func(*World){made, deleted, vm(VMAbsent), func(w *World) { w.Node.State = NodeAbsent }}, want: Rest},
		{name: "deletion fails", given: []func(*World){made, deleted, failed(driver.Internal)}, want: Rest, code: "Internal", wake: 5 * time.Second, reason: v1alpha1.EventDeleteFailed},
		{name: "deletion, class gone", given: []func(*World){made, deleted, func(w *World) { w.Class = ClassFact{} }}, want: Rest, code: "NotFound", reason: v1alpha1.EventDeleteFailed},
		{name: "deletion, class never was", given: []func(*World){deleted, func(w *World) { w.Class = ClassFact{} }}, want: Rest},
		{name: "deletion, class gone, VM perhaps made", given: []func(*World){deleted, func(w *World) {
			w.Class = ClassFact{}
			w.Machine.Annotations = map[string]string{v1alpha1.AnnotationCreateSent: "true"}
		}}, want: Rest, code: "NotFound", reason: v1alpha1.EventDeleteFailed},
		{name: "deletion, no VM, Node of somebody else's", given: []func(*World){deleted, vm(VMAbsent), node(), func(w *World) {
			w.Machine.Labels = map[string]string{v1alpha1.LabelNode: "m"}
		}}, want: Rest},
		{name: "failed, no VM, Node of somebody else's", given: []func(*World){phase(v1alpha1.MachineFailed), node(), func(w *World) {
			w.Machine.Labels = map[string]string{v1alpha1.LabelNode: "m"}
		}}, want: Rest, phase: v1alpha1.MachineFailed},
		{name: "VM made after the deadline", given: []func(*World){made, at(21 * time.Minute), func(w *World) {
			w.Machine.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(born.Add(21 * time.Minute))
		}}, want: Rest, phase: v1alpha1.MachinePending, wake: 20 * time.Minute},
		{name: "deletion, secret gone", given: []func(*World){made, deleted, func(w *World) { w.Secret = SecretFact{Read: true, Missing: "s"} }}, want: Rest, code: "NotFound", wake: SecretRetry, reason: v1alpha1.EventDeleteFailed},
		{name: "deletion, finalizer gone", given: []func(*World){made, deleted, func(w *World) { w.Machine.Finalizers = nil }}, want: Rest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := fresh(tc.given...)
			before := w.Machine.DeepCopy()
			v := Decide(w)
			if v.Do != tc.want {
				t.Fatalf("Do = %s, want %s", v.Do, tc.want)
			}
			m := w.Machine
			if v.Machine != nil {
				m = v.Machine
			}
			if got := m.Status.CurrentStatus.Phase; tc.phase != "" && got != tc.phase {
				t.Errorf("phase = %q, want %q", got, tc.phase)
			}
			if got := m.Status.LastOperation.ErrorCode; v.Machine != nil && got != tc.code {
				t.Errorf("errorCode = %q, want %q", got, tc.code)
			}
			if v.Wake != tc.wake {
				t.Errorf("Wake = %s, want %s", v.Wake, tc.wake)
			}
			reason := ""
			if v.Event != nil {
				reason = v.Event.Reason
			}
			if reason != tc.reason {
				t.Errorf("Event = %q, want %q", reason, tc.reason)
			}
			if diff := cmp.Diff(before, w.Machine); diff != "" {
				t.Errorf("Decide has changed the machine that it was given:\n%s", diff)
			}
		})
	}
}

// The autoscaler reads this text, and backs off by the code.
func TestCreateErrorReadsAsTheAutoscalerExpects(t *testing.T) {
	v := Decide(fresh(vm(VMAbsent), failed(driver.ResourceExhausted)))
	op := v.Machine.Status.LastOperation
	want := "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [no]"
	if op.Type != v1alpha1.MachineOperationCreate || op.State != v1alpha1.MachineStateFailed || op.Description != want {
		t.Errorf("lastOperation = %+v", op)
	}
}

func TestEveryBadInputSaysWhatToDo(t *testing.T) {
	for _, change := range []func(*World){
		func(w *World) { w.Class = ClassFact{} },
		func(w *World) { w.Secret = SecretFact{Read: true, Missing: "s"} },
		func(w *World) { w.Secret.UserData = nil },
	} {
		v := Decide(fresh(change))
		text := v.Machine.Status.LastOperation.Description
		if !strings.Contains(text, "create it") && !strings.Contains(text, "add it") {
			t.Errorf("no advice in %q", text)
		}
	}
}

func TestNextAttempt(t *testing.T) {
	for _, tc := range []struct {
		code driver.Code
		now  time.Duration // after the first failure
		want time.Duration
	}{
		{driver.Internal, 0, 5 * time.Second},
		{driver.Internal, 4 * time.Second, 5 * time.Second},
		{driver.Internal, 5 * time.Second, 15 * time.Second},
		{driver.Internal, 16 * time.Second, 35 * time.Second},
		{driver.Internal, 40 * time.Second, 75 * time.Second},
		{driver.Internal, 155 * time.Second, 315 * time.Second},
		{driver.Internal, 315 * time.Second, 495 * time.Second}, // 180 s from here on
		{driver.Internal, 495 * time.Second, 675 * time.Second},
		{driver.ResourceExhausted, 0, 10 * time.Minute},
		{driver.ResourceExhausted, 10 * time.Minute, 20 * time.Minute},
		{driver.ResourceExhausted, 25 * time.Minute, 30 * time.Minute},
	} {
		if got := nextAttempt(born, born.Add(tc.now), tc.code, limits()).Sub(born); got != tc.want {
			t.Errorf("%s, %s after the first failure: next attempt at %s, want %s", tc.code, tc.now, got, tc.want)
		}
	}
	// It ends at once also when the failure is old.
	if got := nextAttempt(born, born.Add(1000*time.Hour), driver.Internal, limits()); !got.After(born.Add(1000 * time.Hour)) {
		t.Errorf("next attempt %s is not after now", got)
	}
}
