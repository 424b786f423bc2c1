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
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// Name of the runner in metrics, logs and spans.
const Name = "slot-labels"

const (
	// DefaultPace is how many labels a replica writes in a second: 10,000 machines with their Nodes are 20,000 writes, which
	// are to be done within a minute.
	DefaultPace = 500
	// defaultWorkers is how many slots of a replica are labelled at a time in one namespace: they share what is read of a namespace. parallel
	// is how many writes of all of them are on their way.
	defaultWorkers, parallel = 256, 64
	// lookAgain is when a tree is read again for which other holders have to act first, should no event tell.
	lookAgain = 5 * time.Second
)

// Config is what a Labeler needs. All but Served, Workers, Pace, Metrics and Tracer are required.
type Config struct {
	// Control and Target read and write metadata of the two clusters, of which there may be no Target; Machines lists parents
	// with their selectors.
	Control, Target metadata.Interface
	Machines        machineclient.MachineV1alpha1Interface
	Watch           *Watch
	Slots           policy.Slots
	// Known returns an object of the slots of this replica, as its caches show it.
	Known func(kind policy.Kind, key types.NamespacedName) (metav1.Object, bool)
	// Served says whether a namespace may be touched, and is told in which of our slots there is something to do; nil means
	// every one.
	Served func(namespace string, slot int) bool
	// Gate admits the work of a slot, with its ownership in the context. Holds says whether it still would: labelling ends
	// when a slot is to be handed over.
	Gate  runner.Gate[Key]
	Holds func(slot int) bool
	// Workers is how many slots are labelled at a time in one namespace; default 256. Pace is writes a second; default DefaultPace.
	Workers, Pace int
	Clock         clock.WithTicker
	Metrics       *runner.Metrics
	Tracer        trace.Tracer
}

// Labeler labels strays, and gives misfits to the slots that they belong to. Make one with New, before the Watch starts.
type Labeler struct {
	cfg    Config
	doors  *Doors
	runner *runner.Runner[Key]
	reader *reader
	pace   flowcontrol.RateLimiter
	turns  chan struct{} // of the writes

	mu       sync.Mutex
	suspects map[Key]map[object]bool // own objects that seem to name the wrong slot
	closing  map[Key]map[object]bool // those behind closed doors
	given    map[object]int          // those that are given away, and from which slot, until the caches show that
	waits    waits
}

// New makes a Labeler.
func New(cfg Config) (*Labeler, error) {
	if cfg.Workers == 0 {
		cfg.Workers = defaultWorkers
	}
	if cfg.Pace == 0 {
		cfg.Pace = DefaultPace
	}
	l := &Labeler{
		cfg:      cfg,
		turns:    make(chan struct{}, parallel),
		pace:     flowcontrol.NewTokenBucketRateLimiterWithClock(float32(cfg.Pace), parallel, cfg.Clock),
		suspects: map[Key]map[object]bool{}, closing: map[Key]map[object]bool{},
		given: map[object]int{}, waits: waits{},
	}
	l.reader = &reader{metadata: cfg.Control, plant: l.plant, rounds: map[string]*round{}}
	l.doors = NewDoors(l.mayEnter)
	var err error
	l.runner, err = runner.New(runner.Config[Key]{
		Name: Name, Reconcile: l.reconcile, Workers: runner.TenantsAtOnce * cfg.Workers, Tenant: func(key Key) string { return key.Namespace },
		Gate: cfg.Gate, Clock: cfg.Clock, Metrics: cfg.Metrics, Tracer: cfg.Tracer,
	})
	if err != nil {
		return nil, err
	}
	return l, cfg.Watch.OnChange(l.unlabeledChanged)
}

// Doors returns the doors that the gates of the controllers of MachineDeployments, MachineSets and Machines go through.
func (l *Labeler) Doors() *Doors { return l.doors }

// Run watches and labels until ctx ends. Errors: ctx has ended before all strays were known.
func (l *Labeler) Run(ctx context.Context) error {
	everybody := func(object) bool { return true } // that has come too early
	err := l.cfg.Watch.Start(ctx, func() { l.doors.retry(everybody) })
	l.runner.Run(ctx)
	return err
}

// Opened has the strays of slots looked at that this replica has begun to serve.
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

// NamespaceChanged has a namespace looked at that may be served now.
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
	l.doors.Retry(namespace)
}

