package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/page/model"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/view"
)

// zoneLabel is the label of a machine's template that names its zone.
const zoneLabel = corev1.LabelTopologyZone

// mostGone is how many machines are remembered that have ended.
const mostGone = 100

// Config has the clients of a Watch, and the knowledge of the replica. All fields but Namespace are
// required.
type Config struct {
	Machines machineclient.MachineV1alpha1Interface
	Leases   coordinationclient.CoordinationV1Interface
	// Namespace is the only one of machines that is served; "" means all. Serves reports whether the
	// fleet serves one.
	Namespace string
	Serves    func(namespace string) bool
	// Hold returns the annotation of a Namespace by which deletions are held there; "" without it.
	Hold func(namespace string) string
	// FleetNamespace and FleetName are where the Leases of the fleet are, and how they begin.
	FleetNamespace, FleetName string
	Timeouts                  view.Timeouts
	// Targets returns the target clusters that the replica knows, by the namespaces of machines.
	Targets func(namespaces []string) []view.TargetRead
	// Receipts returns the last receipts of the replica, the latest last.
	Receipts func() []receipt.Receipt
	// Replica and Version are those of this process.
	Replica, Version string
	// Wall is the time of the control cluster.
	Wall clock.PassiveClock
}

// Validate reports what is missing.
func (c Config) Validate() error { return required.Fields(c, "Namespace") }

// Watch has the objects that the page shows. New returns one. It is safe for concurrent use.
type Watch struct {
	cfg     Config
	changes atomic.Uint64

	mu   sync.Mutex
	runs *run // nil unless Run runs
}

// run has what is stored while Run runs.
type run struct {
	deployments *objectcache.Store[*v1alpha1.MachineDeployment]
	sets        *objectcache.Store[*v1alpha1.MachineSet]
	machines    *objectcache.Store[*v1alpha1.Machine]
	classes     *objectcache.Store[*v1alpha1.MachineClass]
	leases      *objectcache.Store[*coordinationv1.Lease]
	since       time.Time // when Run began

	mu     sync.Mutex
	listed map[string]bool
	failed map[string]error
	gone   []model.Gone
}

// New returns a Watch that requests nothing yet. Errors: required fields are missing.
func New(cfg Config) (*Watch, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Watch{cfg: cfg}, nil
}

// Changes returns a number that is another one after something has changed.
func (w *Watch) Changes() uint64 { return w.changes.Load() }

// Run lists and watches until ctx ends, and stores nothing afterwards.
func (w *Watch) Run(ctx context.Context) {
	r := &run{
		deployments: objectcache.NewStore[*v1alpha1.MachineDeployment](), sets: objectcache.NewStore[*v1alpha1.MachineSet](),
		machines: objectcache.NewStore[*v1alpha1.Machine](), classes: objectcache.NewStore[*v1alpha1.MachineClass](),
		leases: objectcache.NewStore[*coordinationv1.Lease](), listed: map[string]bool{}, failed: map[string]error{},
		since: w.cfg.Wall.Now(),
	}
	r.machines.OnChange(func(before, after *v1alpha1.Machine) {
		if before != nil && after == nil && before.DeletionTimestamp != nil {
			r.ended(before, w.cfg.Wall.Now())
		}
	})
	w.set(r)
	defer w.set(nil)
	api, in := w.cfg.Machines, w.cfg.Namespace
	var running sync.WaitGroup
	defer running.Wait()
	begin(ctx, w, r, &running, "MachineDeployments", objectcache.FromEach(api.MachineDeployments(in)), "", r.deployments, slimDeployment)
	begin(ctx, w, r, &running, "MachineSets", objectcache.FromEach(api.MachineSets(in)), "", r.sets, slimSet)
	begin(ctx, w, r, &running, "Machines", objectcache.FromEach(api.Machines(in)), "", r.machines, slimMachine)
	begin(ctx, w, r, &running, "MachineClasses", objectcache.FromEach(api.MachineClasses(in)), "", r.classes, classWithZone)
	begin(ctx, w, r, &running, view.MissingLeases, objectcache.From(w.cfg.Leases.Leases(w.cfg.FleetNamespace)),
		labels.Set{v1alpha1.LabelFleet: w.cfg.FleetName}.String(), r.leases, slimLease)
}

// kinds lists the kinds that have to be read before the page is complete.
func kinds() []string {
	return []string{"MachineDeployments", "MachineSets", "Machines", "MachineClasses", view.MissingLeases}
}

func (w *Watch) set(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs = r
	w.changes.Add(1)
}

