package autoscaler

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/patch"
)

const (
	// attempts is how often a change is decided anew when the MachineDeployment was written in
	// between: the fleet writes it once or twice for each change.
	attempts = 5
	// readsAtOnce is how many Machines are read at a time for one batch of deletions.
	readsAtOnce = 8
)

// writer changes the sizes of groups. It is safe for concurrent use.
type writer struct {
	reader   *reader
	machines machineclient.MachineV1alpha1Interface
	commits  *patch.Committer[*v1alpha1.MachineDeployment]
	forUser  func(ctx context.Context, namespace, user string) context.Context
	wall     func() time.Time

	held, off func(namespace string) string

	deletions deletions
}

// decision decides what to write for a MachineDeployment that was just read; nil means nothing.
type decision func(live groups.Live) (desired *v1alpha1.MachineDeployment, err error)

// change reads a MachineDeployment, decides and writes, until no other write comes in between.
// Errors: a groups.RefusedError, or those of the API server.
func (w *writer) change(ctx context.Context, who identity, id string, decide decision) error {
	if err := checkGroup(who, id); err != nil {
		return err
	}
	var err error
	for range attempts {
		var d, desired, written *v1alpha1.MachineDeployment
		if d, err = w.machines.MachineDeployments(who.namespace).Get(ctx, id, metav1.GetOptions{}); err != nil {
			return err
		}
		live := groups.Live{Deployment: d, Held: w.held(who.namespace), Off: w.off(who.namespace), Now: w.wall()}
		if desired, err = decide(live); err != nil || desired == nil {
			return err
		}
		written, err = w.commits.Commit(w.forUser(ctx, who.namespace, who.user()), d, desired)
		w.commits.Forget(d.UID) // there is no informer that would end what is remembered
		if err == nil {
			klog.FromContext(ctx).Info("Resized MachineDeployment for its autoscaler", "machineDeployment", klog.KObj(d), "user", who.user(),
				"replicas", written.Spec.Replicas)
			w.reader.wrote(ctx, written)
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return status.Errorf(codes.Aborted, "MachineDeployment %s/%s was written %d times in between: %v; try again",
		who.namespace, id, attempts, err)
}

// checkGroup returns an error for an ID that is no name: it becomes part of requests.
func checkGroup(who identity, id string) error {
	if v1alpha1.MayExist(types.NamespacedName{Namespace: who.namespace, Name: id}) {
		return nil
	}
	return status.Errorf(codes.NotFound, "expected the name of a MachineDeployment of namespace %s, got %.80q", who.namespace, id)
}

func (w *writer) increase(ctx context.Context, who identity, id string, delta int32) error {
	return w.change(ctx, who, id, func(live groups.Live) (*v1alpha1.MachineDeployment, error) { return groups.Increase(live, delta) })
}

// decrease decides on the Machines of a namespace that is read after the MachineDeployment.
func (w *writer) decrease(ctx context.Context, who identity, id string, delta int32) error {
	return w.change(ctx, who, id, func(live groups.Live) (*v1alpha1.MachineDeployment, error) {
		namespace, err := w.reader.namespace(ctx, who.namespace, 0)
		if err != nil {
			return nil, err
		}
		members, of, err := namespace.Members(id)
		if err != nil {
			return nil, err
		}
		if of != live.Deployment.UID {
			return nil, replaced(who, id)
		}
		return groups.Decrease(live, delta, members)
	})
}

func replaced(who identity, id string) error {
	return status.Errorf(codes.Aborted, "MachineDeployment %s/%s was replaced by another one of its name; try again", who.namespace, id)
}
