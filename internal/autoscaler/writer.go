package autoscaler

import (
	"context"
	"sync"
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
	// readsAtOnce is how many Machines are read at a time for one call.
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
	if !v1alpha1.MayExist(types.NamespacedName{Namespace: who.namespace, Name: id}) {
		return status.Errorf(codes.NotFound, "expected the name of a MachineDeployment of namespace %s, got %.80q", who.namespace, id)
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

// targets finds the Machines of Nodes in what is known of the namespace, and, where that does not
// show all of them, in what is read now.
func (w *writer) targets(ctx context.Context, who identity, id string, deployment types.UID, nodes []groups.Node) ([]groups.Target, error) {
	var err error
	for _, age := range []time.Duration{maxAge, refreshAge} {
		var namespace *groups.Namespace
		if namespace, err = w.reader.namespace(ctx, who.namespace, age); err != nil {
			return nil, err
		}
		_, of, missing := namespace.Members(id)
		if err = missing; err != nil {
			continue
		}
		if of != deployment {
			err = replaced(who, id)
			continue
		}
		var targets []groups.Target
		if targets, err = namespace.Targets(id, nodes); err == nil {
			return targets, nil
		}
	}
	return nil, err
}

func replaced(who identity, id string) error {
	return status.Errorf(codes.Aborted, "MachineDeployment %s/%s was replaced by another one of its name; try again", who.namespace, id)
}

// readMachines replaces the Machines of targets by what the API server has of them. A Machine that
// is another one, or that another MachineSet has now, is gone.
func (w *writer) readMachines(ctx context.Context, namespace string, targets []groups.Target) error {
	var running sync.WaitGroup
	errs := make([]error, len(targets))
	free := make(chan struct{}, readsAtOnce)
	for i := range targets {
		if targets[i].Gone {
			continue
		}
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			errs[i] = w.readMachine(ctx, namespace, &targets[i])
		})
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) readMachine(ctx context.Context, namespace string, target *groups.Target) error {
	m, err := w.machines.Machines(namespace).Get(ctx, target.Machine.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		target.Gone = true
		return nil
	}
	if err != nil {
		return err
	}
	is := groups.MachineOf(m, w.wall())
	target.Gone = is.UID != target.Machine.UID || is.Set != target.Machine.Set
	target.Machine = is
	return nil
}
