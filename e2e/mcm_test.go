//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/preload"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/ring"
)

// all does something to all replicas, one after the other.
func all(t *testing.T, lab *harness.Lab, action string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, replica := range replicas {
		if err := lab.Do(ctx, replica, action); err != nil {
			t.Fatal(err)
		}
	}
}

// stopped stops the fleet, does something, and starts it again.
func stopped(t *testing.T, lab *harness.Lab, do func()) {
	t.Helper()
	all(t, lab, harness.Stop)
	defer all(t, lab, harness.Start)
	do()
}

// TestTakeOverFromMCM has the fleet find what Machine Controller Manager has left: it labels everything, and that is all.
func TestTakeOverFromMCM(t *testing.T) {
	t.Parallel()
	lab := fleetAlone(t)
	s := newSpace(t, lab, "mcm", "")
	load := preload.Load{Namespace: s.name, Deployments: 10, Machines: 30}
	// The Nodes have nobody who renews their Leases, and are not to be lost.
	const nodeLifecycle = "kube-controller-manager"
	s.must(lab.Do(t.Context(), nodeLifecycle, harness.Pause))
	defer func() { s.must(lab.Do(context.WithoutCancel(t.Context()), nodeLifecycle, harness.Resume)) }()
	var before map[string]object
	var mark harness.AuditMark
	stopped(t, lab, func() {
		s.must(load.Make(t.Context(), lab))
		before = s.objects()
		var err error
		mark, err = lab.MarkAudit()
		s.must(err)
	})
	calls := s.changes()

	spread, err := ring.NewSlots(slots, ring.Deployment)
	s.must(err)
	s.labelled(load.Deployments*(2+2*load.Machines), func(root string) string { return fmt.Sprint(spread.Of(s.name, root)) })
	for i := range load.Deployments {
		s.reports(load.Deployment(i), int32(load.Machines))
	}
	if diff := cmp.Diff(before, s.objects()); diff != "" {
		t.Errorf("MachineDeployments, MachineSets and machines before and after (-want +got):\n%s", diff)
	}
	if after := s.changes(); after != calls {
		t.Errorf("the cloud was changed %d times", after-calls)
	}
	requests, err := lab.Requests(mark)
	s.must(err)
	for _, r := range requests {
		if r.IsFleet() && (r.Verb == "create" || r.Verb == "delete") && r.Namespace == s.name {
			t.Errorf("%s did %s %s/%s", r.User, r.Verb, r.Resource, r.Name)
		}
	}
}

// object is what of an object stays the same while nobody writes its spec.
type object struct {
	UID        string
	Generation int64
	Deleted    bool
}

// objects returns all MachineDeployments, MachineSets and Machines.
func (s *space) objects() map[string]object {
	s.Helper()
	found := map[string]object{}
	s.each(s.name, func(kind string, o metav1.Object) {
		if kind != "Node" && kind != "MachineClass" {
			found[kind+" "+o.GetName()] = object{string(o.GetUID()), o.GetGeneration(), o.GetDeletionTimestamp() != nil}
		}
	})
	return found
}

// each shows all objects of a namespace that may carry something of the fleet, "" is all namespaces, and the Nodes of their
// machines, or all.
func (s *space) each(namespace string, show func(kind string, o metav1.Object)) {
	s.Helper()
	ctx, api := s.Context(), s.api()
	deployments, err1 := api.MachineDeployments(namespace).List(ctx, metav1.ListOptions{})
	sets, err2 := api.MachineSets(namespace).List(ctx, metav1.ListOptions{})
	machines, err3 := api.Machines(namespace).List(ctx, metav1.ListOptions{})
	classes, err4 := api.MachineClasses(namespace).List(ctx, metav1.ListOptions{})
	nodes, err5 := s.lab.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	s.must(errors.Join(err1, err2, err3, err4, err5))
	for i := range deployments.Items {
		show("MachineDeployment", &deployments.Items[i])
	}
	for i := range sets.Items {
		show("MachineSet", &sets.Items[i])
	}
	ours := map[string]bool{}
	for i := range machines.Items {
		show("Machine", &machines.Items[i])
		ours[machines.Items[i].Labels[v1alpha1.LabelNode]] = true
	}
	for i := range classes.Items {
		show("MachineClass", &classes.Items[i])
	}
	for i := range nodes.Items {
		if namespace == "" || ours[nodes.Items[i].Name] {
			show("Node", &nodes.Items[i])
		}
	}
}