// Seen is told of every object of the slots of this replica that appears or changes.
func (l *Labeler) Seen(kind policy.Kind, meta metav1.Object) {
	o := policy.Of(kind, meta)
	root, known := l.root(o)
	named, labelled := policy.Read(o.Slot, l.cfg.Slots.Count)
	if labelled && l.arrived(object{kind, o.Key()}, named) {
		l.doors.Open(kind, o.Key()) // whether or not its root is known by now
	}
	switch {
	case !labelled:
		return // its slot was lost; the Watch tells of it
	case known && l.cfg.Slots.Of(root.Namespace, root.Name) == named:
		l.doors.Open(kind, o.Key())
	default:
		key := Key{o.Namespace, named}
		l.mu.Lock()
		note(l.suspects, key, object{kind, o.Key()})
		l.mu.Unlock()
		if known {
			l.runner.Enqueue(key)
		} else {
			l.runner.EnqueueAfter(key, time.Second) // its parent may come into the cache a moment later
		}
	}
	if kind == policy.Set { // the parent without which nothing was known of a stray
		for unlabeled := range l.cfg.Watch.in(o.Namespace) {
			if unlabeled.Parent == o.UID {
				l.unlabeledChanged(unlabeled, false)
			}
		}
	}
}

// Left is told of every object of the slots of this replica that is gone or has left them.
func (l *Labeler) Left(kind policy.Kind, key types.NamespacedName) {
	l.mu.Lock()
	delete(l.waits, object{kind, key})
	delete(l.given, object{kind, key})
	l.mu.Unlock()
	l.doors.Forget(kind, key)
	l.changed(object{kind, key})
}

func note(in map[Key]map[object]bool, key Key, o object) {
	if in[key] == nil {
		in[key] = map[object]bool{}
	}
	in[key][o] = true
}

// unlabeledChanged has a stray labelled by whoever may have to. Nodes are labelled with their machines.
func (l *Labeler) unlabeledChanged(unlabeled policy.Object, gone bool) {
	if unlabeled.Kind == policy.Node {
		return
	}
	l.changed(object{unlabeled.Kind, unlabeled.Key()})
	if gone {
		return
	}
	for _, key := range l.keys(unlabeled) {
		l.runner.Enqueue(key)
	}
}

// keys are the slots whose holder may have to label a stray: that of its root. While the caches do not show a parent,
// which then is in the slot of another replica or gone, the holder of the slot of the stray's own name looks, live.
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

// root climbs to the root of an object, as far as the caches show it. The name of a MachineDeployment is known without.
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

// mayEnter keeps controllers out of namespaces that are not served, from roots that name another slot than their own, and
// from roots with strays below: all, as long as strays may be there that are not known.
func (l *Labeler) mayEnter(kind policy.Kind, key types.NamespacedName) bool {
	if kind != policy.Machine && !l.cfg.Watch.knowsTrees() {
		return false
	}
	own := l.cfg.Slots.Of(key.Namespace, key.Name)
	slot, isRoot := own, true // as far as the caches show it
	if meta, known := l.cfg.Known(kind, key); known {
		found := policy.Of(kind, meta)
		isRoot = found.Parent == ""
		if named, labelled := policy.Read(found.Slot, l.cfg.Slots.Count); labelled {
			slot = named
		}
	}
	if l.cfg.Served != nil && !l.cfg.Served(key.Namespace, slot) {
		return false
	}
	if isRoot && slot != own { // its own slot's holder may still be at work on it, until it is given back
		return false
	}
	if kind == policy.Machine || !isRoot { // a machine labels its Node itself
		return true
	}
	return !l.isBlocked(object{kind, key})
}

// concerns says whether the caches show anything that the holder of the slot may have to label.
func (l *Labeler) concerns(key Key) bool {
	l.mu.Lock()
	suspects := slices.Collect(maps.Keys(l.suspects[key]))
	l.mu.Unlock()
	if slices.ContainsFunc(suspects, l.seemsMislabeled) {
		return true
	}
	l.clear(key)
	for unlabeled := range l.cfg.Watch.in(key.Namespace) {
		if slices.Contains(l.keys(unlabeled), key) {
			return true
		}
	}
	return false
}

// seemsMislabeled says that the caches show an object, and not that its label fits.
func (l *Labeler) seemsMislabeled(o object) bool {
	meta, known := l.cfg.Known(o.kind, o.key)
	if !known {
		return false
	}
	found := policy.Of(o.kind, meta)
	root, known := l.root(found)
	return !known || policy.Value(l.cfg.Slots.Of(root.Namespace, root.Name)) != found.Slot
}

// clear drops the suspicion of all objects of a key.
func (l *Labeler) clear(key Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.suspects, key)
}

