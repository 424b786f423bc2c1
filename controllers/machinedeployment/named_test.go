package machinedeployment

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// addMachines gives the deployment's set machines, by name, and returns the set.
func (b *bench) addMachines(names ...string) *v1alpha1.MachineSet {
	b.Helper()
	set := b.mine()[0]
	for _, name := range names {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: name, Labels: map[string]string{v1alpha1.LabelName: "d"}, Finalizers: []string{v1alpha1.FinalizerName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))},
		}}
		apiserver.Add(b.server, m)
	}
	b.pass(time.Minute)
	return set
}

// scaleDown writes the same as the cluster-autoscaler.
func (b *bench) scaleDown(replicas int, names ...string) {
	b.Helper()
	at := time.Now().UTC().Format(time.RFC3339)
	b.patch(`{"spec":{"replicas":%d},"metadata":{"annotations":{%q:%q,%q:%q}}}`, replicas,
		v1alpha1.AnnotationTriggerDeletion, strings.Join(names, "~"+at+",")+"~"+at, v1alpha1.AnnotationLastReplicaChangeByScaler, at)
}

// since are the requests of the controller after the first ones, in words.
func (b *bench) since(first int) (requests []string) {
	for _, r := range b.server.Requests()[first:] {
		requests = append(requests, strings.TrimSpace(fmt.Sprint(r.Verb, " ", r.Resource, " ", r.Name, " ", r.Subresource)))
	}
	return requests
}

// TestNamedMachinesAreMarkedAfterALiveRead: first the deployment and the machines are read
// uncached, then the machines are marked, and then the set has its size. When the machines are on
// their way out the names go in one write.
func TestNamedMachinesAreMarkedAfterALiveRead(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create()
		set := b.addMachines("a", "b", "c")
		before := len(b.server.Requests())
		b.scaleDown(1, "a", "c")
		b.pass(time.Minute)
		want := []string{
			"get machinedeployments d", "list machines", "patch machines a", "patch machines c", "patch machinesets " + set.Name,
			"patch machinedeployments d status",
		}
		if got := b.since(before); !slices.Equal(got, want) {
			t.Errorf("requests %v, want %v", got, want)
		}
		if size := b.mine()[0].Spec.Replicas; size != 1 {
			t.Errorf("the set's size is %d", size)
		}

		before = len(b.server.Requests())
		for _, name := range []string{"a", "c"} {
			b.server.Delete("machines", "n", name)
			b.pass(statusPace / 4)
		}
		b.pass(time.Minute)
		want = []string{"patch machinedeployments d"}
		got := b.since(before)
		got = slices.DeleteFunc(got, func(r string) bool { return r == "patch machinedeployments d status" })
		if _, named := b.deployment().Annotations[v1alpha1.AnnotationTriggerDeletion]; named || !slices.Equal(got, want) {
			t.Errorf("requests %v, want %v; named: %v", got, want, named)
		}

		before = len(b.server.Requests())
		b.scaleDown(1, "a", "c") // once more
		b.pass(time.Minute)
		writes := slices.DeleteFunc(b.since(before), func(r string) bool { return strings.HasPrefix(r, "get") || strings.HasPrefix(r, "list") })
		if slices.ContainsFunc(writes, func(r string) bool { return strings.Contains(r, "machines ") }) || b.mine()[0].Spec.Replicas != 1 {
			t.Errorf("once more: requests %v, and the set has size %d", writes, b.mine()[0].Spec.Replicas)
		}
	})
}

// TestAMachineThatChangesWhileItIsMarked is read again, and the set does not shrink before it is
// marked.
func TestAMachineThatChangesWhileItIsMarked(t *testing.T) {
	conflicts := 0
	onBench(t, func(b *bench) {
		b.create()
		b.addMachines("a", "b", "c")
		b.server.Fault(func(r apiserver.Request) error {
			if r.Verb == "patch" && r.Resource == "machinesets" && conflicts < 3 {
				t.Errorf("the set is written, and the machine is not marked")
			}
			return nil
		})
		b.scaleDown(1, "a", "c")
		b.pass(time.Minute)
		c := apiserver.Read[v1alpha1.Machine](b.server, "machines", "n", "c")
		if c == nil || c.Annotations[v1alpha1.AnnotationPriority] != v1alpha1.PriorityTriggered ||
			c.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] == "" {
			t.Errorf("the machine is %+v", c)
		}
		if size := b.mine()[0].Spec.Replicas; size != 1 || conflicts != 3 {
			t.Errorf("the set's size is %d, after %d changes", size, conflicts)
		}
	}, func(b *bench, cfg *Config) {
		cfg.Machines = b.server.Via(func(r apiserver.Request, send func() error) error {
			if r.Verb == "patch" && r.Name == "c" && conflicts < 3 {
				conflicts++
				b.server.Merge("machines", "n", "c", fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, conflicts))
			}
			return send()
		}).Machines
	})
}
