package replica

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/credentials"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/fence"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespacelease"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch"
	shardsession "github.com/machine-controller-fleet/machine-controller-fleet/shard/session"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

// slots has the caches of the slots that this replica holds, and of the objects in no slot.
type slots struct {
	*slotcache.Set
	*watched

	spread     assignment.Spread
	fence      *fence.Fence
	view       *objectcache.View
	nodes      *objectcache.Nodes
	unlabeled  *slotlabel.Watch
	labeler    *slotlabel.Labeler
	namespaces *namespacelease.NamespaceLeases
	switches   *namespaceswitch.Switches // nil without switches of namespaces

	undecodable *undecodable

	// opened and dropped are called when this replica has more, or fewer, objects to work on. They
	// return at once.
	opened, dropped []func()
}

var _ shardsession.Grants = (*slots)(nil)

// nodesKind names the only kind of objects of a slot that is in the target cluster.
const nodesKind = "Nodes"

// newSlots wires the sources of the view. Errors: watches that cannot be prepared.
func newSlots(d *deps, spread assignment.Spread) (*slots, error) {
	api := d.machines
	s := &slots{
		watched: &watched{clock: clock.RealClock{}, after: d.o.Fleet.Durations.BlindAfter, lists: []watchedLists{
			{controlName, d.controlLists}, {targetName, d.targetLists},
		}},
		spread: spread, fence: d.session.fence, view: d.view, nodes: objectcache.New[*corev1.Node](),
	}
	s.undecodable = &undecodable{view: d.view, events: d.recorder(v1alpha1.EventSourceMachineDeployment)}
	s.undecodable.watch()
	kinds := []slotcache.Kind{
		slotcache.KindOf("MachineDeployments",
			s.control("MachineDeployments", objectcache.FromEach(api.MachineDeployments(d.o.Namespace))), d.view.Deployments),
		slotcache.KindOf("MachineSets", s.control("MachineSets", objectcache.FromEach(api.MachineSets(d.o.Namespace))), d.view.Sets),
		slotcache.KindOf("Machines", s.control("Machines", objectcache.FromEach(api.Machines(d.o.Namespace))), d.view.Machines),
	}
	if d.cluster != nil {
		s.nodes = d.cluster.Nodes
		kinds = append(kinds,
			slotcache.KindOf(nodesKind, s.source(nodesKind, targetName, objectcache.From(d.target.CoreV1().Nodes())), objectcache.StoreOf(s.nodes)))
	}
	s.Set = slotcache.New(clock.RealClock{}, kinds...)
	var err error
	if s.switches, err = newSwitches(d, s); err != nil {
		return nil, err
	}
	s.unlabeled, err = slotlabel.NewWatch(d.metadata, d.targetMetadata, d.o.Namespace, spread.Count())
	if err != nil {
		return nil, err
	}
	if s.namespaces, err = newNamespaceLeases(d, s); err != nil {
		return nil, err
	}
	s.labeler, err = slotlabel.New(slotlabel.Config{
		Control: d.metadata, Target: d.targetMetadata, Machines: api, Watch: s.unlabeled,
		Slots: policy.Slots{Count: spread.Count(), Of: spread.Of}, Known: s.known,
		Served: s.namespaces.Served,
		Gate: namespaceswitch.Guard(s.switches, namespacelease.Counted(s.namespaces, namespaceOfKey,
			fence.NewGate(d.session.fence, func(key slotlabel.Key) (int, bool) { return key.Slot, true })), namespaceOfKey),
		Holds:  d.session.fence.Holds,
		Events: d.recorder(v1alpha1.EventSourceMachineDeployment), Clock: clock.RealClock{}, Metrics: d.metrics, Tracer: d.tracer,
	})
	if err != nil {
		return nil, err
	}
	s.namespaces.OnChange(s.labeler.NamespaceChanged)
	d.namespaces.OnChange(s.namespaces.SelectionChanged)
	reportLabeler(s.labeler, policy.Deployment, d.view.Deployments.Objects)
	reportLabeler(s.labeler, policy.Set, d.view.Sets.Objects)
	reportLabeler(s.labeler, policy.Machine, d.view.Machines.Objects)
	s.undecodable.showLabeler(s.labeler)
	return s, nil
}

// reportLabeler reports changes of the objects in this replica's slots to the labeler.
func reportLabeler[T interface {
	comparable
	metav1.Object
}](labeler *slotlabel.Labeler, kind policy.Kind, all *objectcache.Objects[T]) {
	var none T
	all.OnChange(func(before, after T) {
		if after == none {
			labeler.Left(kind, objectcache.Key(before))
			return
		}
		labeler.Seen(kind, after)
	})
}

// Open announces the objects of slots to the controllers, and reports the slots to the labeler, to
// the exclusion of namespaces and to their switches.
func (s *slots) Open(slots []int) {
	s.Set.Open(slots)
	s.labeler.Opened(slots)
	s.namespaces.Opened(slots)
	s.switches.Opened(slots)
	call(s.opened)
}

// Drop removes the objects of slots that were lost.
func (s *slots) Drop(slots []int) {
	s.Set.Drop(slots)
	s.namespaces.Dropped(slots)
	call(s.dropped)
}

func call(all []func()) {
	for _, f := range all {
		f()
	}
}

// Run watches and labels until ctx ends.
func (s *slots) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.Set.Run(ctx) })
	running.Go(func() {
		if err := s.namespaces.Start(ctx); err == nil {
			call(s.opened)
		}
		s.namespaces.Run(ctx) // also after ctx has ended: Run then shuts down its queue
	})
	running.Go(func() { _ = s.labeler.Run(ctx) }) // it ends when ctx does
	if s.switches != nil {
		running.Go(func() { s.switches.Run(ctx) })
	}
	running.Wait()
}

