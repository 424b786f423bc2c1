package machineset

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// counting keeps the label selectors of lists.
type counting struct {
	metadata.Interface

	mu        sync.Mutex
	selectors []string
}

// lists returns the label selectors of the lists so far.
func (c *counting) lists() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.selectors)
}

func (c *counting) Resource(resource schema.GroupVersionResource) metadata.Getter {
	return &countingGetter{c.Interface.Resource(resource), c}
}

type countingGetter struct {
	metadata.Getter

	all *counting
}

func (g *countingGetter) Namespace(namespace string) metadata.ResourceInterface {
	return &countingLister{g.Getter.Namespace(namespace), g.all}
}

type countingLister struct {
	metadata.ResourceInterface

	all *counting
}

func (l *countingLister) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	l.all.mu.Lock()
	l.all.selectors = append(l.all.selectors, options.LabelSelector)
	l.all.mu.Unlock()
	return l.ResourceInterface.List(ctx, options)
}

// A replica that takes a set over gets its machines one by one. The number of its requests to the
// API server meanwhile does not grow with their number, and it creates none.
func TestPendingMachinesAreListedOnce(t *testing.T) {
	const machines = 50
	onBench(t, func(b *bench) {
		b.create(machines)
		all := b.machines()
		b.end()
		view, source := objectcache.NewView(), &counting{Interface: b.server.Metadata()}
		cfg := configOf(b.server, view, b.reported)
		cfg.Metadata = source
		c, err := New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		ctx, end := context.WithCancel(klog.NewContext(b.Context(), klog.Logger{}))
		go c.Run(ctx)
		defer end()
		view.Sets.Apply(b.set(), false)
		for _, m := range all {
			b.pass(100 * time.Millisecond)
			view.Machines.Apply(m, false)
		}
		b.pass(time.Minute)
		if lists := source.lists(); len(lists) > 1 {
			b.Errorf("the machines were listed %d times", len(lists))
		}
		if after := b.machines(); len(after) != machines {
			b.Errorf("there are %d machines, want %d", len(after), machines)
		}
	})
}

// watched returns a setting that keeps the view of the controller and the lists that it requests.
func watched(view **objectcache.View, source *counting) func(*Config) {
	return func(cfg *Config) {
		source.Interface = cfg.Metadata
		cfg.Metadata, *view = source, cfg.View
	}
}

// TestListsAreOfTheSetsMachines: of those that match its selector, and of all in its namespace when
// it is being deleted: then machines that have lost their labels are deleted, too, and orphans are
// not read.
func TestListsAreOfTheSetsMachines(t *testing.T) {
	var view *objectcache.View
	var source counting
	onBench(t, func(b *bench) {
		b.create(1)
		if lists := source.lists(); !slices.Equal(lists, []string{"name=set"}) {
			b.Errorf("lists %q, want one of the set's machines", lists)
		}
		b.server.Delete("machinesets", "n", "set")
		b.put("orphan")
		view.Machines.Remove(objectcache.Key(b.machine("orphan")), "")
		b.server.Forget()
		b.pass(time.Minute)
		for _, m := range b.machines() {
			if m.DeletionTimestamp != nil {
				b.patchMachine(m.Name, `{"metadata":{"finalizers":null}}`)
			}
		}
		b.pass(time.Minute)
		if b.server.Get("machinesets", "n", "set") != nil {
			b.Error("the set was not released")
		}
		if lists := source.lists(); !slices.Equal(lists, []string{"name=set", ""}) {
			b.Errorf("lists %q, want one more, of all machines", lists)
		}
		if n := b.server.Count("get machines"); n > 0 {
			b.Errorf("machines were read %d times", n)
		}
	}, watched(&view, &source))
}

// noFailures is a scrape of a controller none of whose passes has failed.
const noFailures = `
# HELP controller_runtime_reconcile_errors_total Reconciles that ended in an error other than a conflict.
# TYPE controller_runtime_reconcile_errors_total counter
controller_runtime_reconcile_errors_total{controller="machineset"} 0
`

