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
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/preload"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

// all applies an action to all replicas, one after the other.
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

// stopped stops the fleet, calls a function, and starts it again.
func stopped(t *testing.T, lab *harness.Lab, do func()) {
	t.Helper()
	all(t, lab, harness.Stop)
	defer all(t, lab, harness.Start)
	do()
}

// TestTakeOverFromMCM: the fleet takes over objects of Machine Controller Manager: it labels all of them, and does nothing else.
func TestTakeOverFromMCM(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "take-over", func(o *harness.Options) { o.Replicas = 2 })
	s := newSpace(t, lab, "mcm", "")
	load := preload.Load{Namespace: s.name, Deployments: 5, Machines: 20}
	// The Leases of the Nodes are not renewed, and the Nodes must not be declared lost.
	const nodeLifecycle = "kube-controller-manager"
	s.must(lab.Do(t.Context(), nodeLifecycle, harness.Pause))
	defer func() { s.must(lab.Do(context.WithoutCancel(t.Context()), nodeLifecycle, harness.Resume)) }()
	var before map[string]object
	var position harness.AuditPosition
	stopped(t, lab, func() {
		s.must(load.Make(t.Context(), lab))
		s.deploy("ignored", 2, asIgnored)
		before = s.objects()
		var err error
		position, err = lab.AuditEnd()
		s.must(err)
	})
	calls := s.changes()

	s.labelled(1+load.Deployments*(2+2*load.Machines), func(root string) string { return fmt.Sprint(slotOf(t, lab, s.name, root)) })
	for i := range load.Deployments {
		s.reports(load.Deployment(i), int32(load.Machines))
	}
	s.concludes("ignored", v1alpha1.MachineDeploymentValid, corev1.ConditionFalse, v1alpha1.ReasonNoStrategy)
	if diff := cmp.Diff(before, s.objects()); diff != "" {
		t.Errorf("MachineDeployments, MachineSets and machines before and after (-want +got):\n%s", diff)
	}
	if after := s.changes(); after != calls {
		t.Errorf("the cloud was changed %d times", after-calls)
	}
	ignored, err := s.api().MachineDeployments(s.name).Get(t.Context(), "ignored", metav1.GetOptions{})
	s.must(err)
	if !slices.Equal(ignored.Finalizers, []string{v1alpha1.FinalizerName}) || len(ignored.Annotations) > 0 {
		t.Errorf("the object that MCM had ignored has changed: %+v", ignored.ObjectMeta)
	}
	requests, err := lab.Requests(position)
	s.must(err)
	for _, r := range requests {
		if r.IsFleet() && (r.Verb == "create" || r.Verb == "delete") && r.Namespace == s.name {
			t.Errorf("%s did %s %s/%s", r.User, r.Verb, r.Resource, r.Name)
		}
	}
	s.patch("machinedeployments", "ignored", `{"spec":{"replicas":0}}`)
	s.eventually("it is reconciled when its spec has changed", func(ctx context.Context) error {
		sets, err := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelName + "=ignored"})
		if err == nil && len(sets.Items) != 1 {
			err = fmt.Errorf("it has %d MachineSets", len(sets.Items))
		}
		return err
	})
}

// asIgnored changes a MachineDeployment to one that lost its strategy after Machine Controller Manager had reconciled it, and its
// MachineSets after that.
func asIgnored(d *v1alpha1.MachineDeployment) {
	d.Spec.Strategy = v1alpha1.MachineDeploymentStrategy{}
	d.Finalizers = []string{v1alpha1.FinalizerName}
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

// each calls a function for all objects of a namespace that may have labels or annotations of the fleet, "" is all namespaces, and
// for the Nodes of their machines, or all.
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

// labelled waits until n objects of the namespace, with their Nodes, have the slot label of their root. Roots are
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

// changes counts the calls that changed something at the cloud, for all existing machines of the namespace.
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

// TestLeave hands the machines back to Machine Controller Manager, and takes them over again. No VM is changed.
func TestLeave(t *testing.T) {
	t.Parallel()
	lab := startLab(t, "leave", func(o *harness.Options) { o.Replicas = 2 })
	s := newSpace(t, lab, "leave", "")
	s.deploy("pool", 3, func(d *v1alpha1.MachineDeployment) {
		template := &d.Spec.Template
		template.Annotations = map[string]string{"of": "the template"}
		template.Spec.NodeTemplateSpec.Labels = map[string]string{"tier": "a"}
		template.Spec.MachineConfiguration = &v1alpha1.MachineConfiguration{MaxEvictRetries: new(int32(7))}
	})
	s.running("pool", 3)
	// A template that was changed, and changed back, leaves a MachineSet that is not the current one.
	s.patch("machinedeployments", "pool", `{"spec":{"template":{"metadata":{"annotations":{"changed":"yes"}}}}}`)
	s.hasSets(2)
	s.patch("machinedeployments", "pool", `{"spec":{"template":{"metadata":{"annotations":{"changed":null}}}}}`)
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	s.reports("pool", 3)
	s.noTokens()
	vms, before, calls := s.joined(), s.objects(), s.changes()
	if len(s.fleetMetadata()) == 0 {
		t.Error("no object has labels or annotations of the fleet before it leaves")
	}

	stopped(t, lab, func() {
		s.handBack()
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
		s.mcmGoesOn("pool")
		s.finalizersOfMCM()
	})

	s.labelled(1+2+2*3, func(root string) string { return fmt.Sprint(slotOf(t, lab, s.name, root)) })
	s.scale("pool", 4) // it is reconciled again
	s.running("pool", 4)
	after := s.joined()
	for name, vm := range vms {
		if after[name] != vm {
			t.Errorf("machine %s had VM %s and has %q", name, vm, after[name])
		}
	}
	if n := s.changes() - calls; n > 2 { // create and initialize
		t.Errorf("the cloud was changed %d times for one more machine", n)
	}
}

// handBack runs the command that hands the namespaces back to Machine Controller Manager.
func (s *space) handBack() {
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

// fleetMetadata names all objects, of all namespaces, that have labels or annotations of the fleet, also in a template.
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

// mcmNewSet is the rule by which Machine Controller Manager finds the current MachineSet of a MachineDeployment: the oldest one
// whose template is the same, apart from the hash and from what needs no new machines. If there is none, it creates one and
// replaces every machine. The rule is implemented here again, so that it does not share errors with the fleet.
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

// mcmGoesOn checks that for Machine Controller Manager the MachineSet with all machines of a MachineDeployment is the current one,
// and needs no change.
func (s *space) mcmGoesOn(deployment string) {
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
		s.Errorf("MachineSet %s is owned by %v, and there are %d machines, want %d", current.Name, current.OwnerReferences, len(machines), d.Spec.Replicas)
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
	// Without the hash in all of these, MCM labels machines and MachineSet, which blocks it for up to two minutes.
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

// finalizersOfMCM checks that the objects of the namespace have the finalizers that Machine Controller Manager removes.
func (s *space) finalizersOfMCM() {
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