// count registers metrics of objects that exist and are not reconciled.
func (s *slots) count(registerer prometheus.Registerer) {
	gauge := func(name, help string, labels prometheus.Labels, count func() int) {
		registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(count()) }))
	}
	for _, kind := range policy.Kinds() {
		gauge("mcf_unlabeled_objects", "Objects in no slot, by kind; every Node that is no machine's counts.",
			prometheus.Labels{"kind": kind.String()}, func() int { return s.unlabeled.Count(kind) })
	}
	s.undecodable.count(registerer)
	gauge("mcf_refused_namespaces", "Namespaces with something to do for this replica that another holder of MCM's Leases keeps it out of.",
		nil, s.namespaces.CountRefused)
	gauge("mcf_unselected_namespaces",
		"Namespaces with roots in this replica's slots that --namespace-selector does not select, and that no other manager has served for 15 s.",
		nil, s.namespaces.CountUnselected)
}

// known returns the metadata of an object in this replica's slots.
func (s *slots) known(kind policy.Kind, key types.NamespacedName) (metav1.Object, bool) {
	if failure, known := s.undecodable.find(kind, key); known {
		return failure, true
	}
	switch kind {
	case policy.Deployment:
		return s.view.Deployments.Get(key)
	case policy.Set:
		return s.view.Sets.Get(key)
	case policy.Machine:
		return s.view.Machines.Get(key)
	case policy.Node:
		return s.nodes.Get(key)
	}
	return nil, false
}

// gate returns a Gate that admits keys of a kind by the slot labels of their objects.
func (s *slots) gate(kind policy.Kind) runner.Gate[types.NamespacedName] {
	inner := fence.NewGate(s.fence, func(key types.NamespacedName) (int, bool) {
		obj, known := s.known(kind, key)
		if !known {
			return 0, false
		}
		return policy.Read(obj.GetLabels()[v1alpha1.LabelSlot], s.spread.Count())
	})
	return namespaceswitch.Guard(s.switches,
		s.labeler.Admission().Gate(kind, namespacelease.Counted(s.namespaces, inNamespace, inner)), inNamespace)
}

// weigh returns the weights of this replica's slots.
func (s *slots) weigh() map[int]int64 {
	return assignment.Weights(s.spread.Count(), s.fence.Holds, s.view.Machines.All())
}

// sharedGate returns a Gate for objects that several roots share: their own key decides their slot.
// No key is admitted in a namespace that another manager serves.
func (s *slots) sharedGate() runner.Gate[types.NamespacedName] {
	inner := namespacelease.Counted(s.namespaces, inNamespace, fence.NewGate(s.fence, func(key types.NamespacedName) (int, bool) {
		return s.spread.Of(key.Namespace, key.Name), !s.namespaces.KeptOut(key.Namespace)
	}))
	guarded, switched := namespaceswitch.Guard(s.switches, inner, inNamespace).(*namespaceswitch.Gate[types.NamespacedName])
	if !switched {
		return inner
	}
	return struct {
		runner.Grouper[types.NamespacedName]
	}{guarded} // without Notify: it is the gate of several runners, which Opened fills
}

func inNamespace(key types.NamespacedName) string { return key.Namespace }

func namespaceOfKey(key slotlabel.Key) string { return key.Namespace }

// nodeGate returns a Gate that admits Nodes by their slot label, and those of a namespace's target
// cluster by the namespace. A Node's machine may be deleted, so its namespace may be unknown.
func (s *slots) nodeGate() runner.Gate[types.NamespacedName] {
	inner := namespacelease.Counted(s.namespaces, inNamespace, fence.NewGate(s.fence, func(key types.NamespacedName) (int, bool) {
		if key.Namespace != "" { // of the target cluster of that namespace
			return s.spread.Of(key.Namespace, ""), s.namespaces.Serves(key.Namespace)
		}
		node, known := s.nodes.Get(key)
		if !known {
			return 0, false
		}
		return policy.Read(node.Labels[v1alpha1.LabelSlot], s.spread.Count())
	}))
	return namespaceswitch.Guard(s.switches, inner, func(key types.NamespacedName) string {
		if node, known := s.nodes.Get(key); known && key.Namespace == "" {
			machine, _ := v1alpha1.MachineOf(node)
			return machine.Namespace
		}
		return key.Namespace
	})
}

// namespaceGate returns a Gate that admits the namespaces of this replica, where all of a namespace
// is in one slot.
func (s *slots) namespaceGate() runner.Gate[string] {
	return fence.NewGate(s.fence, func(namespace string) (int, bool) { return s.spread.Of(namespace, ""), true })
}

// goneGate returns a Gate that admits deleted machines, by their last slot.
func (s *slots) goneGate() runner.Gate[credentials.Gone] {
	inner := fence.NewGate(s.fence, func(gone credentials.Gone) (int, bool) { return policy.Read(gone.Slot, s.spread.Count()) })
	return namespaceswitch.Guard(s.switches, inner, func(gone credentials.Gone) string { return gone.Namespace })
}

// unlabeledNode reports whether the target cluster has a Node of that name that is in no slot.
func (s *slots) unlabeledNode(name string) bool {
	return s.unlabeled.Has(policy.Node, types.NamespacedName{Name: name})
}

// onUnlabeledNode calls f for every Node in no slot that appears or changes.
func (s *slots) onUnlabeledNode(f func(name string, uid types.UID)) error {
	return s.unlabeled.OnChange(func(o policy.Object, gone bool) {
		if o.Kind == policy.Node && !gone {
			f(o.Name, o.UID)
		}
	})
}
