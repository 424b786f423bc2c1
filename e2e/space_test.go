//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// interval between checks: many tests use the same API servers.
const interval = 200 * time.Millisecond

// space is the namespace of one test.
type space struct {
	*testing.T

	lab  *harness.Lab
	name string
	// lenient reports whether the lab has MCM's definitions instead of the fleet's.
	lenient bool
	seen    *memory
	ctx     context.Context //nolint:containedctx // it is the test's own, see Context
}

// memory holds the machines that a test has seen: deleted ones can only be searched by name.
type memory struct {
	mu       sync.Mutex
	machines map[types.UID]string
}

// newSpace creates a namespace, with a class and its Secret.
func newSpace(t *testing.T, lab *harness.Lab, name, providerSpec string) *space {
	t.Helper()
	return newSpaceBy(t, lab, unused(name), func(ctx context.Context, namespace string) error {
		return lab.Prepare(ctx, namespace, providerSpec)
	})
}

// unused returns the name of a namespace that does not exist yet.
func unused(name string) string { return fmt.Sprintf("%s-%x", name, time.Now().UnixNano()) }

// newSpaceBy is newSpace with other classes, and with a name that unused has returned.
func newSpaceBy(t *testing.T, lab *harness.Lab, namespace string, prepare func(ctx context.Context, namespace string) error) *space {
	t.Helper()
	s := &space{T: t, lab: lab, name: namespace, seen: &memory{machines: map[types.UID]string{}}, ctx: lab.Context(t)}
	s.must(prepare(t.Context(), s.name))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			found, _ := lab.Kubectl(ctx, "-n", s.name, "get", "mcd,mcs,mc,mcc,events", "-o", "wide")
			t.Logf("in namespace %s:\n%s", s.name, found)
		}
		// Its objects are deleted, and it stays: Kubernetes deletes a namespace with some 150 requests,
		// one after the other. Those of finished tests delayed TestDeleteNamespace.
		for _, resource := range []string{"machinedeployments", "machinesets", "machines", "machineclasses"} {
			if err := s.api().RESTClient().Delete().Namespace(s.name).Resource(resource).Do(ctx).Error(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// in is the same namespace in a subtest.
func (s *space) in(t *testing.T) *space {
	t.Helper()
	return &space{T: t, lab: s.lab, name: s.name, lenient: s.lenient, seen: s.seen, ctx: s.lab.Context(t)}
}

// Context returns the context of the test's waits, instead of that of the test: it ends with the
// lab, too.
func (s *space) Context() context.Context { return s.ctx }

func (s *space) api() machineclient.MachineV1alpha1Interface { return s.lab.Machines.MachineV1alpha1() }

func (s *space) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually waits until check returns nil.
func (s *space) eventually(what string, check func(context.Context) error) {
	s.Helper()
	s.must(harness.EventuallyEvery(s.Context(), interval, what, check))
}

// lasting is eventually for a state that does not end by itself.
func (s *space) lasting(what string, check func(context.Context) error) {
	s.Helper()
	s.must(harness.EventuallyLasting(s.Context(), interval, what, check))
}

// kubectl runs kubectl in the namespace.
func (s *space) kubectl(args ...string) string {
	s.Helper()
	out, err := s.lab.Kubectl(s.Context(), append([]string{"-n", s.name}, args...)...)
	s.must(err)
	return out
}

// deploy creates a MachineDeployment of the namespace's class.
func (s *space) deploy(name string, replicas int32, change ...func(*v1alpha1.MachineDeployment)) *v1alpha1.MachineDeployment {
	s.Helper()
	d := harness.Deployment(s.name, name, replicas)
	for _, f := range change {
		f(d)
	}
	created, err := s.api().MachineDeployments(s.name).Create(s.Context(), d, metav1.CreateOptions{})
	s.must(err)
	return created
}

// createMachine creates a stand-alone Machine of the namespace's class.
func (s *space) createMachine(name string, change ...func(*v1alpha1.Machine)) *v1alpha1.Machine {
	s.Helper()
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.name},
		Spec:       simulatedMachine(),
	}
	for _, f := range change {
		f(m)
	}
	created, err := s.api().Machines(s.name).Create(s.Context(), m, metav1.CreateOptions{})
	s.must(err)
	return created
}

