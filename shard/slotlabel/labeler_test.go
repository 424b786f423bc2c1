package slotlabel

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/slotlabel/policy"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// slots has four slots; a root has the slot of the first digit of its name.
func slots() policy.Slots {
	return policy.Slots{Count: 4, Of: func(_, root string) int { return int(root[0]-'0') % 4 }}
}

// bench is a Labeler with two clusters, for a replica that holds the slots in held.
type bench struct {
	t               *testing.T
	control, target *apiserver.Server
	machines        *apiserver.Server // of MachineSets with selectors
	labeler         *Labeler
	events          eventLog

	mu     sync.Mutex
	held   map[int]bool
	shut   bool  // admits nothing
	asked  []Key // what was enqueued
	passes int   // that run
	served atomic.Bool
}

func (b *bench) Admit(ctx context.Context, key Key) (context.Context, func(), bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, key)
	if b.shut || !b.held[key.Slot] {
		return nil, nil, false
	}
	b.passes++
	return ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.passes--
	}, true
}

// enqueued returns the slots of namespace n that were enqueued since the last call, in order, and
// fails for other namespaces.
func (b *bench) enqueued() (slots []int) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range b.asked {
		if key.Namespace != "n" {
			b.t.Errorf("%s is enqueued", key)
		}
		slots = append(slots, key.Slot)
	}
	b.asked = nil
	slices.Sort(slots)
	return slots
}

// meta returns the metadata of an object; parent is of the kind above.
func meta(kind policy.Kind, name, slot, parent string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: name, UID: types.UID(name), ResourceVersion: "1", Labels: map[string]string{"pool": "a"},
	}}
	m.APIVersion, m.Kind = v1alpha1.SchemeGroupVersion.String(), kind.String()
	if kind == policy.Node {
		m.APIVersion, m.Namespace = "v1", ""
		if machine, ok := strings.CutPrefix(name, "node-"); ok {
			m.Annotations = map[string]string{v1alpha1.AnnotationMachine: "n/" + machine + "/" + machine}
		}
	}
	if kind == policy.Machine {
		m.Labels[v1alpha1.LabelNode] = "node-" + name
	}
	if slot != "" {
		m.Labels[v1alpha1.LabelSlot] = slot
	}
	if parent != "" {
		yes := true
		m.OwnerReferences = []metav1.OwnerReference{{Kind: (kind + 1).String(), Name: parent, UID: types.UID(parent), Controller: &yes}}
	}
	return m
}

// newBench returns a bench in a bubble whose labeler runs, and has listed the unlabeled objects.
func newBench(t *testing.T, held []int, objects ...*metav1.PartialObjectMetadata) *bench {
	t.Helper()
	b := stillBench(t, held, objects...)
	b.run()
	time.Sleep(time.Second) // it polls its Watch
	return b
}

// run runs the labeler until the end of the test.
func (b *bench) run() {
	ctx, stop := context.WithCancel(b.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = b.labeler.Run(ctx) })
	b.t.Cleanup(func() { stop(); running.Wait() })
}

// stillBench returns a bench whose labeler does not run yet.
func stillBench(t *testing.T, held []int, objects ...*metav1.PartialObjectMetadata) *bench {
	t.Helper()
	control, target := apiserver.Recording(), apiserver.Recording()
	for _, o := range objects {
		if o.Kind == policy.Node.String() {
			apiserver.Add(target, o)
		} else {
			apiserver.Add(control, o)
		}
	}
	b := benchBetween(t, control, target, 0)
	for _, slot := range held {
		b.setHeld(slot, true)
	}
	return b
}

