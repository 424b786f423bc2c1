//go:build e2e

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const (
	// victimNamespace has the victim's machines in the control cluster, and their pods in the target
	// cluster.
	victimNamespace = "victim"
	// adminToken is a Secret of kube-system in the control cluster, and adminSecret its data.
	adminToken  = "admin-token"
	adminSecret = "the-token-of-an-administrator"
	// controlPlane is a Node that no machine has ever had, without a provider ID; joinedVM is one with
	// the provider ID of its VM.
	controlPlane, joinedVM = "control-plane", "joined-vm"
)

// victim is the target of attacks: two machines with their Nodes, pods and VMs, two Nodes that no
// machine has ever had, and a Secret.
type victim struct {
	lab      *harness.Lab
	machines []v1alpha1.Machine
	set      metav1.OwnerReference // to the victim's MachineSet, as its machines have it
	vm       cloudapi.Instance     // of joinedVM
	guarded  []*guarded

	mu    sync.Mutex
	harms map[string]string // by object, the first change of it
}

// guarded are objects that may not change.
type guarded struct {
	what     string
	client   dynamic.ResourceInterface
	selector string
	// open reports whether other objects may be created and deleted.
	open   bool
	before map[string]string
}

func newVictim(ctx context.Context, lab *harness.Lab) (*victim, error) {
	v := &victim{lab: lab, harms: map[string]string{}}
	if err := v.create(ctx); err != nil {
		return nil, fmt.Errorf("create the victim: %w", err)
	}
	control, err1 := dynamic.NewForConfig(lab.Config)
	target, err2 := dynamic.NewForConfig(lab.TargetConfig)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	of := func(client dynamic.Interface, namespace, resource string) dynamic.ResourceInterface {
		gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
		if slices.Contains(kinds, resource) {
			gvr = v1alpha1.SchemeGroupVersion.WithResource(resource)
		}
		return client.Resource(gvr).Namespace(namespace)
	}
	for _, resource := range append(kinds, "secrets") {
		v.guarded = append(v.guarded, &guarded{what: resource, client: of(control, victimNamespace, resource)})
	}
	v.guarded = append(v.guarded,
		&guarded{what: "secrets of kube-system", client: of(control, metav1.NamespaceSystem, "secrets"), selector: "metadata.name=" + adminToken},
		&guarded{what: "pods", client: of(target, victimNamespace, "pods")},
		&guarded{what: "nodes", client: of(target, "", "nodes"), open: true},
	)
	for _, g := range v.guarded {
		if err := v.guard(ctx, g); err != nil {
			return nil, fmt.Errorf("guard %s: %w", g.what, err)
		}
	}
	return v, nil
}

