package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/cloud/breaker"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// many is how many machines an account has: more than twice as many as the calls that it gets while
// its circuit breaker is open.
const many = 40

// accountBench has many machines "m0", "m1", … of a MachineSet, without a creation timeout.
type accountBench struct{ *bench }

func onAccountBench(t *testing.T, test func(b accountBench)) {
	t.Helper()
	onBench(t, func(b *bench) { test(accountBench{b}) })
}

// createAll creates the machines.
func (b accountBench) createAll() {
	b.Helper()
	set := apiserver.Add(b.server, &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "set"}})
	for i := range many {
		b.create(withoutDeadline, func(m *v1alpha1.Machine) {
			m.Name = fmt.Sprint("m", i)
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
		})
	}
}

// inPhase returns how many machines of a namespace are in a phase.
func (b accountBench) inPhase(namespace string, phase v1alpha1.MachinePhase) (n int) {
	for _, m := range apiserver.ReadAll[v1alpha1.Machine](b.server, "machines") {
		if m.Namespace == namespace && m.Status.CurrentStatus.Phase == phase {
			n++
		}
	}
	return n
}

// holding returns how many machines report that the circuit breaker holds their calls, with a code.
func (b accountBench) holding(op v1alpha1.MachineOperationType, code driver.Code) (n int) {
	for _, m := range apiserver.ReadAll[v1alpha1.Machine](b.server, "machines") {
		last := m.Status.LastOperation
		if last.Type == op && last.State == v1alpha1.MachineStateFailed && last.ErrorCode == code.String() &&
			strings.Contains(last.Description, "the account's circuit breaker is open until 20") {
			n++
		}
	}
	return n
}

// openBreakers returns the gauge.
func (b accountBench) openBreakers() float64 {
	b.Helper()
	return b.sum("mcf_open_account_circuit_breakers")
}

// sum returns the sum of a metric over all of its series.
func (b accountBench) sum(name string) (sum float64) {
	b.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(b.process.cloud.Collectors([]string{testProvider})...)
	families, err := registry.Gather()
	b.must(err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sum
}

// mostCalls is how many calls are sent in 10 min for an account that fails: by the machines that
// open it, by the calls that are in flight then, and by the probes after 5, 10, 20, 40, 80, 160,
// 180 s.
const mostCalls = breaker.Failures + 4 + 7

// An account whose credentials are refused is not called for each of its machines, and works soon
// after they are corrected.
func TestAnAccountWithBadCredentialsIsNotCalledForEachMachine(t *testing.T) {
	onAccountBench(t, func(b accountBench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Unauthenticated})
		b.createAll()
		b.pass(10 * time.Minute)
		if got := len(b.cloud.Calls("")); got > mostCalls {
			t.Errorf("%d calls were sent in 10 min, want at most %d", got, mostCalls)
		}
		if got := b.holding(v1alpha1.MachineOperationCreate, driver.Unauthenticated); got < many-breaker.Failures-1 {
			t.Errorf("%d machines report the circuit breaker, want nearly all", got)
		}
		if got := b.openBreakers(); got != 1 {
			t.Errorf("%v circuit breakers are open, want 1", got)
		}
		if got := b.sum("mcf_driver_calls_held_total"); got < many {
			t.Errorf("%v calls were held, want more than one of each machine", got)
		}
		if got := b.reported.Count(v1alpha1.EventReason{Reason: v1alpha1.EventAccountCircuitBreakerOpen, Warning: true}); got != 1 {
			t.Errorf("the MachineSet has %d Events, want one", got)
		}
		// The Event is emitted once, and the time of the next probe changes with each that fails.
		want := []string{"The account's circuit breaker is open, because get_machine_status has failed for 5 machines in a row: " +
			"calls are sent for one machine at a time until the cloud answers; the last one failed with Unauthenticated: injected by the test"}
		if diff := cmp.Diff(want, b.reported.Texts(v1alpha1.EventAccountCircuitBreakerOpen)); diff != "" {
			t.Errorf("Events of the MachineSet (-want +got):\n%s", diff)
		}
		b.cloud.Work()
		b.server.Merge("secrets", "n", "s", `{"stringData":{"token":"new"},"data":{"token":"bmV3"}}`)
		b.pass(secretsSoon)
		if got := b.inPhase("n", v1alpha1.MachineRunning); got != many {
			t.Errorf("%d machines run soon after the Secret was corrected, want all %d", got, many)
		}
		if got := b.openBreakers(); got != 0 {
			t.Errorf("%v circuit breakers are open after that", got)
		}
	})
}