// benchBetween returns a bench with two clusters that others may use, too, whose watches lag. It
// holds no slot.
func benchBetween(t *testing.T, control, target *apiserver.Server, lag time.Duration) *bench {
	t.Helper()
	b := &bench{t: t, control: control, target: target, held: map[int]bool{}}
	b.served.Store(true)
	direct := func(_ apiserver.Request, send func() error) error { return send() }
	inControl, inTarget := control.Late(lag, direct).Metadata, target.Late(lag, direct).Metadata
	w, err := NewWatch(inControl, inTarget, "", 4)
	if err != nil {
		t.Fatal(err)
	}
	b.machines = apiserver.Recording(&v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "1-set", UID: "1-set"},
		Spec: v1alpha1.MachineSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}},
		},
	})
	b.labeler, err = New(Config{
		Control: inControl, Target: inTarget, Machines: b.machines.Machines(),
		Watch: w, Slots: slots(), Known: b.known, Gate: b, Holds: b.holds, Events: &b.events, Clock: clock.RealClock{},
		Served: func(string, int) bool { return b.served.Load() },
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) holds(slot int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[slot]
}

func (b *bench) setHeld(slot int, holds bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[slot] = holds
}

func (b *bench) serverOf(kind policy.Kind) *apiserver.Server {
	if kind == policy.Node {
		return b.target
	}
	return b.control
}

// read returns an object as it is stored; nil when there is none.
func (b *bench) read(kind policy.Kind, name string) *metav1.PartialObjectMetadata {
	namespace := "n"
	if kind == policy.Node {
		namespace = ""
	}
	return apiserver.Read[metav1.PartialObjectMetadata](b.serverOf(kind), kind.Resource(), namespace, name)
}

// known returns an object as the replica's caches would: of the slots that it holds.
func (b *bench) known(kind policy.Kind, key types.NamespacedName) (metav1.Object, bool) {
	o := b.read(kind, key.Name)
	if o == nil {
		return nil, false
	}
	slot, ok := policy.Read(o.Labels[v1alpha1.LabelSlot], 4)
	b.mu.Lock()
	defer b.mu.Unlock()
	return o, ok && b.held[slot]
}

// labels returns the slot labels of all objects, by name.
func (b *bench) labels() map[string]string {
	found := map[string]string{}
	for _, kind := range policy.Kinds() {
		for _, o := range b.serverOf(kind).List(kind.Resource()) {
			found[o.GetName()] = o.GetLabels()[v1alpha1.LabelSlot]
		}
	}
	return found
}

// becomes checks the labels after a time in which all retries end.
func (b *bench) becomes(want map[string]string) {
	b.t.Helper()
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	if diff := cmp.Diff(want, b.labels()); diff != "" {
		b.t.Fatalf("labels (-want +got):\n%s", diff)
	}
}

func TestTreeIsLabeledByTheHolderOfItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stillBench(t, []int{1},
			meta(policy.Deployment, "1", "", ""), meta(policy.Set, "s", "", "1"), meta(policy.Machine, "m", "nonsense", "s"),
			meta(policy.Deployment, "2", "", ""),
			meta(policy.Node, "node-m", "", ""), meta(policy.Node, "foreign", "", ""))
		var order []string // of the writes
		for _, server := range []*apiserver.Server{b.control, b.target} {
			server.Fault(func(r apiserver.Request) error {
				if r.Verb != "patch" {
					return nil
				}
				time.Sleep(time.Second)
				b.mu.Lock()
				defer b.mu.Unlock()
				if order = append(order, r.Name); b.passes == 0 {
					t.Errorf("%s is written after the end of its pass", r.Name)
				}
				return nil
			})
		}
		b.run()
		b.becomes(map[string]string{"1": "1", "s": "1", "m": "1", "node-m": "1", "2": "", "foreign": ""})
		if want := []string{"node-m", "m", "s", "1"}; !slices.Equal(order, want) {
			t.Errorf("written in the order %v, want %v", order, want)
		}
		b.setHeld(2, true)
		b.labeler.Opened([]int{2})
		b.becomes(map[string]string{"1": "1", "s": "1", "m": "1", "node-m": "1", "2": "2", "foreign": ""})
	})
}