// labelled waits until n objects of the namespace, with their Nodes, carry the slot of their root. Roots are
// MachineDeployments, and the label name of everything below one is its name.
func (s *space) labelled(n int, slotOf func(root string) string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d objects are in their slots", n), func(context.Context) error {
		right := 0
		var wrong complaints
		slotOfNode := map[string]string{}
		s.each(s.name, func(kind string, o metav1.Object) {
			want := slotOf(o.GetLabels()[v1alpha1.LabelName])
			switch kind {
			case "MachineClass":
				return
			case "MachineDeployment":
				want = slotOf(o.GetName())
			case "Machine":
				slotOfNode[o.GetLabels()[v1alpha1.LabelNode]] = want
			case "Node":
				want = slotOfNode[o.GetName()]
			}
			if got := o.GetLabels()[v1alpha1.LabelSlot]; got == want {
				right++
			} else if len(wrong) == 0 {
				wrong.unless(false, "%s %s is in slot %q, want %s", kind, o.GetName(), got, want)
			}
		})
		wrong.unless(right == n, "%d are", right)
		return wrong.err()
	})
}

// changes counts the calls that changed something at the cloud, for any machine of the namespace that there is.
func (s *space) changes() int {
	s.Helper()
	machines, err := s.machines(s.Context(), "")
	s.must(err)
	ours := map[string]bool{}
	for _, m := range machines {
		ours[m.Name] = true
	}
	calls, err := s.lab.Cloud.Calls()
	s.must(err)
	changed := 0
	for _, call := range calls {
		if call.Changed && ours[call.Machine] {
			changed++
		}
	}
	return changed
}

// TestLeave gives the machines back, and takes them once more. No VM notices.
func TestLeave(t *testing.T) {
	t.Parallel()
	lab := fleetAlone(t)
	s := newSpace(t, lab, "leave", "")
	s.deploy("pool", 3)
	s.running("pool", 3)
	s.reports("pool", 3)
	s.noTokens()
	vms, before, calls := s.joined(), s.objects(), s.changes()
	if len(s.marks()) == 0 {
		t.Error("nothing is marked before the fleet leaves")
	}

	stopped(t, lab, func() {
		s.leave()
		if marks := s.marks(); len(marks) > 0 {
			t.Errorf("these carry something of the fleet: %v", marks)
		}
		for _, lease := range s.leasesOfMCM(t.Context()) {
			if holder := member.Holder(&lease); holder != "" {
				t.Errorf("Lease %s is held by %q, want nobody", lease.Name, holder)
			}
		}
		if diff := cmp.Diff(before, s.objects()); diff != "" {
			t.Errorf("MachineDeployments, MachineSets and machines before and after leaving (-want +got):\n%s", diff)
		}
	})

	spread, err := ring.NewSlots(slots, ring.Deployment)
	s.must(err)
	s.labelled(1+1+2*3, func(root string) string { return fmt.Sprint(spread.Of(s.name, root)) })
	s.scale("pool", 4) // it is worked on again
	s.running("pool", 4)
	after := s.joined()
	for name, vm := range vms {
		if after[name] != vm {
			t.Errorf("machine %s had VM %s and has %q", name, vm, after[name])
		}
	}
	if n := s.changes() - calls; n > 2 { // create and initialize
		t.Errorf("the cloud was changed %d times for one machine more", n)
	}
}

// leave runs what gives machines back to Machine Controller Manager.
func (s *space) leave() {
	s.Helper()
	bin, err := harness.Bin()
	s.must(err)
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	said, err := exec.CommandContext(ctx, filepath.Join(bin, "machine-controller-fleet"), "leave",
		"--control-kubeconfig="+filepath.Join(s.lab.Dir, "admin.kubeconfig"),
		"--target-kubeconfig="+filepath.Join(s.lab.Dir, "target.kubeconfig"),
		"--fleet-name="+harness.FleetName, "--fleet-namespace="+harness.FleetNamespace).CombinedOutput()
	if err != nil {
		s.Fatalf("leave: %v\n%s", err, said)
	}
}

// marks names all objects, of all namespaces, that carry something of the fleet, in a template too.
func (s *space) marks() (marked []string) {
	s.Helper()
	s.each("", func(kind string, o metav1.Object) {
		o.SetManagedFields(nil)
		text, err := json.Marshal(o)
		s.must(err)
		if strings.Contains(string(text), v1alpha1.FleetDomain) {
			marked = append(marked, fmt.Sprintf("%s %s/%s", kind, o.GetNamespace(), o.GetName()))
		}
	})
	return marked
}
