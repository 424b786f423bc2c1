package lifecycle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

func TestTokenLifeIsBounded(t *testing.T) {
	for timeout, want := range map[string]time.Duration{
		"": 20 * time.Minute, "-1h": 10 * time.Minute, "0s": 10 * time.Minute, "30m": 30 * time.Minute, "1h": time.Hour, "876000h": time.Hour,
	} {
		m := &v1alpha1.Machine{}
		if timeout != "" {
			m.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: timeout}
		}
		if got := TokenLife(m, Limits{CreationTimeout: 20 * time.Minute}); got != want {
			t.Errorf("a creation timeout of %q: the token lives for %s, want %s", timeout, got, want)
		}
	}
}

// waitingFor is the world of a machine whose VM was created at minute 0 and whose Node has not
// joined, so many minutes later.
func waitingFor(t *testing.T, timeout time.Duration, minutes int) World {
	t.Helper()
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: "m", CreationTimestamp: metav1.NewTime(start), Finalizers: []string{v1alpha1.FinalizerName},
		Labels: map[string]string{v1alpha1.LabelNode: "m"},
	}}
	m.Spec.ProviderID = "cloud:///i-1"
	m.Status.CurrentStatus = v1alpha1.CurrentStatus{Phase: v1alpha1.MachinePending, LastUpdateTime: metav1.NewTime(start), TimeoutActive: true}
	m.Status.LastOperation = v1alpha1.LastOperation{Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateProcessing}
	return World{
		Now: start.Add(time.Duration(minutes) * time.Minute), Limits: Limits{CreationTimeout: timeout}, Machine: m,
		Node: NodeFact{State: NodeAbsent}, TokenExpiry: start.Add(min(timeout, time.Hour)),
	}
}

func TestATokenIsProlongedWhileItIsNeeded(t *testing.T) {
	for _, tc := range []struct {
		name    string
		timeout time.Duration
		minutes int
		change  func(*World)
		want    Action
		wake    time.Duration // 0: any
	}{
		{"half of its life is left", 3 * time.Hour, 29, nil, Rest, time.Minute},
		{"half of its life is over", 3 * time.Hour, 30, nil, ProlongToken, 0},
		{"it was prolonged in this pass", 3 * time.Hour, 33, func(w *World) {
			w.Token, w.TokenExpiry = TokenPresent,
				w.Now.Add(time.Hour)
		}, Rest, 30 * time.Minute},
		{"it outlives the creation timeout", 20 * time.Minute, 19, nil, Rest, time.Minute},
		{"it outlives a creation timeout of an hour", time.Hour, 59, nil, Rest, time.Minute},
		{"the VM was created late", 20 * time.Minute, 11, func(w *World) {
			w.Machine.CreationTimestamp = metav1.NewTime(w.Now.Add(-time.Hour))
			w.Machine.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(w.Now)
		}, ProlongToken, 0},
		{"another process has created it", 3 * time.Hour, 45, func(w *World) { w.TokenExpiry = time.Time{} }, ProlongToken, 0},
		{"another process has created it not long ago", 3 * time.Hour, 44, func(w *World) { w.TokenExpiry = time.Time{} }, Rest, time.Minute},
		{"another process has created it, and it outlives the creation timeout", time.Hour, 59, func(w *World) {
			w.TokenExpiry = time.Time{}
		}, Rest, time.Minute},
		{"another process has created it, and the VM late", 20 * time.Minute, 4, func(w *World) {
			w.TokenExpiry = time.Time{}
			w.Machine.CreationTimestamp = metav1.NewTime(w.Now.Add(-time.Hour))
		}, ProlongToken, 0},
		{"another process has created it, and the VM late and not long ago", 20 * time.Minute, 2, func(w *World) {
			w.TokenExpiry = time.Time{}
			w.Machine.CreationTimestamp = metav1.NewTime(w.Now.Add(-time.Hour))
		}, Rest, time.Minute},
		{"it was found, without its expiration", 3 * time.Hour, 45, func(w *World) {
			w.Token, w.TokenExpiry = TokenPresent,
				time.Time{}
		}, Rest, 19 * time.Minute},
		{"there is none", 3 * time.Hour, 30, func(w *World) { w.Token, w.TokenExpiry = TokenAbsent, time.Time{} }, Rest, 0},
		{"the user data has a place for it", 3 * time.Hour, 30, func(w *World) {
			w.Secret = SecretFact{Read: true, UserData: []byte("join <<BOOTSTRAP_TOKEN>>")}
		}, ProlongToken, 0},
		{"the user data has no place for it", 3 * time.Hour, 30, func(w *World) {
			w.Secret = SecretFact{Read: true, UserData: []byte("boot")}
		}, Rest, 0},
		{"the creation timeout is over", 3 * time.Hour, 180, nil, Rest, 0},
	} {
		w := waitingFor(t, tc.timeout, tc.minutes)
		if tc.change != nil {
			tc.change(&w)
		}
		if v := Decide(w); v.Do != tc.want || tc.wake != 0 && v.Wake != tc.wake {
			t.Errorf("%s: %s, again in %s; want %s, %s", tc.name, v.Do, v.Wake, tc.want, tc.wake)
		}
	}
}

// A Node that has registered has its certificate.
func TestATokenIsNotProlongedForANodeThatExists(t *testing.T) {
	w := waitingFor(t, 3*time.Hour, 45)
	w.Node = NodeFact{State: NodePresent, Node: &corev1.Node{}}
	if due := tokenDue(w); !due.IsZero() {
		t.Errorf("due at %s", due)
	}
}

func TestWhichMachinesMayLeaveAToken(t *testing.T) {
	joined := v1alpha1.LastOperation{Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateSuccessful}
	for _, tc := range []struct {
		name string
		last v1alpha1.LastOperation
		left string
		want bool
	}{
		{"nothing was done", v1alpha1.LastOperation{}, "", true},
		{"its VM is created", v1alpha1.LastOperation{Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateProcessing}, "", true},
		{"it has joined", joined, "", false},
		{"it is deleted", v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDelete}, "", false},
		{"it is deleted, and its cluster does not answer", v1alpha1.LastOperation{Type: v1alpha1.MachineOperationDelete}, "true", true},
	} {
		m := &v1alpha1.Machine{Status: v1alpha1.MachineStatus{LastOperation: tc.last}}
		if tc.left != "" {
			m.Annotations = map[string]string{v1alpha1.AnnotationTokenLeft: tc.left}
		}
		if got := MayLeaveToken(m); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