func TestRootsAreRejectedUntilAllUnlabeledObjectsAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stillBench(t, nil, meta(policy.Deployment, "1", "1", ""))
		listed := make(chan struct{})
		b.control.Fault(func(r apiserver.Request) error {
			if r.Resource == policy.Set.Resource() {
				<-listed
			}
			return nil
		})
		var again []types.NamespacedName
		gate := gateOf(b.labeler.Admission(), policy.Deployment, runner.Open[types.NamespacedName]{}, func(key types.NamespacedName) {
			again = append(again, key)
		})
		root := types.NamespacedName{Namespace: "n", Name: "1"}
		b.run()
		time.Sleep(time.Second)
		if _, _, ok := gate.Admit(t.Context(), root); ok {
			t.Error("a root is reconciled before the unlabeled objects below it are known")
		}
		close(listed)
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(again, []types.NamespacedName{root}) {
			t.Errorf("%s is enqueued, want %s", again, root)
		}
		if _, _, ok := gate.Admit(t.Context(), root); !ok {
			t.Error("the root is not admitted although all unlabeled objects are known")
		}
	})
}

func TestRootIsRejectedUntilItsTreeFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil, meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "", "1"))
		if b.labeler.mayRun(policy.Deployment, types.NamespacedName{Namespace: "n", Name: "1"}) {
			t.Error("the root may be reconciled although its set is in no slot")
		}
		if !b.labeler.mayRun(policy.Deployment, types.NamespacedName{Namespace: "n", Name: "2"}) {
			t.Error("another root may not be reconciled")
		}
		b.served.Store(false)
		if b.labeler.mayRun(policy.Machine, types.NamespacedName{Namespace: "n", Name: "m"}) {
			t.Error("a machine may be reconciled in a namespace that is not served")
		}
	})
}

func TestOrphanIsAdoptedBeforeItIsLabeledAsRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := meta(policy.Machine, "3-foreign", "", "")
		foreign.Labels["pool"] = "b"
		lost := meta(policy.Machine, "2-lost", "3", "") // its parent was in slot 3
		b := stillBench(t, []int{1, 2, 3}, meta(policy.Set, "1-set", "1", ""), meta(policy.Machine, "2-orphan", "", ""), lost, foreign)
		failures, patches := 3, map[string]int{}
		b.control.Fault(func(r apiserver.Request) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if r.Verb == "patch" {
				patches[r.Name]++
			}
			if r.What() == "get machines" && failures > 0 { // before an adoption
				failures--
				return errors.New("away")
			}
			return nil
		})
		b.run()
		b.labeler.Seen(policy.Machine, lost)
		b.becomes(map[string]string{"1-set": "1", "2-orphan": "1", "2-lost": "1", "3-foreign": "3"})
		for _, name := range []string{"2-orphan", "2-lost"} {
			orphan, ok := b.known(policy.Machine, types.NamespacedName{Namespace: "n", Name: name})
			if !ok || metav1.GetControllerOf(orphan) == nil || metav1.GetControllerOf(orphan).UID != "1-set" {
				t.Errorf("the orphan was not adopted: %v", orphan)
			}
			if patches[name] != 2 {
				t.Errorf("%d writes of the orphan, want two: its owner and its label", patches[name])
			}
		}
	})
}

func TestOrphanedSetIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stillBench(t, []int{1, 2}, meta(policy.Deployment, "1-deployment", "1", ""), meta(policy.Set, "2-orphan", "", ""))
		apiserver.Add(b.machines, &v1alpha1.MachineDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "1-deployment", UID: "1-deployment"},
			Spec: v1alpha1.MachineDeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}},
			},
		})
		b.run()
		b.becomes(map[string]string{"1-deployment": "1", "2-orphan": "1"})
	})
}

// A parent that cannot be decoded adopts when it can be decoded, and does not prevent other parents
// from adopting.
func TestOrphanIsAdoptedNextToAnUndecodableParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stillBench(t, []int{1, 2, 3}, meta(policy.Set, "1-set", "1", ""), meta(policy.Machine, "2-orphan", "", ""))
		for resource, kind := range map[string]string{"machinesets": "MachineSet", "machinedeployments": "MachineDeployment"} {
			b.machines.AddJSON(resource,
				`{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"`+kind+`","metadata":{"namespace":"n","name":"u"},"spec":[]}`)
		}
		b.run()
		b.becomes(map[string]string{"1-set": "1", "2-orphan": "1"})
	})
}

