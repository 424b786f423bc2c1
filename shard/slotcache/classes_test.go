package slotcache

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// classBench is Classes with a server, in a bubble of synctest.
type classBench struct {
	*testing.T
	*server

	classes  *Classes
	view     *objectcache.View
	mu       sync.Mutex
	enqueued []string
}

// newClasses returns Classes; what is missing in the configuration is not used.
func newClasses(t *testing.T, cfg ClassesConfig) *Classes {
	t.Helper()
	_, machines, names := newServer(t)
	cfg.Clock = clock.RealClock{}
	if cfg.Machines == nil {
		cfg.Machines, cfg.Metadata = machines, names
	}
	if cfg.Enqueue == nil {
		cfg.Enqueue = func(types.NamespacedName) {}
	}
	c, err := NewClasses(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func withClasses(t *testing.T, f func(b *classBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, machines, names := newServer(t)
		b := &classBench{T: t, server: s, view: objectcache.NewView()}
		b.classes = newClasses(t, ClassesConfig{Machines: machines, Metadata: names, View: b.view, Enqueue: b.look})
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.classes.Run(ctx)
		}()
		synctest.Wait()
		f(b)
		stop()
		<-ended
	})
}

func (b *classBench) look(class types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enqueued = append(b.enqueued, class.String())
}

func (b *classBench) expectEnqueued(want ...string) {
	b.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.enqueued)
	if !slices.Equal(b.enqueued, want) {
		b.Errorf("enqueued %v, want %v", b.enqueued, want)
	}
	b.enqueued = nil
}

func (b *classBench) expectStored(want ...string) {
	b.Helper()
	synctest.Wait()
	var got []string
	for _, class := range b.view.Classes.All() {
		got = append(got, objectcache.Key(class).String())
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		b.Errorf("stored: %v, want %v", got, want)
	}
}

// putClass writes a class, with our finalizer or without.
func (b *classBench) putClass(namespace string, held bool) {
	content := &metav1.ObjectMeta{Labels: map[string]string{"some": "label"}, Finalizers: []string{"another/one"}}
	if held {
		content.Finalizers = append(content.Finalizers, v1alpha1.FinalizerName)
	}
	b.put("machineclasses", types.NamespacedName{Namespace: namespace, Name: "c"}, content)
}

func in(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: "x", ResourceVersion: "1"}
}

func TestClassesOfNamespacesWithObjects(t *testing.T) {
	withClasses(t, func(b *classBench) {
		b.putClass("a", false)
		b.putClass("b", false)
		b.expectStored()
		b.view.Deployments.Apply(&v1alpha1.MachineDeployment{ObjectMeta: in("a")}, false)
		b.expectStored("a/c")
		b.view.Machines.Apply(&v1alpha1.Machine{ObjectMeta: in("a")}, false)
		b.view.Sets.Apply(&v1alpha1.MachineSet{ObjectMeta: in("b")}, false)
		b.expectStored("a/c", "b/c")
		b.view.Deployments.Remove(types.NamespacedName{Namespace: "a", Name: "x"}, "")
		b.expectStored("a/c", "b/c")
		b.view.Machines.Remove(types.NamespacedName{Namespace: "a", Name: "x"}, "")
		b.expectStored("b/c")
		b.putClass("a", false)
		b.expectStored("b/c")
		b.view.Machines.Apply(&v1alpha1.Machine{ObjectMeta: in("a")}, false)
		b.expectStored("a/c", "b/c")
		if got := b.watches()["machineclasses"]; got != 3 {
			b.Errorf("%d watches, want one for each of 2 namespaces, and one for the names", got)
		}
		lists := b.lists
		b.classes.note("a")
		b.classes.note("without objects")
		b.expectStored("a/c", "b/c")
		if b.lists != lists {
			b.Errorf("%d lists where nothing has changed", b.lists-lists)
		}
		b.view.Classes.OnChange(func(_, after *v1alpha1.MachineClass) {
			if after == nil { // the watch ends
				b.view.Sets.Apply(&v1alpha1.MachineSet{ObjectMeta: in("a")}, false)
			}
		})
		b.view.Machines.Remove(types.NamespacedName{Namespace: "a", Name: "x"}, "")
		b.expectStored("a/c", "b/c")
	})
}

// Readers may get a class as soon as it is in the view: a list must not write to it after that.
func TestListDoesNotWriteToStoredObjects(t *testing.T) {
	view := objectcache.NewView()
	view.Classes.OnChange(func(_, after *v1alpha1.MachineClass) {
		after.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "the reader"}}
	})
	m := &objectcache.Mirror[*v1alpha1.MachineClass]{
		Store: view.Classes,
		Mine:  func() []metav1.Object { return nil },
	}
	class := &v1alpha1.MachineClass{ObjectMeta: in("a")}
	if err := m.Replace([]any{class}, "1"); err != nil {
		t.Fatal(err)
	}
	if len(class.ManagedFields) != 1 {
		t.Error("the list wrote to the class after it was in the view")
	}
}