// Machines whose calls are held continue when the Secret changes, also when no other machine waits
// for that.
func TestHeldCallsAreSentWithOtherCredentials(t *testing.T) {
	onAccountBench(t, func(b accountBench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Unauthenticated})
		b.createAll()
		b.pass(10 * time.Minute) // the next probe is due after more than another minute
		held := 0
		for _, m := range apiserver.ReadAll[v1alpha1.Machine](b.server, "machines") {
			if strings.Contains(m.Status.LastOperation.Description, "circuit breaker is open") {
				held++
				continue
			}
			b.server.Remove("machines", "n", m.Name)
		}
		b.cloud.Work()
		b.patchSecret(`{"data":{"token":"bmV3"}}`)
		b.pass(bootTime + time.Second)
		if got := b.inPhase("n", v1alpha1.MachineRunning); got != held || held < many/2 {
			t.Errorf("%d machines run as soon as the Secret was corrected, want all %d whose calls were held", got, held)
		}
	})
}

// secretsSoon is the time in which machines continue after a Secret was corrected.
const secretsSoon = 30 * time.Second

// Calls that delete, or create, are held and probed, too, each on its own. When the cloud answers
// again all machines continue at once.
func TestEachKindOfCallIsProbed(t *testing.T) {
	for _, test := range []struct {
		op   driver.Op
		code driver.Code
	}{
		{driver.OpDelete, driver.PermissionDenied},
		{driver.OpDelete, driver.Unavailable},
		{driver.OpCreate, driver.Unavailable},
		{driver.OpInitialize, driver.DeadlineExceeded},
	} {
		t.Run(fmt.Sprint(test.op, " ", test.code), func(t *testing.T) {
			onAccountBench(t, func(b accountBench) {
				want := v1alpha1.MachineOperationCreate
				if test.op == driver.OpDelete {
					want = v1alpha1.MachineOperationDelete
					b.createAll()
					b.pass(time.Minute)
				}
				b.cloud.Fail(fakecloud.Fault{Code: test.code}, test.op)
				if test.op == driver.OpDelete {
					b.deleteAll()
				} else {
					b.createAll()
				}
				b.pass(10 * time.Minute)
				if got := len(b.cloud.Calls(test.op)); got > mostCalls {
					t.Errorf("%d calls were sent in 10 min, want at most %d", got, mostCalls)
				}
				if got := b.holding(want, test.code); got < many-breaker.Failures-1 {
					t.Errorf("%d machines report the circuit breaker, want nearly all", got)
				}
				b.cloud.Work()
				b.pass(breaker.LongestPause + bootTime + time.Second)
				running, vms := 0, 0
				if test.op != driver.OpDelete {
					running, vms = many, many
				}
				now, _ := b.cloud.VMs()
				if got := b.inPhase("n", v1alpha1.MachineRunning); got != running || now != vms {
					t.Errorf("%d machines run and there are %d VMs, want %d and %d", got, now, running, vms)
				}
			})
		})
	}
}

func (b accountBench) deleteAll() {
	b.Helper()
	for i := range many {
		b.server.Delete("machines", "n", fmt.Sprint("m", i))
	}
}

// Errors of single machines, and calls that wait for their turn, open nothing.
func TestErrorsOfMachinesHoldNoCalls(t *testing.T) {
	for _, code := range []driver.Code{driver.InvalidArgument, driver.ResourceExhausted, driver.Aborted, driver.Internal, driver.Unknown} {
		t.Run(code.String(), func(t *testing.T) {
			onAccountBench(t, func(b accountBench) {
				b.cloud.Fail(fakecloud.Fault{Code: code}, driver.OpCreate)
				b.createAll()
				b.pass(2 * time.Minute)
				if got := len(b.cloud.Calls(driver.OpCreate)); got < many || b.openBreakers() != 0 {
					t.Errorf("%d creates were requested, and %v circuit breakers are open; want one of each machine, and none", got, b.openBreakers())
				}
			})
		})
	}
}

