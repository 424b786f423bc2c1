package autoscaler

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
)

const (
	// maxAge is how old a snapshot is at most that a call is answered from. A client calls Refresh
	// each 10 s.
	maxAge = 15 * time.Second
	// refreshAge is how old it may be after a Refresh, however often that is called.
	refreshAge = time.Second
	// rememberedNamespaces is how many snapshots are kept.
	rememberedNamespaces = 100
)

// reader has snapshots of namespaces. It is safe for concurrent use.
type reader struct {
	machines machineclient.MachineV1alpha1Interface
	clock    clock.PassiveClock
	// wall returns the time of the control cluster, held why deletions are held, and off why nothing
	// is done in a namespace.
	wall      func() time.Time
	held, off func(namespace string) string
	maxPods   func(namespace, deployment string) (n int64, ok bool)
	// read counts a read by its result.
	read func(result string)

	turns pacing.Turns[string]
	mu    sync.Mutex
	last  *lru.Cache
}

// snapshot is a namespace and when the request for it began.
type snapshot struct {
	*groups.Namespace

	began time.Time
}

// namespace returns a namespace that is at most so old: 0 means that it is read now. Calls for the
// same namespace wait for one read.
func (r *reader) namespace(ctx context.Context, name string, age time.Duration) (*groups.Namespace, error) {
	asked := r.clock.Now()
	isNew := func(s snapshot) bool { return s.Namespace != nil && !s.began.Before(asked.Add(-age)) }
	if last := r.remembered(name); isNew(last) {
		return last.Namespace, nil
	}
	unlock, err := r.turns.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if last := r.remembered(name); isNew(last) {
		return last.Namespace, nil
	}
	began := r.clock.Now()
	whole, err := r.list(ctx, name)
	if err != nil {
		r.read("failed")
		return nil, err
	}
	r.read("read")
	r.remember(name, snapshot{whole, began})
	return whole, nil
}

// wrote replaces a MachineDeployment in the snapshot by the version that was written.
func (r *reader) wrote(ctx context.Context, d *v1alpha1.MachineDeployment) {
	unlock, err := r.turns.Lock(ctx, d.Namespace)
	if err != nil {
		return // the snapshot is replaced soon
	}
	defer unlock()
	if last := r.remembered(d.Namespace); last.Namespace != nil {
		r.remember(d.Namespace, snapshot{last.With(slim(d)), last.began})
	}
}

func (r *reader) remembered(name string) snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, _ := r.last.Get(name)
	s, _ := last.(snapshot)
	return s
}

func (r *reader) remember(name string, s snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.Add(name, s)
}

// list reads a namespace: MachineDeployments first, so that a name which has left one of them is
// that of a Machine that the list of Machines shows as being deleted.
func (r *reader) list(ctx context.Context, name string) (*groups.Namespace, error) {
	w := groups.World{Name: name, Sets: map[types.UID]types.UID{}, Held: r.held(name), Off: r.off(name), Pods: map[string]int64{}}
	if err := r.listGroups(ctx, &w); err != nil || len(w.Deployments) == 0 {
		return groups.NewNamespace(w), err
	}
	if err := r.listParents(ctx, &w); err != nil {
		return nil, err
	}
	now := r.wall()
	err := decode.EachPage(ctx, "Machines", r.machines.Machines(name).List, func(page *v1alpha1.MachineList) {
		for i := range page.Items {
			w.Machines = append(w.Machines, groups.MachineOf(&page.Items[i], now))
		}
	})
	if err != nil {
		return nil, err
	}
	return groups.NewNamespace(w), nil
}

// listGroups reads the MachineDeployments that are node groups.
func (r *reader) listGroups(ctx context.Context, w *groups.World) error {
	all := r.machines.MachineDeployments(w.Name)
	return decode.EachPage(ctx, "MachineDeployments", all.List, func(page *v1alpha1.MachineDeploymentList) {
		for i := range page.Items {
			d := &page.Items[i]
			if _, ok, _ := validation.NodeGroupOf(d.Annotations); !ok {
				continue
			}
			w.Deployments = append(w.Deployments, slim(d))
			if most, isSet := r.maxPods(w.Name, d.Name); isSet {
				w.Pods[d.Name] = most
			}
		}
	})
}

// listParents reads which MachineSets belong to which MachineDeployments, and the classes.
func (r *reader) listParents(ctx context.Context, w *groups.World) error {
	err := decode.EachPage(ctx, "MachineSets", r.machines.MachineSets(w.Name).List, func(page *v1alpha1.MachineSetList) {
		for i := range page.Items {
			if owner := metav1.GetControllerOf(&page.Items[i]); owner != nil {
				w.Sets[page.Items[i].UID] = owner.UID
			}
		}
	})
	if err != nil {
		return err
	}
	return decode.EachPage(ctx, "MachineClasses", r.machines.MachineClasses(w.Name).List, func(page *v1alpha1.MachineClassList) {
		for i := range page.Items {
			c := &page.Items[i]
			w.Classes = append(w.Classes, &v1alpha1.MachineClass{
				ObjectMeta: metav1.ObjectMeta{Name: c.Name}, NodeTemplate: c.NodeTemplate.DeepCopy(),
			})
		}
	})
}

// slim returns a copy without what no answer depends on.
func slim(d *v1alpha1.MachineDeployment) *v1alpha1.MachineDeployment {
	d = d.DeepCopy()
	d.ManagedFields = nil
	d.Status.FailedMachines = nil
	return d
}
