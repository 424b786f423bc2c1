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
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// lookAgain is how often every MachineClass is looked at that carries our finalizer: nobody tells the holder of a class
// that another replica's last machine of it is gone.
const lookAgain = 10 * time.Minute

// ClassesConfig is what Classes need. All but Namespace are required.
type ClassesConfig struct {
	Machines machineclient.MachineV1alpha1Interface
	Metadata metadata.Interface
	// View tells where objects are, and is given the classes.
	View *objectcache.View
	// Namespace is the only one that is served; "" means all.
	Namespace string
	// Look has a MachineClass reconciled soon, if its slot is held here.
	Look  func(class types.NamespacedName)
	Clock clock.WithTicker
}

// Classes shows a replica the MachineClasses of the namespaces in which it has objects, and has those looked at whose slot
// it may hold: of all others that carry our finalizer it knows the names. Make one with NewClasses.
type Classes struct {
	cfg   ClassesConfig
	kick  chan struct{}
	names *objectcache.Objects[*metav1.PartialObjectMetadata] // of all classes that carry our finalizer

	mu      sync.Mutex
	watched map[string]*classWatch // by namespace; changed by Run alone
	changed map[string]bool        // namespaces whose first object may have come, or the last one gone
	opened  bool                   // slots were, and their classes have not been looked at
}

// classWatch is the watch of a namespace's classes.
type classWatch struct {
	stop  context.CancelFunc
	ended chan struct{}
}

// NewClasses makes Classes. It is called before anything is fed to the View.
func NewClasses(cfg ClassesConfig) *Classes {
	c := &Classes{
		cfg: cfg, kick: make(chan struct{}, 1), names: objectcache.New[*metav1.PartialObjectMetadata](),
		watched: map[string]*classWatch{}, changed: map[string]bool{},
	}
	follow(c, cfg.View.Deployments)
	follow(c, cfg.View.Sets)
	follow(c, cfg.View.Machines)
	c.names.OnChange(func(before, after *metav1.PartialObjectMetadata) {
		if after == nil {
			after = before
		}
		cfg.Look(objectcache.Key(after))
	})
	return c
}

// follow notes the namespaces in which objects of a kind appear or go.
func follow[T interface {
	comparable
	metav1.Object
}](c *Classes, all *objectcache.Objects[T],
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
	again(c.kick)
}

// Opened has all classes looked at: slots were opened, and the gate lets those in whose slot is held.
func (c *Classes) Opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened = true
	again(c.kick)
}

// NamespaceChanged has the classes of a namespace looked at: the gate may let them in now.
func (c *Classes) NamespaceChanged(namespace string) {
	for _, class := range c.names.In(namespace) {
		c.cfg.Look(objectcache.Key(class))
	}
}

// Run watches until ctx ends, and returns when all watches have ended.
func (c *Classes) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	names := c.cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machineclasses")).Namespace(c.cfg.Namespace)
	running.Go(func() {
		all := shelf[*metav1.PartialObjectMetadata]{all: c.names, undecodable: objectcache.New[*decode.Failure]()}
		watchOne(ctx, "names of MachineClasses", objectcache.From(names), "", &mirror[*metav1.PartialObjectMetadata]{
			shelf: all, mine: func() []metav1.Object { return together(c.names.All(), nil) }, keep: nameOf,
		})
	})
	ticker := c.cfg.Clock.NewTicker(lookAgain)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		case <-ticker.C():
			c.lookAtAll()
		}
		c.step(ctx, &running)
	}
}

// nameOf keeps little more of a class than its name, and nothing of one that does not carry our finalizer.
func nameOf(class *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, bool) {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: class.Namespace, Name: class.Name, ResourceVersion: class.ResourceVersion,
	}}, slices.Contains(class.Finalizers, v1alpha1.FinalizerName)
}

// lookAtAll has all classes looked at; the gate lets those in whose slot is held. Namespaces are looked at too: of
// objects that go before anybody heard of them nothing is told.
func (c *Classes) lookAtAll() {
	c.mu.Lock()
	c.opened = true
	for namespace := range c.watched {
		c.changed[namespace] = true
	}
	c.mu.Unlock()
}

// step does what was noted.
func (c *Classes) step(ctx context.Context, running *sync.WaitGroup) {
	c.mu.Lock()
	changed, opened := c.changed, c.opened
	c.changed, c.opened = map[string]bool{}, false
	c.mu.Unlock()
	for namespace := range changed {
		switch w, has := c.watched[namespace], c.isServed(namespace); {
		case w == nil && has:
			c.enter(ctx, namespace, running)
		case w != nil && !has:
			c.leave(namespace)
		}
	}
	if opened {
		for _, class := range c.names.All() {
			c.cfg.Look(objectcache.Key(class))
		}
	}
}

// isServed says whether this replica has objects in a namespace.
func (c *Classes) isServed(namespace string) bool {
	view := c.cfg.View
	return len(view.Deployments.In(namespace)) > 0 || len(view.Sets.In(namespace)) > 0 || len(view.Machines.In(namespace)) > 0
}

func (c *Classes) enter(ctx context.Context, namespace string, running *sync.WaitGroup) {
	inner, stop := context.WithCancel(ctx)
	w := &classWatch{stop: stop, ended: make(chan struct{})}
	c.mu.Lock()
	c.watched[namespace] = w
	c.mu.Unlock()
	running.Go(func() {
		defer close(w.ended)
		watchOne(inner, "MachineClasses of "+namespace, objectcache.FromEach(c.cfg.Machines.MachineClasses(namespace)), "", &mirror[*v1alpha1.MachineClass]{
			shelf: c.classes(), mine: func() []metav1.Object { return c.classes().in(namespace) },
		})
	})
}

// classes is where MachineClasses are put.
func (c *Classes) classes() shelf[*v1alpha1.MachineClass] {
	return shelf[*v1alpha1.MachineClass]{all: c.cfg.View.Classes, undecodable: c.cfg.View.Undecodable.Classes}
}

// leave forgets the classes of a namespace.
func (c *Classes) leave(namespace string) {
	w := c.watched[namespace]
	w.stop()
	<-w.ended
	for _, class := range c.classes().in(namespace) {
		c.classes().remove(objectcache.Key(class), "")
	}
	c.mu.Lock()
	delete(c.watched, namespace)
	c.mu.Unlock()
	if c.isServed(namespace) { // it came back meanwhile, when it was still watched
		c.note(namespace)
	}
}
