package replica

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch/policy"
)

// switched is a trial of a namespace, a, that a Deployment switches on and off, with Kubernetes'
// controllers of Deployments and what the fleet sends about the namespace.
type switched struct {
	*trial

	pods int // how many there were

	mu      sync.Mutex
	touched []string // the objects of a, its Nodes or the cloud
	reports int      // about the pods of its switch
	reads   int      // of its target cluster
}

func newSwitched(t *testing.T) *switched {
	o := replicaOptions(func(o *Options) {
		o.DeploymentSwitch, o.Targets.ByNamespace, o.Fleet.ShardBy = true, true, string(assignment.ByNamespace)
		o.Safety.OrphanVMsPeriod = 5 * time.Minute
	})
	s := &switched{trial: newTrial(t, o, 1, nil)}
	s.watch = func(q request, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case q.place == atTarget:
			s.reads++
			if q.kind == writes {
				s.touched = append(s.touched, q.method+" "+q.path)
			}
		case q.kind != writes || !strings.Contains(q.path, "/namespaces/a/"):
		case strings.HasSuffix(q.path, "/status") && strings.Contains(q.path, "/pods/"):
			s.reports++
		default:
			s.touched = append(s.touched, q.method+" "+q.path)
		}
	}
	s.wrapDriver = func(d driver.Driver) driver.Driver {
		return driver.Around(d, func(ctx context.Context, c driver.Call, next func(context.Context) error) error {
			s.mu.Lock()
			s.touched = append(s.touched, c.Method)
			s.mu.Unlock()
			return next(ctx)
		})
	}
	apiserver.Add(s.target, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
	s.createUnmanaged()
	s.createClass("a")
	s.putTarget("a", targettest.SecretOf("https://a.example", "t"))
	return s
}

// counts returns what was sent since the last call.
func (s *switched) counts() (touched []string, reports, reads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	touched, reports, reads = s.touched, s.reports, s.reads
	s.touched, s.reports, s.reads = nil, 0, 0
	return touched, reports, reads
}

// turn sets the replicas of the switch of a; nil deletes it.
func (s *switched) turn(replicas *int32) {
	if replicas == nil {
		s.control.Delete("deployments", "a", policy.Deployment)
		return
	}
	apiserver.Add(s.control, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: policy.Deployment}, Spec: appsv1.DeploymentSpec{Replicas: replicas},
	})
}

// kubernetes does what the controllers of Deployments and ReplicaSets do, and returns the
// availableReplicas of the switch: the cluster-autoscaler works if there is one.
func (s *switched) kubernetes() (available int) {
	replicas := 0
	if d := apiserver.Read[appsv1.Deployment](s.control, "deployments", "a", policy.Deployment); d != nil {
		replicas = int(*d.Spec.Replicas)
	}
	pods := s.standIns()
	for _, pod := range pods[min(replicas, len(pods)):] {
		s.control.Delete("pods", "a", pod.Name)
	}
	for range replicas - len(pods) {
		s.pods++
		apiserver.Add(s.control, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "a", Name: fmt.Sprint("stand-in-", s.pods), Labels: map[string]string{"role": policy.Deployment},
			},
			Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: v1alpha1.SchedulingGateNever}}},
			Status: corev1.PodStatus{
				Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}},
			},
		})
	}
	for _, pod := range s.standIns() {
		if ready := readyOf(pod); ready != nil && ready.Status == corev1.ConditionTrue && pod.Status.Phase == corev1.PodRunning {
			available++
		}
	}
	return available
}

func (s *switched) standIns() []*corev1.Pod {
	return slices.DeleteFunc(apiserver.ReadAll[corev1.Pod](s.control, "pods"), func(pod *corev1.Pod) bool { return pod.Namespace != "a" })
}

func readyOf(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// becomes waits until the switch has that many available replicas and a condition holds.
func (s *switched) becomes(what string, available int, cond func() bool) {
	s.Helper()
	s.until(what, func() bool { return s.kubernetes() == available && (cond == nil || cond()) })
}

// lasts lets time pass with Kubernetes' controllers.
func (s *switched) lasts(d time.Duration) {
	s.run(d, func() bool {
		s.kubernetes()
		return false
	})
}

// untouched lets 5 s pass, and then checks that nothing of a is touched for half an hour, and that
// its target cluster is not even read after a minute.
func (s *switched) untouched(when string) {
	s.Helper()
	s.lasts(5 * time.Second)
	s.counts()
	s.lasts(time.Minute)
	touched, _, _ := s.counts()
	s.lasts(30 * time.Minute)
	later, reports, reads := s.counts()
	if touched = append(touched, later...); len(touched) > 0 || reports > 0 || reads > 0 {
		s.Errorf("%s: %d reports, %d requests to the target cluster, and touched %q", when, reports, reads, touched)
	}
	if n := s.kubernetes(); n > 0 {
		s.Errorf("%s: the switch has %d available replicas", when, n)
	}
}

func (t *trial) runningOf(root string) (n int) {
	for _, m := range t.machinesOf(root) {
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
			n++
		}
	}
	return n
}

