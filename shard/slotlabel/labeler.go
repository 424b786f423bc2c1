package slotlabel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

const (
	// writesPerSecond is the number of labels that a replica writes per second: 10,000 machines with
	// their Nodes are 20,000 writes, which should take less than a minute.
	writesPerSecond = 500
	// workers is the number of slots of a replica that are labeled at a time in one namespace: they
	// share one read of the namespace. parallel is the number of concurrent writes of all of them.
	workers, parallel = 256, 64
	// recheckAfter is when a tree for which other holders must act first is read again, in case no
	// event arrives.
	recheckAfter = 5 * time.Second
)

// Config is the configuration of a Labeler. All fields but Target, Metrics and Tracer are required.
type Config struct {
	// Control and Target read and write metadata in the two clusters; Target may be nil. Machines
	// lists parents with their selectors.
	Control, Target metadata.Interface
	Machines        machineclient.MachineV1alpha1Interface
	Watch           *Watch
	Slots           policy.Slots
	// Known returns a cached object of the slots of this replica.
	Known func(kind policy.Kind, key types.NamespacedName) (metav1.Object, bool)
	// Served reports whether a namespace may be changed, and receives the slot of this replica in
	// which there is work.
	Served func(namespace string, slot int) bool
	// Gate admits the work of a slot, with its ownership in the context. Holds reports whether it
	// still would: labeling ends when a slot is about to be handed over.
	Gate  runner.Gate[Key]
	Holds func(slot int) bool
	// Events receives on the roots what is refused; see refused.go.
	Events  events.EventRecorder
	Clock   clock.WithTicker
	Metrics *runner.Metrics
	Tracer  trace.Tracer
}

// Labeler labels unlabeled objects, and hands mislabeled ones over to their slots. New returns one;
// call it before the Watch starts.
type Labeler struct {
	cfg       Config
	admission *Admission
	runner    *runner.Runner[Key]
	reader    *reader
	pace      flowcontrol.RateLimiter
	turns     chan struct{} // tokens of concurrent writes

	mu         sync.Mutex
	suspects   map[Key]map[object]uint64 // objects of this replica that seem to be mislabeled, each with the number of its last suspicion
	suspicions uint64                    // their count, since the start
	blocked    map[Key]map[object]bool   // objects that are blocked while they are handed over
	handedOver map[object]int            // objects being handed over, by the slot that they leave, until the caches show the new label
	waits      waits
	refused    map[object]string // why the label of an object was refused last
}

// Validate returns an error that names the fields that are missing.
func (c Config) Validate() error { return required.Fields(c, "Target", "Metrics", "Tracer") }

