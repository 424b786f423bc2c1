package slotcache

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

// recheckEvery is the interval at which every MachineClass with our finalizer is reconciled: no
// event reports to the holder of the class that the last machine of it on another replica was
// deleted.
const recheckEvery = 10 * time.Minute

// ClassesConfig is the configuration of Classes. All fields but Namespace are required.
type ClassesConfig struct {
	Machines machineclient.MachineV1alpha1Interface
	Metadata metadata.Interface
	// View has the objects of this replica, and stores the classes.
	View *objectcache.View
	// Namespace is the only namespace that is served; "" means all.
	Namespace string
	// Enqueue enqueues a MachineClass, if its slot is held by this replica.
	Enqueue func(class types.NamespacedName)
	Clock   clock.WithTicker
}

// Classes caches the MachineClasses of the namespaces in which the replica has objects, and
// enqueues those whose slot it may hold. Of all other classes that carry our finalizer it stores
// the names. NewClasses returns one.
type Classes struct {
	cfg   ClassesConfig
	kick  chan struct{}
	names *objectcache.Store[*metav1.PartialObjectMetadata] // of all classes that carry our finalizer

	mu      sync.Mutex
	watched map[string]*classWatch // by namespace; only Run changes it
	changed map[string]bool        // namespaces whose first object may have been added, or the last one removed
	opened  bool                   // slots were opened, and their classes have not been enqueued
}

// classWatch is the watch of a namespace's classes.
type classWatch struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// Validate returns an error that names the fields that are missing.
func (c ClassesConfig) Validate() error { return required.Fields(c, "Namespace") }

// NewClasses returns Classes. It must be called before anything is stored in the View. Errors:
// fields that are missing.
func NewClasses(cfg ClassesConfig) (*Classes, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Classes{
		cfg: cfg, kick: make(chan struct{}, 1), names: objectcache.NewStore[*metav1.PartialObjectMetadata](),
		watched: map[string]*classWatch{}, changed: map[string]bool{},
	}
	follow(c, cfg.View.Deployments)
	follow(c, cfg.View.Sets)
	follow(c, cfg.View.Machines)
	c.names.OnChange(func(before, after *metav1.PartialObjectMetadata) {
		if after == nil {
			after = before
		}
		cfg.Enqueue(objectcache.Key(after))
	})
	return c, nil
}

// follow records the namespaces in which objects of a kind appear or are removed.
func follow[T interface {
	comparable
	metav1.Object
}](c *Classes, all *objectcache.Store[T],
) {
	var none T
	all.OnChange(func(before, after T) {
		switch none {
		case before:
			c.appeared(after.GetNamespace())
		case after:
			c.note(before.GetNamespace())
		}
	})
}

func (c *Classes) appeared(namespace string) {
	c.mu.Lock()
	_, known := c.watched[namespace]
	c.mu.Unlock()
	if !known {
		c.note(namespace)
	}
}

func (c *Classes) note(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed[namespace] = true
	signal(c.kick)
}

// Opened enqueues all classes: slots were opened, and the gate admits the classes whose slot is
// held.
func (c *Classes) Opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened = true
	signal(c.kick)
}

// OnSweepRequest has a function called with the namespace of each class that begins to request a
// sweep of orphans. It is called before Run.
func (c *Classes) OnSweepRequest(call func(namespace string)) {
	requested := func(class *metav1.PartialObjectMetadata) string {
		if class == nil {
			return ""
		}
		return class.Annotations[v1alpha1.AnnotationSweepRequested]
	}
	c.names.OnChange(func(before, after *metav1.PartialObjectMetadata) {
		if is := requested(after); is != "" && is != requested(before) {
			call(after.Namespace)
		}
	})
}

// NamespaceChanged enqueues the classes of a namespace: the gate may admit them now.
func (c *Classes) NamespaceChanged(namespace string) {
	for _, class := range c.names.In(namespace) {
		c.cfg.Enqueue(objectcache.Key(class))
	}
}

// Run watches until ctx ends, and returns when all watches have ended.
func (c *Classes) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	names := c.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machineclasses")).Namespace(c.cfg.Namespace)
	running.Go(func() {
		objectcache.Watch(ctx, "names of MachineClasses", objectcache.From(names), "", &objectcache.Mirror[*metav1.PartialObjectMetadata]{
			Store: c.names, Mine: c.names.Each, Keep: nameOf,
		})
	})
	due := c.cfg.Clock.NewTicker(recheckEvery).C()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		case <-due:
			c.enqueueAll()
		}
		c.step(ctx, &running)
	}
}

// nameOf keeps little more of a class than its name, and whether it requests a sweep. A class
// without our finalizer is not stored.
func nameOf(class *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, bool) {
	kept := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: class.Namespace, Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion,
	}}
	if request := class.Annotations[v1alpha1.AnnotationSweepRequested]; request != "" {
		kept.Annotations = map[string]string{v1alpha1.AnnotationSweepRequested: request}
	}
	return kept, slices.Contains(class.Finalizers, v1alpha1.FinalizerName)
}

// enqueueAll enqueues all classes; the gate admits those whose slot is held. It also checks the
// namespaces again: no handler is called for objects that are removed before their slot was opened.
func (c *Classes) enqueueAll() {
	c.mu.Lock()
	c.opened = true
	for namespace := range c.watched {
		c.changed[namespace] = true
	}
	c.mu.Unlock()
}

// step handles the recorded changes.
func (c *Classes) step(ctx context.Context, running *sync.WaitGroup) {
	c.mu.Lock()
	changed, opened := c.changed, c.opened
	c.changed, c.opened = map[string]bool{}, false
	c.mu.Unlock()
	for namespace := range changed {
		switch w, has := c.watched[namespace], c.isServed(namespace); {
		case w == nil && has:
			c.start(ctx, namespace, running)
		case w != nil && !has:
			c.stop(namespace)
		}
	}
	if opened {
		for _, class := range c.names.All() {
			c.cfg.Enqueue(objectcache.Key(class))
		}
	}
}

// isServed reports whether this replica has objects in a namespace.
func (c *Classes) isServed(namespace string) bool {
	view := c.cfg.View
	return len(view.Deployments.In(namespace)) > 0 || len(view.Sets.In(namespace)) > 0 || len(view.Machines.In(namespace)) > 0
}

func (c *Classes) start(ctx context.Context, namespace string, running *sync.WaitGroup) {
	inner, stop := context.WithCancel(ctx)
	w := &classWatch{stop: stop, ended: make(chan struct{})}
	c.mu.Lock()
	c.watched[namespace] = w
	c.mu.Unlock()
	running.Go(func() {
		defer close(w.ended)
		objectcache.Watch(inner, "MachineClasses of "+namespace, objectcache.FromEach(c.cfg.Machines.MachineClasses(namespace)), "",
			&objectcache.Mirror[*v1alpha1.MachineClass]{
				Store: c.cfg.View.Classes, Mine: func() []metav1.Object { return c.cfg.View.Classes.InNamespace(namespace) },
			})
	})
}

// stop removes the classes of a namespace.
func (c *Classes) stop(namespace string) {
	w := c.watched[namespace]
	w.stop()
	<-w.ended
	for _, class := range c.cfg.View.Classes.InNamespace(namespace) {
		c.cfg.View.Classes.Delete(objectcache.Key(class), "")
	}
	c.mu.Lock()
	delete(c.watched, namespace)
	c.mu.Unlock()
	c.note(namespace) // an object may have been added again while the watch still ran
}