// Creates that are under way for a while.
func TestPendingCallsHoldNoOthers(t *testing.T) {
	onAccountBench(t, func(b accountBench) {
		var calls atomic.Int32
		b.cloud.Way = func(_ context.Context, call fakecloud.Call, send func() error) error {
			if call.Op == driver.OpCreate && calls.Add(1) <= 3*many {
				return driver.Pendingf(driver.OpCreate, driver.Unavailable, "a disk is being created")
			}
			return send()
		}
		b.createAll()
		b.pass(40 * time.Second) // after attempts at 0, 5 and 15 s
		if got := b.inPhase("n", v1alpha1.MachineRunning); got != many {
			t.Errorf("%d machines run, want all %d", got, many)
		}
	})
}

// refuses has the calls for a namespace refused, or panic.
func (b accountBench) refuses(namespace string, panics bool) {
	b.cloud.Way = func(_ context.Context, call fakecloud.Call, send func() error) error {
		switch {
		case call.Op != driver.OpStatus || call.Machine.Namespace != namespace:
			return send()
		case panics:
			panic("planted by the test")
		}
		return driver.Errorf(driver.OpStatus, driver.Unauthenticated, "no")
	}
}

// A namespace whose calls are refused holds none of another one, though both use the same Secret.
func TestAnAccountHoldsNoCallsOfOtherNamespaces(t *testing.T) {
	onAccountBench(t, func(b accountBench) {
		b.refuses("hostile", false)
		apiserver.Add(b.server, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shared", Name: "s", Annotations: map[string]string{v1alpha1.AnnotationSharedWith: "hostile,other"},
			},
			Data: map[string][]byte{v1alpha1.SecretKeyUserData: []byte("join")},
		})
		secret := &corev1.SecretReference{Namespace: "shared", Name: "s"}
		b.machines("hostile", secret, many)
		b.pass(time.Minute)
		if b.openBreakers() != 1 {
			t.Fatalf("%v circuit breakers are open, want that of the namespace", b.openBreakers())
		}
		b.machines("other", secret, many)
		b.pass(2 * bootTime)
		if got := b.inPhase("other", v1alpha1.MachineRunning); got != many {
			t.Errorf("%d machines of the other namespace run, want all %d", got, many)
		}
	})
}

// A driver that panics in the probe does not keep the account from further probes.
func TestADriverThatPanicsInTheProbe(t *testing.T) {
	onAccountBench(t, func(b accountBench) {
		b.refuses("n", false)
		b.createAll()
		b.pass(time.Second)
		b.refuses("n", true)
		b.pass(time.Minute)
		b.refuses("", false)
		b.pass(breaker.LongestPause + bootTime)
		if got := b.inPhase("n", v1alpha1.MachineRunning); got < many-2 { // those that have panicked are set aside
			t.Errorf("%d machines run, want nearly all %d", got, many)
		}
	})
}

// The message of a machine whose call is held is of bounded size, and ends with the cloud's.
func TestMessageOfAHeldCall(t *testing.T) {
	onAccountBench(t, func(b accountBench) {
		b.cloud.Fail(fakecloud.Fault{Code: driver.Unavailable, RetryAfter: time.Hour})
		b.createAll()
		b.pass(time.Minute)
		var texts []string
		for _, m := range apiserver.ReadAll[v1alpha1.Machine](b.server, "machines") {
			texts = append(texts, m.Status.LastOperation.Description)
		}
		want := "Cloud provider message - machine codes error: code = [Unavailable] message = [the account's circuit breaker is open until " +
			"2000-01-01T01:00:00Z, " +
			"because get_machine_status has failed for 5 machines in a row; no call was sent, and the last one failed with Unavailable: " +
			"injected by the test]"
		if !slices.Contains(texts, want) {
			t.Errorf("no machine reports %q, but %q", want, texts[len(texts)-1])
		}
	})
}
