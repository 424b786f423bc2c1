package update

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machineconfig/join/stamp"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/ownerref"
)

// roots finds the MachineDeployment, or the MachineSet, of the machine of a Node, also where
// another replica reconciles it. What was read is remembered while the Node exists: a machine
// changes its root only when a client rewrites owner references.
type roots struct {
	view      *objectcache.View
	metadata  metadata.Interface
	namespace string // the only one that is served; "" means all
	isWhole   bool   // the view has all machines of the namespace: none is read

	mu    sync.Mutex
	known map[types.UID]rooted // by Node
}

// rooted is the root of the machine that a Node is bound to; zero for none.
type rooted struct {
	machine machinev1alpha1.MachineRef
	root    v1alpha1.MachineReference
}

func newRoots(view *objectcache.View, metadata metadata.Interface, namespace string, isWhole bool) *roots {
	return &roots{view: view, metadata: metadata, namespace: namespace, isWhole: isWhole, known: map[types.UID]rooted{}}
}

func (r *roots) forget(node types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, node)
}

// of returns the root of the machine of a Node; the zero value for a Node without one. A Node that
// names a machine which does not name the Node has none: its kubelet can write that.
func (r *roots) of(ctx context.Context, node *corev1.Node) (v1alpha1.MachineReference, error) {
	ref, bound := machinev1alpha1.MachineOf(node)
	if !bound || r.namespace != "" && ref.Namespace != r.namespace {
		return v1alpha1.MachineReference{}, nil
	}
	r.mu.Lock()
	known, is := r.known[node.UID]
	r.mu.Unlock()
	if is && known.machine == ref {
		return known.root, nil
	}
	root, err := r.find(ctx, ref, node.Name)
	if err != nil {
		return root, fmt.Errorf("find the MachineDeployment of Node %s: %w", node.Name, err)
	}
	if r.isWhole {
		return root, nil // it may show the machine later
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[node.UID] = rooted{ref, root}
	return root, nil
}

func (r *roots) find(ctx context.Context, ref machinev1alpha1.MachineRef, node string) (none v1alpha1.MachineReference, err error) {
	if m, known := r.view.Machines.Get(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}); known &&
		m.Labels[machinev1alpha1.LabelNode] == node {
		if root, ok := ownerref.RootOf(r.view, m); ok {
			return stamp.ReferenceTo(root), nil
		}
	}
	if r.isWhole {
		return none, nil
	}
	m, err := r.read(ctx, "machines", ref.Namespace, ref.Name)
	if err != nil || m == nil || m.Labels[machinev1alpha1.LabelNode] != node {
		return none, err
	}
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil || owner.Kind != stamp.KindSet {
		return none, nil
	}
	set, err := r.read(ctx, "machinesets", ref.Namespace, owner.Name)
	if err != nil || set == nil {
		return none, err
	}
	if above := metav1.GetControllerOfNoCopy(set); above != nil {
		return v1alpha1.MachineReference{Kind: above.Kind, Namespace: ref.Namespace, Name: above.Name}, nil
	}
	return v1alpha1.MachineReference{Kind: stamp.KindSet, Namespace: ref.Namespace, Name: set.Name}, nil
}

// read returns the metadata of an object; nil if there is none.
func (r *roots) read(ctx context.Context, resource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	found, err := r.metadata.Resource(machinev1alpha1.SchemeGroupVersion.WithResource(resource)).Namespace(namespace).Get(ctx, name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nil means that there is none
	}
	return found, err //nolint:wrapcheck // the caller does
}

// referring returns the names of the pools that refer to a root.
func referring(pools []*v1alpha1.MachineConfigPool, root v1alpha1.MachineReference) (names []string) {
	for _, pool := range stamp.Referring(pools, root) {
		names = append(names, pool.Name)
	}
	return names
}
