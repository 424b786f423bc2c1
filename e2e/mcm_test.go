//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// TestLeaveAndTakeOver hands the machines back to Machine Controller Manager, and takes them over
// again from the state that it knows. No object is changed apart from the fleet's own labels and
// annotations, and no VM.
func TestLeaveAndTakeOver(t *testing.T) {
	t.Parallel()
	lab := fleet(t)
	s := newSpace(t, lab, "leave", "")
	s.deploy("pool", 3, func(d *v1alpha1.MachineDeployment) {
		template := &d.Spec.Template
		template.Annotations = map[string]string{"of": "the template"}
		template.Spec.NodeTemplateSpec.Labels = map[string]string{"tier": "a"}
		template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MaxEvictRetries: new(int32(7))}
	})
	s.running("pool", 3)
	s.reports("pool", 3)
	s.noTokens()
	vms, before := s.joined(), s.objects()
	if len(s.fleetMetadata()) == 0 {
		t.Error("no object has labels or annotations of the fleet before it leaves")
	}

	stopped(t, lab, func() {
		handBack(s)
		if remaining := s.fleetMetadata(); len(remaining) > 0 {
			t.Errorf("these still have labels or annotations of the fleet: %v", remaining)
		}
		for _, lease := range s.leasesOfMCM(t.Context()) {
			if holder := member.Holder(&lease); holder != "" {
				t.Errorf("Lease %s is held by %q, want no holder", lease.Name, holder)
			}
		}
		if diff := cmp.Diff(before, s.objects()); diff != "" {
			t.Errorf("MachineDeployments, MachineSets and machines before and after leaving (-want +got):\n%s", diff)
		}
		mcmGoesOn(s, "pool")
		finalizersOfMCM(s)
	})

	s.labelled(1+1+2*3, func(root string) string { return fmt.Sprint(slotOf(t, lab, s.name, root)) })
	if diff := cmp.Diff(before, s.objects()); diff != "" {
		t.Errorf("MachineDeployments, MachineSets and machines before leaving and after the take-over (-want +got):\n%s", diff)
	}
	s.scale("pool", 4) // it is reconciled again
	s.running("pool", 4)
	after := s.joined()
	for name, vm := range vms {
		if after[name] != vm {
			t.Errorf("machine %s had VM %s and has %q", name, vm, after[name])
		}
	}
	if created, err := lab.Cloud.History(t.Context(), s.name); err != nil || len(created) != 4 {
		t.Errorf("the cloud has created %d VMs for 4 machines (%v)", len(created), err)
	}
	s.remove("machinedeployments", "pool")
	s.gone()
}

// stopped stops all replicas, calls a function, and starts them again.
func stopped(t *testing.T, lab *harness.Lab, do func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	replicas, err := lab.Replicas(ctx)
	if err != nil {
		t.Fatal(err)
	}
	each := func(action string) {
		for _, replica := range replicas {
			if err := lab.Do(ctx, replica, action); err != nil {
				t.Fatal(err)
			}
		}
	}
	each(harness.Stop)
	defer each(harness.Start)
	do()
}

// object is the part of an object that stays the same while its spec is not written.
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

// each calls a function for all objects of a namespace that may have labels or annotations of the
// fleet, "" is all namespaces, and for the Nodes of their machines, or all.
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

