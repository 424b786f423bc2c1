package machineset

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletionlog"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
)

// counting counts lists.
type counting struct {
	metadata.Interface

	lists atomic.Int32
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
	l.all.lists.Add(1)
	return l.ResourceInterface.List(ctx, options)
}

// A replica that takes a set over gets its machines one by one. The number of its requests to the API server meanwhile does not
// grow with their number, and it creates none.
func TestPendingMachinesAreListedOnce(t *testing.T) {
	const machines = 50
	onBench(t, func(b *bench) {
		b.create(machines)
		all := b.machines()
		b.end()
		view, source := objectcache.NewView(), &counting{Interface: b.server.Metadata()}
		c, err := New(Config{Machines: b.server.Client(), Metadata: source, View: view, Events: b.reported, Deletions: deletionlog.New(clock.RealClock{}, nil, nil), Clock: clock.RealClock{}})
		if err != nil {
			b.Fatal(err)
		}
		ctx, end := context.WithCancel(klog.NewContext(b.Context(), klog.Logger{}))
		go c.Run(ctx)
		defer end()
		set, err := b.server.Client().MachineSets("n").Get(b.Context(), "set", metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		view.Sets.Apply(set, false)
		for _, m := range all {
			b.pass(100 * time.Millisecond)
			view.Machines.Apply(m, false)
		}
		b.pass(time.Minute)
		if lists := source.lists.Load(); lists > 1 {
			b.Errorf("the machines were listed %d times", lists)
		}
		if after := b.machines(); len(after) != machines {
			b.Errorf("there are %d machines, want %d", len(after), machines)
		}
	})
}