// TestMachineThatNeverShowsIsListedAgain: the list that has it is used while the cache may be late,
// and not permanently. No pass fails for it.
func TestMachineThatNeverShowsIsListedAgain(t *testing.T) {
	var view *objectcache.View
	var source counting
	registry := prometheus.NewRegistry()
	onBench(t, func(b *bench) {
		b.create(2)
		before := len(source.lists())
		lost := b.machines()[0]
		b.patchMachine(lost.Name, `{"metadata":{"finalizers":null}}`)
		b.pass(0) // the view shows that, and nothing of the machine after it
		view.Machines.Remove(objectcache.Key(lost), "")
		b.pass(time.Second)
		b.delete(lost.Name)
		b.pass(machinefacts.LateCache - 2*time.Second)
		if lists, n := len(source.lists())-before, len(b.machines()); lists != 1 || n != 1 {
			b.Errorf("%d lists and %d machines while the cache may be late, want 1 and 1", lists, n)
		}
		b.pass(time.Minute)
		if lists, n := len(source.lists())-before, len(b.machines()); lists != 2 || n != 2 {
			b.Errorf("%d lists and %d machines after that, want 2 and 2", lists, n)
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(noFailures), "controller_runtime_reconcile_errors_total"); err != nil {
			b.Error(err)
		}
	}, watched(&view, &source), func(cfg *Config) { cfg.Metrics = runner.NewMetrics(registry) })
}

// A name that the list shows to be in use is not requested.
func TestNewMachineGetsTheNextNameWhenOneIsInTheList(t *testing.T) {
	onBench(t, func(b *bench) {
		b.create(0)
		set := b.set()
		b.put(machinefacts.Name("set", set.UID, 0), func(m *v1alpha1.Machine) {
			other := &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other"}}
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
		})
		before := len(b.server.Requests())
		b.patch(`{"spec":{"replicas":1}}`)
		b.pass(time.Minute)
		var created []string
		for _, r := range b.server.Requests()[before:] {
			if r.Verb == "create" {
				created = append(created, r.Name)
			}
		}
		if want := machinefacts.Name("set", set.UID, 1); !slices.Equal(created, []string{want}) {
			b.Errorf("requests to create %q, want %q alone", created, want)
		}
	})
}

// TestSetThatLeavesTheCacheDuringItsPass: the pass is completed, with a separate list.
func TestSetThatLeavesTheCacheDuringItsPass(t *testing.T) {
	var view *objectcache.View
	var source counting
	onBench(t, func(b *bench) {
		b.put("m")
		b.server.Fault(func(r apiserver.Request) error {
			if r.Verb == "get" && r.Resource == "machinesets" { // before it adopts the machine
				view.Sets.Remove(types.NamespacedName{Namespace: "n", Name: "set"}, "")
			}
			return nil
		})
		b.create(1)
		if lists := source.lists(); len(lists) != 2 || !metav1.IsControlledBy(b.machine("m"), b.set()) {
			b.Errorf("%d lists, want one before and one after the adoption; the owners are %v", len(lists), b.machine("m").OwnerReferences)
		}
	}, watched(&view, &source))
}

// TestMachinesAreListedAgainAfterAFailedCreation: before more are recorded, because the first list
// has nothing of what was created since.
func TestMachinesAreListedAgainAfterAFailedCreation(t *testing.T) {
	var view *objectcache.View
	var source counting
	onBench(t, func(b *bench) {
		b.create(0)
		names := []string{machinefacts.Name("set", b.set().UID, 0), machinefacts.Name("set", b.set().UID, 1)}
		b.put(names[0], func(m *v1alpha1.Machine) { m.Labels = nil }) // so that another one has to be recorded
		before, fails := len(source.lists()), true
		b.server.Fault(func(r apiserver.Request) error {
			if r.Verb == "create" && r.Name == names[1] && fails {
				fails = false
				return errors.New("not now")
			}
			return nil
		})
		b.patch(`{"spec":{"replicas":2}}`)
		b.pass(time.Minute)
		if lists, n := len(source.lists())-before, len(b.machines()); lists != 2 || n != 3 {
			b.Errorf("%d lists, and %d machines with the other one; want 2, 3", lists, n)
		}
	}, watched(&view, &source))
}
