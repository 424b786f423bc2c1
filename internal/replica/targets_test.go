package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// putTarget creates or changes the Secret that names the target cluster of a namespace.
func (t *trial) putTarget(namespace string, data map[string][]byte) {
	t.Helper()
	apiserver.Add(t.control, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: DefaultOptions().Targets.Select.Secret}, Data: data,
	})
}

// addOrphan creates the VM of a Machine that does not exist, and has no Node.
func (t *trial) addOrphan(namespace string) *fakecloud.Resource {
	us := string(t.control.Get("namespaces", "", metav1.NamespaceSystem).GetUID())
	return t.cloud.Add(fakecloud.Resource{Joined: true, ControlCluster: us, Resource: driver.Resource{
		Kind: driver.ResourceVM, ID: "sim:///orphan-of-" + namespace, Namespace: namespace, Machine: "gone",
		MachineUID: types.UID("gone-in-" + namespace), NodeName: "gone",
	}})
}

// Machines of a namespace join the cluster that a Secret of the namespace names, whose Nodes carry
// no labels of slots. Those of a namespace without the Secret wait. The leader deletes orphans of
// all namespaces, also of those that another replica owns, after it has read their clusters. Nodes
// that no machine has are annotated, and no others.
func TestTargetsByNamespace(t *testing.T) {
	t.Parallel()
	o := replicaOptions(func(o *Options) {
		o.Targets.ByNamespace, o.Fleet.ShardBy = true, string(assignment.ByNamespace)
		o.Machine.CreationTimeout, o.Safety.OrphanVMsPeriod, o.Safety.OrphanVMsQuarantine = 2*time.Minute, time.Minute, time.Minute
	})
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		r.createUnmanaged()
		for _, server := range []*apiserver.Server{r.control, r.target} {
			apiserver.Add(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
		}
		r.createClass("a")
		r.createClass("c")
		r.putTarget("a", targettest.SecretOf("https://a.example", "t"))
		served, waiting := r.putRoot("a", "d", 2), r.putRoot("c", "e", 1)
		r.start("fleet-0")
		r.start("fleet-1")
		r.until("2 machines run", func() bool { return r.runningOf("d") == 2 })
		for _, o := range r.target.List("nodes") {
			if node := typed[corev1.Node](r, o); node.Labels[v1alpha1.LabelSlot] != "" && node.Annotations[v1alpha1.AnnotationMachine] != "" {
				t.Errorf("Node %s has the labels %v", node.Name, node.Labels)
			}
		}
		time.Sleep(time.Minute)
		if machines := r.machinesOf("e"); len(machines) != 1 || machines[0].Spec.ProviderID != "" {
			t.Errorf("without a target cluster: got %d machines of e, want one without a VM", len(machines))
		}
		valid := machinefacts.MachineDeploymentCondition(
			&typed[v1alpha1.MachineDeployment](r, r.control.Get("machinedeployments", "c", "e")).Status, v1alpha1.MachineDeploymentValid,
		)
		if valid == nil || valid.Reason != v1alpha1.ReasonTargetUnavailable ||
			!strings.Contains(valid.Message, "expected a Secret machine-controller-fleet-target, got none") {
			t.Errorf("without a target cluster: got the condition %+v", valid)
		}
		r.putTarget("c", targettest.SecretOf("https://c.example", "t"))
		r.until("the other machine runs", func() bool { return r.runningOf("e") == 1 })
		if r.ownerOf("a", "d") == r.ownerOf("c", "e") {
			t.Fatal("both namespaces have the same owner")
		}
		orphans := []*fakecloud.Resource{r.addOrphan("a"), r.addOrphan("c")}
		r.until("orphans are deleted", func() bool { return !orphans[0].Live() && !orphans[1].Live() })
		r.until("the Nodes without a machine are annotated, and no others", func() bool {
			return !slices.ContainsFunc(r.target.List("nodes"), func(node *apiserver.Object) bool {
				_, bound := v1alpha1.MachineOf(node)
				return bound == (node.GetAnnotations()[v1alpha1.AnnotationNotManaged] == "1")
			})
		})
		r.deleteRoot(served)
		r.control.Remove("secrets", "c", o.Targets.Select.Secret)
		r.deleteRoot(waiting)
		r.until("the deletion of the machine without a target cluster reports that it waits", func() bool {
			return strings.Contains(r.machinesOf("e")[0].Status.LastOperation.Description, "the target cluster is not available")
		})
		if r.run(5*time.Minute, func() bool { return len(r.machinesOf("e")) == 0 }) {
			t.Error("its VM was deleted without a drain")
		}
		r.control.Edit("machines", "c", r.machinesOf("e")[0].Name, func(u *unstructured.Unstructured) {
			u.SetLabels(labels.Merge(u.GetLabels(), labels.Set{v1alpha1.LabelForceDeletion: "true"}))
		})
		r.until("nothing is left", func() bool { return r.missing() == "" && len(r.control.List("machinedeployments")) == 0 })
	})
}