// begin lists and watches one kind.
func begin[T metav1.Object](
	ctx context.Context, w *Watch, r *run, running *sync.WaitGroup, kind string, from objectcache.Source, selector string,
	store *objectcache.Store[T], slim func(T) T,
) {
	list := from.List
	from.List = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		all, err := list(apianswers.Unrecorded(ctx), options)
		if err != nil && ctx.Err() == nil {
			r.fails(kind, err)
			w.changes.Add(1)
		}
		return all, err
	}
	store.OnChange(func(before, after T) {
		if !isRenewal(before, after) {
			w.changes.Add(1)
		}
	})
	running.Go(func() {
		objectcache.Watch(ctx, kind+" of the page", from, selector, &objectcache.Mirror[T]{
			Store: store, Mine: store.Each,
			Keep: func(obj T) (T, bool) {
				return slim(obj), kind == view.MissingLeases || w.cfg.Serves(obj.GetNamespace())
			},
			Listed: func() {
				r.fails(kind, nil)
				w.changes.Add(1)
			},
		})
	})
}

// isRenewal reports whether two versions are those of a Lease that was renewed, and differ in
// nothing else: each replica renews its own every two seconds. That one is silent is seen as time
// goes on.
func isRenewal[T metav1.Object](before, after T) bool {
	was, isLease := any(before).(*coordinationv1.Lease)
	is, _ := any(after).(*coordinationv1.Lease)
	if !isLease || was == nil || is == nil {
		return false
	}
	same := *was.Spec.DeepCopy()
	same.RenewTime = is.Spec.RenewTime
	return apiequality.Semantic.DeepEqual(same, is.Spec) && maps.Equal(was.Annotations, is.Annotations)
}

// fails records that a list has failed, or was answered if err is nil.
func (r *run) fails(kind string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failed, kind)
	if err != nil {
		r.failed[kind] = err
		return
	}
	r.listed[kind] = true
}

// ended remembers a machine that has ended.
func (r *run) ended(m *v1alpha1.Machine, now time.Time) {
	one := view.Snapshot{Machines: []*v1alpha1.Machine{m}, Sets: r.sets.In(m.Namespace)}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range view.DeletionsOf(one) {
		r.gone = append(r.gone, model.Gone{Deletion: d, At: now})
	}
	if over := len(r.gone) - mostGone; over > 0 {
		r.gone = slices.Delete(r.gone, 0, over)
	}
}

// Read returns what the page shows now.
func (w *Watch) Read() model.Input {
	in := model.Input{Replica: w.cfg.Replica, Version: w.cfg.Version, Receipts: w.cfg.Receipts()}
	in.Snapshot = view.Snapshot{Now: w.cfg.Wall.Now(), FleetName: w.cfg.FleetName, Timeouts: w.cfg.Timeouts}
	w.mu.Lock()
	r := w.runs
	w.mu.Unlock()
	if r == nil {
		return in
	}
	// First, since what is listed from now on may be only in part in what is read below.
	r.readings(&in)
	in.Deployments, in.Sets, in.Machines = r.deployments.All(), r.sets.All(), r.machines.All()
	in.Classes, in.Leases = r.classes.All(), r.leases.All()
	in.Targets = w.cfg.Targets(w.namespaces(&in))
	if n := r.undecodable(); n > 0 {
		in.Unread = append(in.Unread, fmt.Errorf("%d objects are not shown: %w", n, errUndecodable).Error())
	}
	return in
}

// readings sets what has been read until now, and what could not be.
func (r *run) readings(in *model.Input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in.Gone, in.Since = slices.Clone(r.gone), r.since
	in.Loaded = true
	for _, kind := range kinds() {
		err := r.failed[kind]
		if err != nil {
			in.Missing = append(in.Missing, view.Missing{What: kind, Why: err.Error()})
			in.Unread = append(in.Unread, fmt.Sprintf("%s: %v", kind, err))
		}
		in.Loaded = in.Loaded && (r.listed[kind] || err != nil)
	}
}

var errUndecodable = errors.New("they cannot be decoded")

func (r *run) undecodable() int {
	return r.deployments.Undecodable.Len() + r.sets.Undecodable.Len() + r.machines.Undecodable.Len() + r.classes.Undecodable.Len()
}

// namespaces returns those of machines and MachineDeployments, and adds those in which deletions
// are held to the snapshot.
func (w *Watch) namespaces(in *model.Input) (all []string) {
	seen := map[string]bool{}
	note := func(namespace string) {
		if !seen[namespace] {
			seen[namespace] = true
			all = append(all, namespace)
		}
	}
	for _, d := range in.Deployments {
		note(d.Namespace)
	}
	for _, m := range in.Machines {
		note(m.Namespace)
	}
	slices.Sort(all)
	for _, name := range all {
		if why := w.cfg.Hold(name); why != "" {
			n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, v1alpha1.AnnotationHoldDeletions, why)
			in.Namespaces = append(in.Namespaces, n)
		}
	}
	return all
}
