package slotcache

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectversion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

const namespace = "n"

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func inSlot(slot int) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelSlot: strconv.Itoa(slot)}}
}

// ledger records the events that handlers received for machines. It fails the test for an event
// that does not follow from the known version.
type ledger struct {
	t        *testing.T
	mu       sync.Mutex
	notes    []string
	known    map[string]string // versions by name
	gone     map[string]string // last versions of machines that were removed although their slot was not dropped
	dropping bool
	mayLag   func(name string) bool // reports whether an old version of an object may be cached again; nil means never
}

func (l *ledger) record(before, after *v1alpha1.Machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name, was, is := "", "", ""
	if before != nil {
		name, was = before.Name, before.ResourceVersion
	}
	if after != nil {
		name, is = after.Name, after.ResourceVersion
	}
	l.notes = append(l.notes, name+" "+was+">"+is)
	known, isKnown := l.known[name]
	gone, isGone := l.gone[name]
	mayLag := l.mayLag != nil && l.mayLag(name)
	switch announced := was == "" && known == is; {
	case known != was && !announced:
		l.t.Errorf("heard %q of %s, known was %q", was+">"+is, name, known)
	case isKnown && !announced && is != "" && objectversion.Compare(is, known) <= 0 && !mayLag:
		l.t.Errorf("heard %q of %s, which is not newer", was+">"+is, name)
	case isGone && objectversion.Compare(is, gone) <= 0 && !mayLag:
		l.t.Errorf("heard %q of %s, which had gone", was+">"+is, name)
	}
	delete(l.known, name)
	delete(l.gone, name)
	switch {
	case is != "":
		l.known[name] = is
	case !l.dropping:
		l.gone[name] = was
	}
}

// expect compares the events since the last call, in any order.
func (l *ledger) expect(want ...string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.notes)
	slices.Sort(want)
	if diff := cmp.Diff(want, l.notes); diff != "" {
		l.t.Errorf("received: -want +got:\n%s", diff)
	}
	l.notes = nil
}

// bench is a Set with a server, in a bubble of synctest.
type bench struct {
	*testing.T
	*server

	set    *Set
	view   *objectcache.View
	events *ledger
	ready  []int // slots that were reported as ready; read after synctest.Wait
}

// inBubble runs a test with Machines and MachineSets.
func inBubble(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, client, _ := newServer(t)
		b := &bench{T: t, server: s, view: objectcache.NewView()}
		b.events = &ledger{t: t, known: map[string]string{}, gone: map[string]string{}}
		b.view.Machines.OnChange(b.events.record)
		api := client
		b.set = New(
			clock.RealClock{},
			KindOf("Machines", objectcache.FromEach(api.Machines("")), b.view.Machines),
			KindOf("MachineSets", objectcache.FromEach(api.MachineSets("")), b.view.Sets),
		)
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.set.Run(ctx)
		}()
		f(b)
		stop()
		<-ended
	})
}

// add acquires slots, and opens them when they are ready.
func (b *bench) add(slots ...int) {
	b.set.Add(slots, func(ready []int) {
		b.ready = append(b.ready, ready...)
		b.set.Open(ready)
	})
}

// drop drops slots.
func (b *bench) drop(slots ...int) {
	dropping := func(yes bool) {
		b.events.mu.Lock()
		defer b.events.mu.Unlock()
		b.events.dropping = yes
	}
	dropping(true)
	b.set.Drop(slots)
	dropping(false)
}