// simulatedMachine is the spec of a machine of the namespace's class.
func simulatedMachine() v1alpha1.MachineSpec {
	return v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: harness.ClassName}}
}

// scale sets the replicas of a MachineDeployment.
func (s *space) scale(name string, replicas int) {
	s.Helper()
	s.patch("machinedeployments", name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// patch merges a patch into an object of the machine API.
func (s *space) patch(resource, name, patch string) {
	s.Helper()
	err := s.api().RESTClient().Patch(types.MergePatchType).Namespace(s.name).Resource(resource).Name(name).
		Body([]byte(patch)).Do(s.Context()).Error()
	s.must(err)
}

// remove deletes an object of the machine API, and does not wait.
func (s *space) remove(resource, name string) {
	s.Helper()
	s.must(s.api().RESTClient().Delete().Namespace(s.name).Resource(resource).Name(name).Do(s.Context()).Error())
}

// machines lists the machines whose name label has the value, all for "", oldest names first.
func (s *space) machines(ctx context.Context, pool string) ([]v1alpha1.Machine, error) {
	opts := metav1.ListOptions{}
	if pool != "" {
		opts.LabelSelector = v1alpha1.LabelName + "=" + pool
	}
	list, err := s.api().Machines(s.name).List(ctx, opts)
	if err != nil {
		return nil, err
	}
	s.seen.note(list.Items...)
	return list.Items, nil
}

func (m *memory) note(machines ...v1alpha1.Machine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, machine := range machines {
		m.machines[machine.UID] = machine.Name
	}
}

// running waits until the pool has exactly n machines, and all of them run.
func (s *space) running(pool string, n int) {
	s.Helper()
	s.lasting(fmt.Sprintf("%d machines of %q run", n, pool), func(ctx context.Context) error {
		machines, err := s.machines(ctx, pool)
		if err != nil {
			return err
		}
		var wrong deviations
		wrong.unless(len(machines) == n, "there are %d machines", len(machines))
		for _, m := range machines {
			wrong.unless(m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning && m.DeletionTimestamp == nil,
				"%s: phase %q, %s", m.Name, m.Status.CurrentStatus.Phase, m.Status.LastOperation.Description)
		}
		return wrong.err()
	})
}

// deviations collects deviations from what is expected.
type deviations []error

func (c *deviations) unless(ok bool, format string, args ...any) {
	if !ok {
		*c = append(*c, fmt.Errorf(format, args...))
	}
}

func (c *deviations) err() error { return errors.Join(*c...) }

// joined waits until the running machines of the namespace, their Nodes and the VMs at the cloud
// match, and returns the VM of each machine.
func (s *space) joined() map[string]string {
	s.Helper()
	var joined map[string]string
	s.lasting("machines, Nodes and VMs match", func(ctx context.Context) (err error) { // a Node is claimed a moment after its machine runs
		joined, err = s.agree(ctx)
		return err
	})
	return joined
}

// agree compares machines with their Nodes and VMs, and returns the VMs' IDs by machine.
func (s *space) agree(ctx context.Context) (map[string]string, error) {
	machines, err1 := s.machines(ctx, "")
	found, err2 := s.lab.Cloud.VMs(ctx, s.name)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	vms := map[string]cloudapi.Instance{}
	for _, vm := range found {
		vms[vm.ID] = vm
	}
	var wrong deviations
	wrong.unless(len(found) == len(machines), "the cloud has %d VMs for %d machines", len(found), len(machines))
	joined := map[string]string{}
	for _, m := range machines {
		id := path.Base(m.Spec.ProviderID)
		joined[m.Name] = id
		vm, ok := vms[id]
		wrong.unless(ok && vm.Tags[simulated.TagMachineUID] == string(m.UID), "%s: its provider ID is %s, and the cloud has %v",
			m.Name, m.Spec.ProviderID, found)
		node, err := s.lab.Target.CoreV1().Nodes().Get(ctx, m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
		if err != nil {
			wrong.unless(false, "%s: %w", m.Name, err)
			continue
		}
		wrong = append(wrong, checkNode(m, node)...)
	}
	return joined, wrong.err()
}

// checkNode compares a running machine with its Node.
func checkNode(m v1alpha1.Machine, node *corev1.Node) deviations {
	var wrong deviations
	ready := func(conditions []corev1.NodeCondition) bool {
		return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	}
	op := m.Status.LastOperation
	wrong.unless(slices.Contains(m.Finalizers, v1alpha1.FinalizerName), "%s has finalizers %v", m.Name, m.Finalizers)
	wrong.unless(op.State == v1alpha1.MachineStateSuccessful, "%s: last operation %v", m.Name, op)
	wrong.unless(ready(m.Status.Conditions), "%s: conditions %v", m.Name, m.Status.Conditions)
	wrong.unless(ready(node.Status.Conditions), "Node %s is not ready", node.Name)
	wrong.unless(path.Base(node.Spec.ProviderID) == path.Base(m.Spec.ProviderID), "Node %s is VM %s, its machine %s",
		node.Name, node.Spec.ProviderID, m.Spec.ProviderID)
	wrong.unless(node.Labels[v1alpha1.LabelMachineName] == m.Name, "Node %s has labels %v", node.Name, node.Labels)
	wrong.unless(slices.Contains(node.Finalizers, v1alpha1.NodeFinalizerName), "Node %s has finalizers %v", node.Name, node.Finalizers)
	return wrong
}

// gone waits until nothing is left of all machines that the test has seen. A class that remains is
// released later: its replica looks for machines of other replicas every 10 minutes.
func (s *space) gone() {
	s.Helper()
	s.lasting("nothing is left in "+s.name, func(ctx context.Context) error {
		machines, err := s.machines(ctx, "")
		if err == nil && len(machines) > 0 { // they are the last of it, nearly always, and the other requests are five
			err = fmt.Errorf("%d machines are left", len(machines))
		}
		if err != nil {
			return err
		}
		return s.nothingLeft(ctx)
	})
}

// nothingLeft checks what gone waits for, but the machines.
func (s *space) nothingLeft(ctx context.Context) error {
	sets, err1 := s.api().MachineSets(s.name).List(ctx, metav1.ListOptions{})
	deployments, err2 := s.api().MachineDeployments(s.name).List(ctx, metav1.ListOptions{})
	vms, err3 := s.lab.Cloud.VMs(ctx, s.name)
	nodes, err4 := s.nodes(ctx)
	tokens, err5 := s.tokens(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	var wrong deviations
	wrong.unless(len(sets.Items) == 0, "%d MachineSets are left", len(sets.Items))
	wrong.unless(len(deployments.Items) == 0, "%d MachineDeployments are left", len(deployments.Items))
	wrong.unless(len(vms) == 0, "%d VMs are left", len(vms))
	wrong.unless(len(nodes) == 0, "Nodes are left: %v", nodes)
	wrong.unless(len(tokens) == 0, "bootstrap tokens are left: %v", tokens)
	return wrong.err()
}

// nodes lists the Nodes of all machines that were seen.
func (s *space) nodes(ctx context.Context) ([]string, error) {
	list, err := s.lab.Target.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	names := slices.Collect(maps.Values(s.seen.machines))
	var found []string
	for _, node := range list.Items {
		if slices.Contains(names, node.Name) {
			found = append(found, node.Name)
		}
	}
	return found, nil
}

// tokens lists the bootstrap tokens of all machines that were seen.
func (s *space) tokens(ctx context.Context) ([]string, error) {
	list, err := s.lab.Target.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
		FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken),
	})
	if err != nil {
		return nil, err
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	var found []string
	for _, secret := range list.Items {
		if _, ours := s.seen.machines[types.UID(secret.Annotations[v1alpha1.AnnotationMachineUID])]; ours {
			found = append(found, secret.Name)
		}
	}
	return found, nil
}