// TestNamespaceSwitch: the Deployment machine-controller-manager of a namespace switches the fleet
// on and off there, as Gardener, its dependency-watchdog and the cluster-autoscaler use it.
func TestNamespaceSwitch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSwitched(t)
		defer s.end()
		s.putRoot("a", "d", 2)
		s.control.Edit("machinedeployments", "a", "d", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "Recreate", "spec", "strategy", "type") // it is an object
		})
		s.start("fleet-0")
		s.start("fleet-1")
		s.lasts(time.Minute)
		s.untouched("without the Deployment")
		if len(s.machinesOf("d")) > 0 {
			t.Error("without the Deployment there are machines")
		}

		// The worker actuator creates it. CA-01: the autoscaler may work.
		s.turn(new(int32(1)))
		s.becomes("2 machines run", 1, func() bool { return s.runningOf("d") == 2 })
		s.lasts(time.Minute)
		s.counts()
		s.lasts(10 * time.Minute)
		if _, reports, _ := s.counts(); reports > 0 {
			t.Errorf("%d reports although nothing has changed", reports)
		}

		// The worker actuator deletes the pods of the Deployment.
		for _, pod := range s.standIns() {
			s.control.Delete("pods", "a", pod.Name)
		}
		began := time.Now()
		s.becomes("the next pod is ready", 1, nil)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the next pod is ready after %s", took)
		}

		// CA-02, and a meltdown: dependency-watchdog scales it to 0 while Nodes are not ready, one
		// machine is being created, and a user deletes another.
		s.putRoot("a", "d", 4)
		s.until("VMs are being created", func() bool { return len(s.cloud.Live())-unmanagedVMs == 4 })
		s.cloud.Change(func(all []*fakecloud.Resource) {
			for _, v := range all {
				if v.Live() && !v.Joined {
					v.Boots = time.Now().Add(2 * time.Hour)
				}
			}
		})
		s.turn(new(int32(0)))
		s.setReady("Unknown", s.namesOf("d")...)
		s.putRoot("a", "d", 5)
		before := s.uids()
		s.untouched("switched off")
		s.ownerOf("a", "d").crash() // the next owner does not touch it either
		s.lasts(time.Minute)
		s.untouched("switched off, with another owner")
		if got := s.uids(); !maps.Equal(got, before) {
			t.Errorf("switched off: got machines %v, want %v", got, before)
		}

		// It is scaled up again: work resumes at once, and the clocks begin anew, which the next owner
		// knows, too.
		s.putRoot("a", "d", 4)
		s.turn(new(int32(1)))
		s.becomes("it is served", 1, nil)
		s.lasts(time.Minute)
		s.start("fleet-2")
		s.lasts(15 * time.Second)
		for _, replica := range s.alive() {
			if replica.replica != "fleet-2" {
				replica.quit()
			}
		}
		s.lasts(8 * time.Minute)
		if got := s.uids(); !maps.Equal(got, before) {
			t.Errorf("9 min after it was switched on: got machines %v, want %v", got, before)
		}
		s.lasts(25 * time.Minute)
		if got := s.uids(); maps.Equal(got, before) {
			t.Error("machines that do not recover are not replaced")
		}
	})
}

// TestNamespaceSwitchInLifeOfACluster: a cluster is hibernated and woken up, its target cluster is
// not available, and it is restored elsewhere, which removes its objects without their VMs.
func TestNamespaceSwitchInLifeOfACluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSwitched(t)
		defer s.end()
		s.putRoot("a", "d", 2)
		s.turn(new(int32(1)))
		s.start("fleet-0")
		s.start("fleet-1")
		s.becomes("2 machines run", 1, func() bool { return s.runningOf("d") == 2 })

		s.putRoot("a", "d", 0)
		s.becomes("no machine is left", 1, func() bool { return s.missing() == "" })
		s.turn(new(int32(0)))
		s.untouched("hibernated")
		s.turn(new(int32(1)))
		s.putRoot("a", "d", 2)
		s.becomes("2 machines run again", 1, func() bool { return s.runningOf("d") == 2 })

		s.putTarget("a", targettest.SecretOf("https://169.254.169.254", "t"))
		s.becomes("the switch is not available", 0, func() bool {
			ready := readyOf(s.standIns()[0])
			return ready != nil && ready.Reason == v1alpha1.ReasonTargetUnavailable && strings.Contains(ready.Message, "169.254")
		})
		s.putTarget("a", targettest.SecretOf("https://a.example", "t"))
		s.becomes("the switch is available", 1, nil)

		vms := len(s.cloud.Live())
		s.turn(nil)
		s.lasts(5 * time.Second)
		for _, resource := range []string{"machines", "machinesets", "machinedeployments"} {
			for _, o := range s.control.List(resource) {
				s.control.Edit(resource, o.GetNamespace(), o.GetName(), func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
				s.control.Delete(resource, o.GetNamespace(), o.GetName())
			}
		}
		s.untouched("its objects were removed")
		if got := len(s.cloud.Live()); got != vms {
			t.Errorf("%d VMs are left, want %d", got, vms)
		}
	})
}