// create creates the victim's objects, and waits until they do not change any more.
func (v *victim) create(ctx context.Context) error {
	if err := v.lab.Prepare(ctx, victimNamespace, ""); err != nil {
		return err
	}
	machines := v.lab.Machines.MachineV1alpha1()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: adminToken}, StringData: map[string]string{"token": adminSecret}}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: victimNamespace}}
	_, err1 := v.lab.Control.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, secret, metav1.CreateOptions{})
	_, err2 := v.lab.Target.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	_, err3 := machines.MachineDeployments(victimNamespace).Create(ctx, harness.Deployment(victimNamespace, "pool", 2), metav1.CreateOptions{})
	vm, err4 := v.lab.Cloud.Create(ctx, cloudapi.CreateInstanceRequest{Name: joinedVM, Tags: map[string]string{"owner": "another"}})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	v.vm = vm
	for name, providerID := range map[string]string{controlPlane: "", joinedVM: vm.ProviderID} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
		if _, err := v.lab.Target.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := v.lab.Running(ctx, victimNamespace, 2); err != nil {
		return err
	}
	list, err := machines.Machines(victimNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	v.machines, v.set = list.Items, *metav1.GetControllerOf(&list.Items[0])
	for _, m := range v.machines {
		if err := v.settle(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until a machine's Node is claimed, and runs a pod there.
func (v *victim) settle(ctx context.Context, m v1alpha1.Machine) error {
	core := v.lab.Target.CoreV1()
	err := harness.Eventually(ctx, "Node "+nodeOf(&m)+" is claimed", func(ctx context.Context) error {
		node, err := core.Nodes().Get(ctx, nodeOf(&m), metav1.GetOptions{})
		if err == nil && node.Annotations[v1alpha1.AnnotationMachine] == "" {
			err = fmt.Errorf("it has annotations %v", node.Annotations)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := harness.Eventually(ctx, "pods can be created", func(ctx context.Context) error {
		_, err := core.ServiceAccounts(victimNamespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "on-" + nodeOf(&m)}, Spec: corev1.PodSpec{
		NodeName: nodeOf(&m), Containers: []corev1.Container{{Name: "pause", Image: "pause"}},
	}}
	_, err = core.Pods(victimNamespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func nodeOf(m *v1alpha1.Machine) string { return m.Labels[v1alpha1.LabelNode] }

// guard records the current objects, and watches them.
func (v *victim) guard(ctx context.Context, g *guarded) error {
	now, version, err := g.list(ctx)
	if err != nil {
		return err
	}
	if len(now) == 0 {
		return errors.New("there are none")
	}
	g.before = now
	w, err := harness.Watch(ctx, version, func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = g.selector
		return g.client.Watch(ctx, o)
	})
	if err != nil {
		return err
	}
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			switch {
			case !ok:
			case event.Type == watch.Deleted:
				v.see(g, object.GetName(), "it was deleted")
			default:
				v.see(g, object.GetName(), essence(object))
			}
		}
	}()
	return nil
}

// list returns the essence of all objects by name.
func (g *guarded) list(ctx context.Context) (now map[string]string, version string, err error) {
	list, err := g.client.List(ctx, metav1.ListOptions{FieldSelector: g.selector})
	if err != nil {
		return nil, "", err
	}
	now = map[string]string{}
	for i := range list.Items {
		if name := list.Items[i].GetName(); !g.open || g.before == nil || g.before[name] != "" {
			now[name] = essence(&list.Items[i])
		}
	}
	return now, list.GetResourceVersion(), nil
}

// see compares an object with its recorded version.
func (v *victim) see(g *guarded, name, now string) {
	before, known := g.before[name]
	if before == now || !known && g.open {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if key := g.what + " " + name; v.harms[key] == "" {
		v.harms[key] = cmp.Diff(before, now)
	}
}

// verdict returns the changes of the victim, at any time until now.
func (v *victim) verdict(ctx context.Context) error {
	for _, g := range v.guarded {
		now, _, err := g.list(ctx)
		if err != nil {
			return err
		}
		for name := range g.before {
			if now[name] == "" {
				v.see(g, name, "it is gone")
			}
		}
		for name, essence := range now {
			v.see(g, name, essence)
		}
	}
	vms, err := v.lab.Cloud.AllVMs(ctx)
	if err != nil {
		return err
	}
	alive := map[string]bool{}
	for _, vm := range vms {
		alive[vm.ProviderID] = (vm.State == cloudapi.StatePending || vm.State == cloudapi.StateRunning) && vm.SourceDestCheck
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range v.providerIDs() {
		if !alive[id] {
			v.harms["VM "+id] = "it does not run any more, or was changed"
		}
	}
	var harms []error
	for _, what := range slices.Sorted(maps.Keys(v.harms)) {
		harms = append(harms, fmt.Errorf("%s of the victim: %s", what, v.harms[what]))
	}
	return errors.Join(harms...)
}

// providerIDs are those of the victim's VMs.
func (v *victim) providerIDs() []string {
	ids := []string{v.vm.ProviderID}
	for _, m := range v.machines {
		ids = append(ids, m.Spec.ProviderID)
	}
	return ids
}

// nodes are the names of the victim's Nodes.
func (v *victim) nodes() []string {
	names := []string{controlPlane, joinedVM}
	for _, m := range v.machines {
		names = append(names, nodeOf(&m))
	}
	return names
}

// essence returns what no attack may change of an object: all but what its own controllers write
// over time.
func essence(object *unstructured.Unstructured) string {
	object = object.DeepCopy()
	phase, _, _ := unstructured.NestedString(object.Object, "status", "currentStatus", "phase")
	delete(object.Object, "status")
	metadata, _ := object.Object["metadata"].(map[string]any)
	for _, key := range []string{"resourceVersion", "managedFields", "generation"} {
		delete(metadata, key)
	}
	isMachine := slices.Contains([]string{"Machine", "MachineSet", "MachineDeployment", "MachineClass"}, object.GetKind())
	hasNoMachine := slices.Contains([]string{controlPlane, joinedVM}, object.GetName()) // the leader annotates such a Node
	annotations := object.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { // the fleet's notes for itself, and Kubernetes' own
		return hasNoMachine && key == v1alpha1.AnnotationNotManaged || isMachine && strings.HasPrefix(key, v1alpha1.FleetDomain) ||
			strings.HasPrefix(key, "node.alpha.kubernetes.io/")
	})
	object.SetAnnotations(annotations)
	labels := object.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, "beta.kubernetes.io/") })
	object.SetLabels(labels)
	switch object.GetKind() {
	case "Machine":
		if phase == string(v1alpha1.MachineFailed) || phase == string(v1alpha1.MachineTerminating) {
			object.Object["phase"] = phase
		}
	case "Node":
		taints, _, _ := unstructured.NestedSlice(object.Object, "spec", "taints")
		taints = slices.DeleteFunc(taints, func(taint any) bool {
			is, _ := taint.(map[string]any)
			key, _ := is["key"].(string)
			return strings.HasPrefix(key, "node.kubernetes.io/")
		})
		unstructured.RemoveNestedField(object.Object, "spec", "taints")
		if len(taints) > 0 {
			object.Object["taints"] = taints
		}
	case "Pod":
		delete(object.Object, "spec")
	}
	text, err := json.MarshalIndent(object.Object, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// notFound returns nil for an error NotFound.
func notFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