// reconcile labels what the holder of a slot has to label in a namespace.
func (l *Labeler) reconcile(ctx context.Context, key Key) (runner.Result, error) {
	if !l.concerns(key) {
		l.closeDoors(key, nil)
		return runner.Result{}, nil
	}
	if l.cfg.Served != nil && !l.cfg.Served(key.Namespace, key.Slot) {
		return runner.Result{}, nil // NamespaceChanged tells when it is
	}
	found, err := l.reader.read(ctx, key.Namespace)
	if err != nil {
		return runner.Result{}, err
	}
	adopted, err := l.offer(ctx, found.forest.Offered(l.cfg.Slots, key.Slot))
	if err != nil || adopted {
		return runner.Result{RequeueAfter: time.Millisecond}, err // what is adopted belongs to another tree now
	}
	var trees []policy.Tree
	for _, tree := range found.trees {
		if slices.Contains(tree.Actors(), key.Slot) {
			trees = append(trees, tree)
		}
	}
	if len(trees) == 0 {
		l.clear(key) // whatever the caches made of it
	}
	if !l.closeDoors(key, trees) {
		return runner.Result{RequeueAfter: lookAgain}, nil // the end of the passes that run wakes us
	}
	again, err := l.labelTrees(ctx, key, trees) // the watches show it to the roots that wait for it
	return runner.Result{RequeueAfter: again}, err
}

func (l *Labeler) plant(objects []policy.Object) *snapshot {
	forest := policy.Plant(objects, l.nodes(objects))
	return &snapshot{forest: forest, trees: forest.Trees(l.cfg.Slots)}
}

// nodes returns the Nodes that Machines name and that may have to be labelled: strays, and those of our own slots.
func (l *Labeler) nodes(objects []policy.Object) (nodes []policy.Object) {
	for _, o := range objects {
		if o.NodeName == "" {
			continue
		}
		key := types.NamespacedName{Name: o.NodeName}
		if unlabeled, ok := l.cfg.Watch.get(policy.Node, key); ok {
			nodes = append(nodes, unlabeled)
		} else if meta, ok := l.cfg.Known(policy.Node, key); ok {
			nodes = append(nodes, policy.Of(policy.Node, meta))
		}
	}
	return nodes
}

// closeDoors keeps passes from what the holder of the slot gives to others, and says whether none runs. What it had
// closed before and does not give any more is opened again.
func (l *Labeler) closeDoors(key Key, trees []policy.Tree) (quiet bool) {
	l.mu.Lock()
	before := l.closing[key]
	delete(l.closing, key)
	for _, tree := range trees {
		for _, o := range tree.Moving(key.Slot) {
			note(l.closing, key, object{o.Kind, o.Key()})
			l.given[object{o.Kind, o.Key()}] = key.Slot
		}
	}
	now := maps.Clone(l.closing[key])
	var opened []object
	for o := range before {
		if !now[o] && l.given[o] == key.Slot { // else it is given away from another slot by now
			delete(l.given, o)
			opened = append(opened, o)
		}
	}
	l.mu.Unlock()
	for _, o := range opened {
		l.doors.Open(o.kind, o.key)
	}
	quiet = true
	for o := range now {
		quiet = l.doors.Close(o.kind, o.key, func() { l.runner.Enqueue(key) }) && quiet
	}
	return quiet
}

// labelTrees labels the trees, all at the same time: what fits is reconciled at once, and those that came later would have
// to share the API server with that. again is when to look again; 0 when all is done.
func (l *Labeler) labelTrees(ctx context.Context, key Key, trees []policy.Tree) (again time.Duration, err error) {
	fits, errs := make([]bool, len(trees)), make([]error, len(trees))
	var running sync.WaitGroup
	for i, tree := range trees {
		running.Go(func() { fits[i], errs[i] = l.labelTree(ctx, key, tree) })
	}
	running.Wait()
	if slices.Contains(fits, false) {
		again = lookAgain
	}
	return again, errors.Join(errs...)
}

// labelTree labels a tree, from its leaves, and says whether it fits then.
func (l *Labeler) labelTree(ctx context.Context, key Key, tree policy.Tree) (fits bool, err error) {
	var errs []error
	for next := tree.Next(key.Slot); len(next) > 0; next = tree.Next(key.Slot) {
		done, err := l.write(ctx, key.Slot, next, tree.Slot)
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

// moved leaves the door of an object closed that belongs to another slot now, until the caches show that.
func (l *Labeler) moved(key Key, o object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.closing[key], o)
}

// arrived reports whether the caches show, for the first time, that an object was given to another slot. That slot may be
// one of ours, too.
func (l *Labeler) arrived(o object, slot int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, given := l.given[o]
	if !given || from == slot {
		return false
	}
	delete(l.given, o)
	return true
}

// write labels objects with a slot, some at a time, while the acting one is held, and returns those that need it no more.
func (l *Labeler) write(ctx context.Context, acting int, objects []policy.Object, slot int) (done []policy.Object, err error) {
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
			written, err := l.writeOne(ctx, o, slot)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("label %s %s: %w", o.Kind, o.Key(), err))
			}
			if written {
				done = append(done, o)
			}
		})
	}
	running.Wait()
	if len(errs) > 1 { // what fails for many fails for one reason
		return done, fmt.Errorf("%w (and %d more like it)", errs[0], len(errs)-1)
	}
	return done, errors.Join(errs...)
}