// labelled waits until n objects of the namespace, with their Nodes, have the slot label of their
// root. Roots are MachineDeployments, and the label name of everything below one is its name.
func (s *space) labelled(n int, slotOf func(root string) string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%d objects are in their slots", n), func(context.Context) error {
		right := 0
		var wrong deviations
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

// handBack runs the command that hands the namespaces back to Machine Controller Manager.
func handBack(s *space) {
	s.Helper()
	bin, err := harness.Bin()
	s.must(err)
	output, err := exec.CommandContext(s.Context(), filepath.Join(bin, "machine-controller-fleet"), "leave",
		"--control-kubeconfig="+filepath.Join(s.lab.Dir, "admin.kubeconfig"),
		"--target-kubeconfig="+filepath.Join(s.lab.Dir, "target.kubeconfig"),
		"--fleet-name="+harness.FleetName, "--fleet-namespace="+harness.FleetNamespace).CombinedOutput()
	if err != nil {
		s.Fatalf("leave: %v\n%s", err, output)
	}
}

// fleetMetadata names all objects, of all namespaces, that have labels or annotations of the fleet,
// also in a template.
func (s *space) fleetMetadata() (annotated []string) {
	s.Helper()
	s.each("", func(kind string, o metav1.Object) {
		o.SetManagedFields(nil)
		text, err := json.Marshal(o)
		s.must(err)
		if strings.Contains(string(text), v1alpha1.FleetDomain) {
			annotated = append(annotated, fmt.Sprintf("%s %s/%s", kind, o.GetNamespace(), o.GetName()))
		}
	})
	return annotated
}

// mcmNewSet is the rule by which Machine Controller Manager finds the current MachineSet of a
// MachineDeployment: the oldest one whose template is the same, apart from the hash and from what
// needs no new machines. If there is none, it creates one and replaces every machine. The rule is
// implemented here again, so that it does not share errors with the fleet.
func mcmNewSet(d *v1alpha1.MachineDeployment, sets []v1alpha1.MachineSet) (current *v1alpha1.MachineSet) {
	compared := func(template v1alpha1.MachineTemplateSpec) v1alpha1.MachineTemplateSpec {
		template = *template.DeepCopy()
		delete(template.Labels, "machine-template-hash")
		template.Spec.NodeTemplateSpec, template.Spec.MachineConfiguration, template.Spec.Class.Kind = v1alpha1.NodeTemplateSpec{}, nil, ""
		return template
	}
	for i := range sets {
		same := apiequality.Semantic.DeepEqual(compared(sets[i].Spec.Template), compared(d.Spec.Template))
		if same && (current == nil || sets[i].CreationTimestamp.Before(&current.CreationTimestamp)) {
			current = &sets[i]
		}
	}
	return current
}

// mcmGoesOn checks that for Machine Controller Manager the MachineSet with all machines of a
// MachineDeployment is the current one, and needs no change.
func mcmGoesOn(s *space, deployment string) {
	s.Helper()
	ctx := s.Context()
	d, err1 := s.api().MachineDeployments(s.name).Get(ctx, deployment, metav1.GetOptions{})
	sets, err2 := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
	machines, err3 := s.machines(ctx, deployment)
	s.must(errors.Join(err1, err2, err3))
	current := mcmNewSet(d, sets.Items)
	if current == nil {
		s.Fatalf("MCM finds no current MachineSet for %s, and rolls: %+v, want one of these: %+v", deployment, d.Spec.Template, sets.Items)
	}
	if !metav1.IsControlledBy(current, d) || len(machines) != int(d.Spec.Replicas) {
		s.Errorf("MachineSet %s is owned by %v, and there are %d machines, want %d",
			current.Name, current.OwnerReferences, len(machines), d.Spec.Replicas)
	}
	for _, set := range sets.Items {
		want := int32(0)
		if set.UID == current.UID {
			want = d.Spec.Replicas
		}
		if set.Spec.Replicas != want {
			s.Errorf("MCM scales MachineSet %s from %d to %d", set.Name, set.Spec.Replicas, want)
		}
	}
	// Without the hash in all of these, MCM labels machines and MachineSet, which blocks it for up to
	// two minutes.
	hash := current.Labels["machine-template-hash"]
	carriers := map[string]map[string]string{
		"selector of the MachineSet": current.Spec.Selector.MatchLabels, "template of the MachineSet": current.Spec.Template.Labels,
	}
	for _, m := range machines {
		carriers["machine "+m.Name] = m.Labels
		if !metav1.IsControlledBy(&m, current) {
			s.Errorf("machine %s is owned by %v, want MachineSet %s", m.Name, m.OwnerReferences, current.Name)
		}
	}
	for carrier, labels := range carriers {
		if got := labels["machine-template-hash"]; hash == "" || got != hash {
			s.Errorf("the hash is %q on the MachineSet and %q on the %s, want the same", hash, got, carrier)
		}
	}

	d.Spec.Template.Labels[v1alpha1.LabelSlot] = "7"
	if found := mcmNewSet(d, sets.Items); found != nil {
		s.Errorf("MCM's rule does not see a slot label in a template: it finds %s", found.Name)
	}
}

// finalizersOfMCM checks that the objects of the namespace have the finalizers that Machine
// Controller Manager removes.
func finalizersOfMCM(s *space) {
	s.Helper()
	const ofMachines = "machine.sapcloud.io/machine-controller-manager"
	want := map[string]string{
		"MachineDeployment": ofMachines, "MachineSet": ofMachines, "Machine": ofMachines, "MachineClass": ofMachines,
		"Secret": "machine.sapcloud.io/machine-controller", "Node": "node.machine.sapcloud.io/machine-controller",
	}
	seen := map[string]bool{}
	check := func(kind string, o metav1.Object) {
		seen[kind] = true
		if got := o.GetFinalizers(); !slices.Equal(got, []string{want[kind]}) {
			s.Errorf("%s %s has the finalizers %v, want %s", kind, o.GetName(), got, want[kind])
		}
	}
	s.each(s.name, check)
	secret, err := s.lab.Control.CoreV1().Secrets(s.name).Get(s.Context(), harness.ClassName, metav1.GetOptions{})
	s.must(err)
	check("Secret", secret)
	if len(seen) != len(want) {
		s.Errorf("finalizers were checked on %v, want all kinds", seen)
	}
}