// A slot may be dropped before handlers were called for its objects, which were already the reason
// to watch a namespace.
func TestNamespaceIsReleasedWhenAnObjectOfAnUnopenedSlotIsRemoved(t *testing.T) {
	withClasses(t, func(b *classBench) {
		b.putClass("a", false)
		b.view.Sets.Apply(&v1alpha1.MachineSet{ObjectMeta: in("a")}, true)
		b.view.Machines.Apply(&v1alpha1.Machine{ObjectMeta: in("a")}, false)
		b.expectStored("a/c")
		b.view.Machines.Remove(types.NamespacedName{Namespace: "a", Name: "x"}, "")
		b.expectStored("a/c")
		b.view.Sets.Remove(types.NamespacedName{Namespace: "a", Name: "x"}, "")
		time.Sleep(recheckEvery)
		b.expectStored()
	})
}

func TestClassesAreEnqueued(t *testing.T) {
	withClasses(t, func(b *classBench) {
		b.putClass("a", true)
		b.putClass("b", false)
		b.expectEnqueued("a/c")
		b.putClass("a", true)
		b.expectEnqueued("a/c")
		b.classes.Opened()
		b.expectEnqueued("a/c")
		b.classes.note("another")
		b.expectEnqueued()
		time.Sleep(recheckEvery)
		b.expectEnqueued("a/c")
		b.putClass("a", false)
		b.expectEnqueued("a/c")
		b.classes.Opened()
		b.expectEnqueued()
		b.putClass("b", true)
		b.expectEnqueued("b/c")
		b.classes.NamespaceChanged("a")
		b.expectEnqueued()
		b.classes.NamespaceChanged("b")
		b.expectEnqueued("b/c")
		names := b.classes.names.All()
		if len(names) != 1 || len(names[0].Labels)+len(names[0].Finalizers)+len(names[0].Annotations) > 0 {
			b.Errorf("stored: %v, want only a name", names)
		}
		b.put("machineclasses", types.NamespacedName{Namespace: "b", Name: "c"}, nil)
		b.expectEnqueued("b/c")
		b.expectStored()
	})
}

// The objects of a namespace are counted to decide, which would take long for each of many that
// appear.
func TestFurtherObjectsOfAWatchedNamespaceChangeNothing(t *testing.T) {
	view := objectcache.NewView()
	c := newClasses(t, ClassesConfig{View: view})
	c.watched["a"] = &classWatch{}
	for _, namespace := range []string{"a", "b"} {
		view.Machines.Apply(&v1alpha1.Machine{ObjectMeta: in(namespace)}, false)
	}
	if !c.changed["b"] || c.changed["a"] {
		t.Errorf("changed: %v, want b", c.changed)
	}
}

// Each request for a sweep is reported once.
func TestSweepRequestsAreReported(t *testing.T) {
	view, version := objectcache.NewView(), 0
	put := func(c *Classes, uid types.UID, finalizer bool, request string) {
		class := &metav1.PartialObjectMetadata{ObjectMeta: in("a")}
		version++
		class.UID, class.ResourceVersion = uid, strconv.Itoa(version)
		if class.Annotations = map[string]string{v1alpha1.AnnotationSweepRequested: request}; finalizer {
			class.Finalizers = []string{v1alpha1.FinalizerName}
		}
		names := &objectcache.Mirror[*metav1.PartialObjectMetadata]{Store: c.names, Mine: c.names.Each, Keep: nameOf}
		if err := names.Update(class); err != nil {
			t.Fatal(err)
		}
	}
	var reported []string
	c := newClasses(t, ClassesConfig{View: view})
	c.OnSweepRequest(func(namespace string) { reported = append(reported, namespace) })
	for i, step := range []struct {
		uid       types.UID
		finalizer bool
		request   string
		want      int // reports so far
	}{
		{"u", true, "", 0},
		{"u", true, "m", 1}, // requested
		{"u", true, "m", 1}, // another change of the class
		{"u", true, "", 1},  // served
		{"u", true, "m", 2}, // requested again
		{"u", false, "m", 2},
		{"u", true, "m", 3},
		{"v", true, "m", 4}, // by a class in the place of that one
	} {
		if put(c, step.uid, step.finalizer, step.request); len(reported) != step.want {
			t.Errorf("after step %d there were the reports %q, want %d", i, reported, step.want)
		}
	}
	if slices.ContainsFunc(reported, func(namespace string) bool { return namespace != "a" }) {
		t.Errorf("reported %q, want the namespace a", reported)
	}
}
