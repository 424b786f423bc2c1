package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/session/protocol"
)

func TestWatchesThatDoNotDeliverForLongAreBroken(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	w := &watched{clock: clock, after: 15 * time.Second}
	failure := errors.New("no route")
	source := func(name, cluster string) *objectcache.ListerWatcher {
		return &objectcache.ListerWatcher{Source: w.source(name, cluster, objectcache.Source{
			List:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, failure },
			Watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), failure },
		})}
	}
	machines, nodes := source("Machines", "control"), source("Nodes", "target")
	list := func(l *objectcache.ListerWatcher) { _, _ = l.ListWithContext(t.Context(), metav1.ListOptions{}) }
	begin := func(l *objectcache.ListerWatcher) { _, _ = l.WatchWithContext(t.Context(), metav1.ListOptions{}) }
	broken := func(want string) {
		t.Helper()
		var is map[string]string
		if want != "" {
			is = map[string]string{protocol.DefaultTarget: want}
		}
		if diff := cmp.Diff(is, w.Broken()); diff != "" {
			t.Errorf("at %v (-want +got):\n%s", clock.Now().Unix(), diff)
		}
	}
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	broken("")
	failure = nil
	for _, first := range []*objectcache.ListerWatcher{machines, nodes} {
		list(first)
		pass(time.Hour) // how long a first list may take is not decided here
		broken("")
		begin(first)
	}
	failure = errors.New("no route")
	lost := clock.Now()
	list(nodes)
	pass(14 * time.Second)
	list(nodes) // repeatedly: the time counts from the first
	begin(nodes)
	broken("")
	pass(time.Second)
	broken("the target cluster does not deliver Nodes")
	if since, err, ok := w.kinds[1].health.Broken(); !ok || !errors.Is(err, failure) || since != lost {
		t.Errorf("broken since %v with %v, %v; want since it was lost with the error of the list", since, err, ok)
	}
	list(machines)
	pass(15 * time.Second)
	broken("the control cluster does not deliver Machines")
	machines.End()
	broken("the target cluster does not deliver Nodes")
	failure = nil
	list(nodes) // objects that are listed are not watched yet
	broken("the target cluster does not deliver Nodes")
	begin(nodes)
	broken("")
	pass(time.Hour)
	broken("")
	failure = errors.New("no route")
	begin(nodes) // the watch has ended
	pass(15 * time.Second)
	broken("the target cluster does not deliver Nodes")
}