// The administrator of a target cluster has Nodes there that look like those of another namespace:
// unhealthy, being deleted, asking for their deletion, and bound to its machines or with the IDs of
// their VMs. No machine, Node or VM of that namespace changes, and no machine is bound to them.
func TestNodesThatClaimMachinesOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	o := replicaOptions(func(o *Options) {
		o.Targets.ByNamespace, o.Fleet.ShardBy = true, string(assignment.ByNamespace)
		o.Safety.OrphanVMsPeriod, o.Safety.OrphanVMsQuarantine = time.Minute, time.Minute
	})
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		hostile := apiserver.New("h", time.Now)
		r.ownTargets = map[string]*apiserver.Server{"hostile": hostile}
		for _, server := range []*apiserver.Server{r.control, r.target, hostile} {
			apiserver.Add(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
		}
		for namespace, host := range map[string]string{"a": "hostile", "b": "b"} {
			r.createClass(namespace)
			r.putTarget(namespace, targettest.SecretOf("https://"+host+".example", "t"))
		}
		r.putRoot("b", "victim", 2)
		r.start("fleet-0")
		r.until("the machines of the other namespace run", func() bool { return r.runningOf("victim") == 2 })
		r.putRoot("a", "d", 1)
		r.until("the machine of the administrator has a VM", func() bool {
			own := r.machinesOf("d")
			return len(own) == 1 && own[0].Spec.ProviderID != ""
		})
		state := func() (is []string) {
			for _, m := range r.machinesOf("victim") {
				node := r.target.Get("nodes", "", m.Labels[v1alpha1.LabelNode])
				is = append(is, fmt.Sprint(m.UID, m.ResourceVersion, m.Spec.ProviderID, node.GetUID(), node.GetResourceVersion()))
			}
			for _, vm := range r.cloud.All() {
				if vm.Namespace == "b" {
					is = append(is, fmt.Sprint(vm.ID, vm.Live()))
				}
			}
			slices.Sort(is)
			return is
		}
		before, own := state(), r.machinesOf("d")[0]
		for i, m := range r.machinesOf("victim") {
			node := typed[corev1.Node](r, r.target.Get("nodes", "", m.Labels[v1alpha1.LabelNode]))
			fake := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: node.Name, Labels: node.Labels, Annotations: node.Annotations, Finalizers: []string{v1alpha1.NodeFinalizerName, "a/b"},
			}, Spec: corev1.NodeSpec{ProviderID: m.Spec.ProviderID}}
			fake.Annotations[v1alpha1.AnnotationTriggerDeletion] = "true"
			fake.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
			apiserver.Add(hostile, fake)
			if i == 0 {
				hostile.Delete("nodes", "", fake.Name)
			}
			taken := fake.DeepCopy() // in the place of the Node of the administrator's machine
			taken.Name, taken.Annotations = own.Name, nil
			taken.Labels = map[string]string{v1alpha1.LabelMachineName: own.Name}
			if i == 0 {
				apiserver.Add(hostile, taken)
			}
		}
		r.run(20*time.Minute, func() bool { return !slices.Equal(state(), before) })
		if after := state(); !slices.Equal(after, before) {
			t.Errorf("the other namespace has changed: %s", cmp.Diff(before, after))
		}
		for _, node := range hostile.List("nodes") {
			if ref, bound := v1alpha1.MachineOf(node); bound && ref.Namespace != "b" {
				t.Errorf("Node %s is bound to %v", node.GetName(), ref)
			}
		}
	})
}

// newTrialOfTarget returns a trial with a replica, and a machine in the target cluster of
// namespace a that runs.
func newTrialOfTarget(t *testing.T) *trial {
	t.Helper()
	o := replicaOptions(func(o *Options) { o.Targets.ByNamespace, o.Fleet.ShardBy = true, string(assignment.ByNamespace) })
	r := newTrial(t, o, 1, nil)
	for _, server := range []*apiserver.Server{r.control, r.target} {
		apiserver.Add(server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
	}
	r.createClass("a")
	r.putTarget("a", targettest.SecretOf("https://a.example", "t"))
	r.putRoot("a", "d", 1)
	r.start("fleet-0")
	r.until("a machine runs", func() bool { return r.runningOf("d") == 1 })
	return r
}

// The Secret of the target is missing while a Node is unhealthy. The health timeout of
// its machine begins anew when the cluster is available again.
func TestTimeWithoutASecretIsAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTrialOfTarget(t)
		defer r.end()
		machine := r.machinesOf("d")[0]
		isKept := func() bool {
			return slices.ContainsFunc(r.machinesOf("d"), func(m *v1alpha1.Machine) bool {
				return m.UID == machine.UID && m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == v1alpha1.MachineUnknown
			})
		}
		r.setReady("False", machine.Labels[v1alpha1.LabelNode])
		r.run(r.options.Health.Timeout/2, nil)
		r.control.Remove("secrets", "a", r.options.Targets.Select.Secret)
		r.run(30*time.Minute, nil)
		r.putTarget("a", targettest.SecretOf("https://a.example", "t"))
		if r.run(r.options.Health.Timeout, func() bool { return !isKept() }) {
			t.Error("the machine was replaced for the time in which nothing was known of its Node")
		}
		r.until("the machine is replaced", func() bool { return !isKept() })
	})
}

// The credentials of a target cluster are revoked for longer than it takes until its API server is
// away, while machines are being created. With new credentials their VMs are created at once.
func TestNewCredentialsAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTrialOfTarget(t)
		defer r.end()
		r.target.Refuse("*", apierrors.NewUnauthorized("revoked"))
		const all = 20
		r.putRoot("a", "d", all)
		r.run(10*time.Minute, nil)
		if vms, _ := r.cloud.VMs(); vms != 1 {
			t.Errorf("%d VMs exist while the cluster rejects the credentials, want 1", vms)
		}
		r.target.Fault(nil)
		r.putTarget("a", targettest.SecretOf("https://a.example", "renewed"))
		if !r.run(5*time.Second, func() bool { vms, _ := r.cloud.VMs(); return vms == all }) {
			vms, _ := r.cloud.VMs()
			t.Errorf("5 s after the Secret has new credentials %d VMs exist, want %d", vms, all)
		}
	})
}