func TestMislabeledObjectIsHandedOverWhenNothingIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []int{2},
			meta(policy.Deployment, "1", "1", ""), meta(policy.Set, "s", "1", "1"), meta(policy.Machine, "m", "2", "s"),
			meta(policy.Node, "node-m", "2", ""))
		key := types.NamespacedName{Namespace: "n", Name: "m"}
		gate := gateOf(b.labeler.Admission(), policy.Machine, openGate{}, func(types.NamespacedName) {})
		_, done, ok := gate.Admit(t.Context(), key)
		if !ok {
			t.Fatal("not admitted")
		}
		machine, _ := b.known(policy.Machine, key)
		b.labeler.Seen(policy.Machine, machine)
		time.Sleep(time.Minute)
		if _, _, ok := gate.Admit(t.Context(), key); ok {
			t.Error("admitted while it is being handed over")
		}
		if got := b.labels()["m"]; got != "2" {
			t.Errorf("the machine was handed over to slot %s while a pass of it runs", got)
		}
		done()
		synctest.Wait() // without advancing the time
		if diff := cmp.Diff(map[string]string{"1": "1", "s": "1", "m": "1", "node-m": "1"}, b.labels()); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		b.labeler.runner.Enqueue(Key{"n", 2}) // for which nothing is left
		synctest.Wait()
		if _, _, ok := gate.Admit(t.Context(), key); ok {
			t.Error("the machine is admitted although the caches do not show its new slot")
		}
	})
}

type openGate struct{}

func (openGate) Admit(ctx context.Context, _ types.NamespacedName) (context.Context, func(), bool) {
	return ctx, func() {}, true
}

func TestReadsAreSharedButNeverBeginBeforeTheCall(t *testing.T) {
	server := apiserver.Recording(meta(policy.Deployment, "1", "", ""))
	hold := make(chan struct{})
	server.Fault(func(r apiserver.Request) error {
		if r.What() == "list machines" {
			<-hold
		}
		return nil
	})
	r := &reader{metadata: server.Metadata(), turns: make(chan struct{},
		1), rounds: map[string]*round{}, plant: func(objects []policy.Object) *snapshot {
		return &snapshot{forest: policy.Plant(objects, nil), trees: policy.Plant(objects, nil).Trees(slots())}
	}}
	var running sync.WaitGroup
	for range 20 {
		running.Go(func() {
			if found, err := r.read(t.Context(), "n"); err != nil || len(found.trees) != 1 {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
	for server.Count("list machines") == 0 {
		time.Sleep(time.Millisecond)
	}
	close(hold)
	running.Wait()
	if lists := server.Count("list machines"); lists > 3 {
		t.Errorf("%d lists for 20 concurrent reads", lists)
	}
	if len(r.rounds) > 0 {
		t.Error("a round is still stored")
	}
}

// A machine and its set that are created while a namespace is read appear as a machine without a
// parent, at first.
func TestParentCreatedDuringAReadIsFound(t *testing.T) {
	set, machine := meta(policy.Set, "set", "", ""), meta(policy.Machine, "machine", "", "set")
	server := apiserver.Recording(machine)
	server.Lose(func(r apiserver.Request) error {
		if r.What() == "list machinesets" {
			apiserver.Add(server, set)
		}
		return nil
	})
	r := &reader{metadata: server.Metadata(), turns: make(chan struct{},
		1), rounds: map[string]*round{}, plant: func(objects []policy.Object) *snapshot {
		return &snapshot{forest: policy.Plant(objects, nil)}
	}}
	found, err := r.read(t.Context(), "n")
	if err != nil || !found.forest.IsWhole() {
		t.Errorf("the set is missing; %v", err)
	}
}