// New returns a Labeler. Errors: fields that are missing.
func New(cfg Config) (*Labeler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Labeler{
		cfg:      cfg,
		turns:    make(chan struct{}, parallel),
		pace:     flowcontrol.NewTokenBucketRateLimiterWithClock(writesPerSecond, parallel, cfg.Clock),
		suspects: map[Key]map[object]uint64{}, blocked: map[Key]map[object]bool{},
		handedOver: map[object]int{}, waits: waits{}, refused: map[object]string{},
	}
	l.reader = &reader{
		metadata: cfg.Control, machines: cfg.Machines, plant: l.plant, turns: make(chan struct{}, readsAtOnce), rounds: map[string]*round{},
	}
	l.admission = NewAdmission(l.mayRun)
	var err error
	l.runner, err = runner.New(runner.Config[Key]{
		Name: runner.SlotLabels, Reconcile: l.reconcile, Workers: runner.TenantsAtOnce * workers,
		Tenant: func(key Key) string { return key.Namespace }, Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	if err != nil {
		return nil, err
	}
	return l, cfg.Watch.OnChange(l.unlabeledChanged)
}

// Admission returns the Admission for the gates of the controllers of MachineDeployments,
// MachineSets and Machines.
func (l *Labeler) Admission() *Admission { return l.admission }

// Run watches and labels until ctx ends. Errors: ctx ended before all unlabeled objects were
// listed.
func (l *Labeler) Run(ctx context.Context) error {
	all := func(object) bool { return true } // passes were rejected while the objects were unknown
	err := l.cfg.Watch.Start(ctx, func() { l.admission.retry(all) })
	l.runner.Run(ctx)
	return err
}

// Opened enqueues the unlabeled objects of slots that this replica has begun to serve.
func (l *Labeler) Opened(slots []int) {
	for _, kind := range policy.Kinds() {
		if kind == policy.Node {
			continue
		}
		for unlabeled := range l.cfg.Watch.all(kind) {
			for _, key := range l.keys(unlabeled) {
				if slices.Contains(slots, key.Slot) {
					l.runner.Enqueue(key)
				}
			}
		}
	}
}

// NamespaceChanged enqueues the work in a namespace that may be served now.
func (l *Labeler) NamespaceChanged(namespace string) {
	for unlabeled := range l.cfg.Watch.in(namespace) {
		l.unlabeledChanged(unlabeled, false)
	}
	l.mu.Lock()
	for key := range l.suspects {
		if key.Namespace == namespace {
			l.runner.Enqueue(key)
		}
	}
	l.mu.Unlock()
	l.admission.Retry(namespace)
}

// Seen is called for every object of the slots of this replica that appears or changes.
func (l *Labeler) Seen(kind policy.Kind, meta metav1.Object) {
	o := policy.Of(kind, meta)
	root, known := l.root(o)
	named, labeled := policy.Read(o.Slot, l.cfg.Slots.Count)
	if labeled && l.arrived(object{kind, o.Key()}, named) {
		l.admission.Unblock(kind, o.Key()) // even if its root is not cached yet
	}
	switch {
	case !labeled:
		return // its slot was lost; the Watch reports the object
	case known && l.cfg.Slots.Of(root.Namespace, root.Name) == named:
		l.admission.Unblock(kind, o.Key())
	default:
		key := Key{o.Namespace, named}
		l.suspect(key, object{kind, o.Key()})
		if known {
			l.runner.Enqueue(key)
		} else {
			l.runner.EnqueueAfter(key, time.Second) // its parent may be cached shortly afterwards
		}
	}
	if kind == policy.Set { // unlabeled children whose parent was not cached before
		for unlabeled := range l.cfg.Watch.in(o.Namespace) {
			if unlabeled.Parent == o.UID {
				l.unlabeledChanged(unlabeled, false)
			}
		}
	}
}

// Left is called for every object of the slots of this replica that was deleted or has left them.
func (l *Labeler) Left(kind policy.Kind, key types.NamespacedName) {
	l.mu.Lock()
	delete(l.waits, object{kind, key})
	delete(l.handedOver, object{kind, key})
	delete(l.refused, object{kind, key})
	l.mu.Unlock()
	l.admission.Forget(kind, key)
	l.changed(object{kind, key})
}

// unlabeledChanged enqueues an unlabeled object for the slots whose holder may have to label it.
// Nodes are labeled with their machines.
func (l *Labeler) unlabeledChanged(unlabeled policy.Object, gone bool) {
	if unlabeled.Kind == policy.Node {
		return
	}
	l.changed(object{unlabeled.Kind, unlabeled.Key()})
	if gone {
		l.mu.Lock()
		delete(l.refused, object{unlabeled.Kind, unlabeled.Key()})
		l.mu.Unlock()
		return
	}
	for _, key := range l.keys(unlabeled) {
		l.runner.Enqueue(key)
	}
}

// keys returns the slots whose holder may have to label an unlabeled object: that of its root.
// While the caches do not show a parent, which then is in the slot of another replica or deleted,
// the holder of the slot of the object's own name reads live.
func (l *Labeler) keys(unlabeled policy.Object) []Key {
	own := Key{unlabeled.Namespace, l.cfg.Slots.Of(unlabeled.Namespace, unlabeled.Name)}
	root, known := l.root(unlabeled)
	if !known {
		return []Key{own}
	}
	keys := []Key{{root.Namespace, l.cfg.Slots.Of(root.Namespace, root.Name)}}
	if unlabeled.Kind == policy.Set && unlabeled.Parent != "" {
		if _, ok := l.find(policy.Deployment, root, unlabeled.Parent); !ok {
			keys = append(keys, own)
		}
	}
	return keys
}

// root returns the root of an object, as far as the caches show it. A MachineDeployment need not be
// cached: its name suffices.
func (l *Labeler) root(o policy.Object) (root types.NamespacedName, known bool) {
	parent := types.NamespacedName{Namespace: o.Namespace, Name: o.ParentName}
	switch {
	case o.Parent == "":
		return o.Key(), true
	case o.Kind == policy.Set:
		return parent, true
	}
	set, ok := l.find(policy.Set, parent, o.Parent)
	if !ok {
		return root, false
	}
	return l.root(set)
}

func (l *Labeler) find(kind policy.Kind, key types.NamespacedName, uid types.UID) (policy.Object, bool) {
	o, ok := l.cfg.Watch.get(kind, key)
	if !ok {
		meta, known := l.cfg.Known(kind, key)
		if !known {
			return policy.Object{}, false
		}
		o = policy.Of(kind, meta)
	}
	return o, o.UID == uid
}

// mayRun rejects objects in namespaces that are not served, roots that name another slot than their
// own, and roots with unlabeled objects below: all roots until the unlabeled objects are listed.
func (l *Labeler) mayRun(kind policy.Kind, key types.NamespacedName) bool {
	if kind != policy.Machine && !l.cfg.Watch.knowsTrees() {
		return false
	}
	own := l.cfg.Slots.Of(key.Namespace, key.Name)
	slot, isRoot := own, true // as far as the caches show it
	if meta, known := l.cfg.Known(kind, key); known {
		found := policy.Of(kind, meta)
		isRoot = found.Parent == ""
		if named, labeled := policy.Read(found.Slot, l.cfg.Slots.Count); labeled {
			slot = named
		}
	}
	if !l.cfg.Served(key.Namespace, slot) {
		return false
	}
	if isRoot && slot != own { // the holder of its own slot may still reconcile it, until it is handed back
		return false
	}
	if kind == policy.Machine || !isRoot { // the machine controller labels the Node of a machine
		return true
	}
	return !l.isBlocked(object{kind, key})
}

// reconcile labels the objects in a namespace that the holder of a slot has to label.
func (l *Labeler) reconcile(ctx context.Context, key Key) (runner.Result, error) {
	last := l.lastSuspicion()
	if !l.concerns(key, last) {
		l.blockMoving(key, nil)
		return runner.Result{}, nil
	}
	if !l.cfg.Served(key.Namespace, key.Slot) {
		return runner.Result{}, nil // NamespaceChanged enqueues the key when it is served
	}
	found, err := l.reader.read(ctx, key.Namespace)
	if err != nil {
		return runner.Result{}, err
	}
	adopted, err := l.adoptAll(ctx, found.offers.Adoptions(key.Slot))
	if err != nil || adopted {
		return runner.Result{RequeueAfter: time.Millisecond}, err // adopted objects belong to another tree now
	}
	var trees []policy.Tree
	for _, tree := range found.trees {
		if tree.Concerns(key.Slot) {
			trees = append(trees, tree)
		}
	}
	if len(trees) == 0 {
		l.clear(key, last) // the live read has replaced these suspicions
	}
	if !l.blockMoving(key, trees) {
		return runner.Result{RequeueAfter: recheckAfter}, nil // the end of the running passes enqueues the key
	}
	again, err := l.labelTrees(ctx, key, trees) // the watches enqueue the roots that wait for it
	return runner.Result{RequeueAfter: again}, err
}

func (l *Labeler) plant(objects []policy.Object) *snapshot {
	forest := policy.Plant(objects, l.nodes(objects))
	return &snapshot{forest: forest, trees: forest.Trees(l.cfg.Slots), offers: forest.Offers(l.cfg.Slots)}
}

// nodes returns the Nodes that Machines name and that may have to be labeled: unlabeled ones, and
// those of this replica's slots.
func (l *Labeler) nodes(objects []policy.Object) (nodes []policy.Object) {
	for _, o := range objects {
		key := types.NamespacedName{Name: o.NodeName}
		if unlabeled, ok := l.cfg.Watch.get(policy.Node, key); ok {
			nodes = append(nodes, unlabeled)
		} else if meta, ok := l.cfg.Known(policy.Node, key); ok {
			nodes = append(nodes, policy.Of(policy.Node, meta))
		}
	}
	return nodes
}

// blockMoving prevents passes of the objects that the holder of the slot hands over to others, and
// reports whether none runs. Objects that it had blocked before, and that stay, are unblocked.
func (l *Labeler) blockMoving(key Key, trees []policy.Tree) (quiet bool) {
	l.mu.Lock()
	before := l.blocked[key]
	delete(l.blocked, key)
	for _, tree := range trees {
		for _, o := range tree.Moving(key.Slot) {
			if l.blocked[key] == nil {
				l.blocked[key] = map[object]bool{}
			}
			l.blocked[key][object{o.Kind, o.Key()}] = true
			l.handedOver[object{o.Kind, o.Key()}] = key.Slot
		}
	}
	now := maps.Clone(l.blocked[key])
	var opened []object
	for o := range before {
		if !now[o] && l.handedOver[o] == key.Slot { // otherwise it is being handed over from another slot
			delete(l.handedOver, o)
			opened = append(opened, o)
		}
	}
	l.mu.Unlock()
	for _, o := range opened {
		l.admission.Unblock(o.kind, o.key)
	}
	quiet = true
	for o := range now {
		if !l.admission.Block(o.kind, o.key, func() { l.runner.Enqueue(key) }) {
			quiet = false
		}
	}
	return quiet
}

// labelTrees labels the trees, all at the same time: a tree that fits is reconciled at once, and
// its requests would compete with the writes for later trees. again is when to read again; 0 when
// all is done.
func (l *Labeler) labelTrees(ctx context.Context, key Key, trees []policy.Tree) (again time.Duration, err error) {
	fits, errs := make([]bool, len(trees)), make([]error, len(trees))
	var running sync.WaitGroup
	for i, tree := range trees {
		running.Go(func() { fits[i], errs[i] = l.labelTree(ctx, key, tree) })
	}
	running.Wait()
	if slices.Contains(fits, false) {
		again = recheckAfter
	}
	return again, errors.Join(errs...)
}

// labelTree labels a tree, from its leaves, and reports whether it fits then.
func (l *Labeler) labelTree(ctx context.Context, key Key, tree policy.Tree) (fits bool, err error) {
	var errs []error
	for next := tree.Next(key.Slot); len(next) > 0; next = tree.Next(key.Slot) {
		done, err := l.write(ctx, key.Slot, next, tree)
		errs = append(errs, err)
		tree = tree.Done(done...)
		for _, o := range done {
			l.moved(key, object{o.Kind, o.Key()})
		}
		if len(done) < len(next) {
			break
		}
	}
	return tree.Fits(), errors.Join(errs...)
}

// moved keeps an object blocked that belongs to another slot now, until the caches show the new
// label.
func (l *Labeler) moved(key Key, o object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.blocked[key], o)
}

// arrived reports whether the caches show, for the first time, that an object was handed over to
// another slot. That slot may be held by this replica, too.
func (l *Labeler) arrived(o object, slot int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, given := l.handedOver[o]
	if !given || from == slot {
		return false
	}
	delete(l.handedOver, o)
	return true
}

// write labels objects of a tree, several at a time, while the acting slot is held, and returns
// those that are labeled or deleted, and Nodes whose label is refused: the controller of their
// machines labels them when it can.
func (l *Labeler) write(ctx context.Context, acting int, objects []policy.Object, tree policy.Tree) (done []policy.Object, err error) {
	var mu sync.Mutex
	var errs []error
	var running sync.WaitGroup
	for _, o := range objects {
		if err := l.pace.Wait(ctx); err != nil || !l.cfg.Holds(acting) {
			break
		}
		l.turns <- struct{}{}
		running.Go(func() {
			defer func() { <-l.turns }()
			written, err := l.writeOne(ctx, o, tree.Slot)
			refused := l.report(tree, o, err)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("label %s %s: %w", o.Kind, o.Key(), err))
			}
			if written || refused && o.Kind == policy.Node {
				done = append(done, o)
			}
		})
	}
	running.Wait()
	if len(errs) > 1 { // many failures usually have one cause
		return done, fmt.Errorf("%w (and %d more like it)", errs[0], len(errs)-1)
	}
	return done, errors.Join(errs...)
}
