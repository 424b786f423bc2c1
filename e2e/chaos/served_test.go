//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineinformers "github.com/machine-controller-fleet/machine-controller-fleet/client/informers/externalversions"
	machinelisters "github.com/machine-controller-fleet/machine-controller-fleet/client/listers/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

const (
	// mostRoots is how many MachineDeployments there are at a time.
	mostRoots = 40
	// changeEvery is how often one of them is created, scaled or deleted.
	changeEvery = 500 * time.Millisecond
)

// roots changes MachineDeployments of many slots all the time, and records how long each change
// takes: all desired machines run, or nothing is left. It bypasses the proxies.
type roots struct {
	bed         *bed
	deployments machinelisters.MachineDeploymentNamespaceLister
	machines    machinelisters.MachineNamespaceLister
	random      *rand.Rand
	cancel      context.CancelFunc
	ended       chan struct{}

	mu     sync.Mutex
	ledger check.Ledger
	quiet  bool           // nothing is changed any more
	want   map[string]int // by root, those that exist
	order  []string       // of their creation
	serial int
	err    error // of the last change that was rejected
	failed int
}

// startRoots starts the changes, and waits until the first roots are served.
func (b *bed) startRoots(t *testing.T, bound time.Duration) *roots {
	t.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	factory := machineinformers.NewSharedInformerFactoryWithOptions(b.lab.Machines, 0, machineinformers.WithNamespace(b.namespace))
	informers := factory.Machine().V1alpha1()
	r := &roots{
		bed: b, deployments: informers.MachineDeployments().Lister().MachineDeployments(b.namespace),
		machines: informers.Machines().Lister().Machines(b.namespace),
		random:   rand.New(rand.NewPCG(b.random.Uint64(), 2)), cancel: cancel, ended: make(chan struct{}),
		ledger: check.Ledger{Bound: bound}, want: map[string]int{},
	}
	synced := []cache.InformerSynced{informers.MachineDeployments().Informer().HasSynced, informers.Machines().Informer().HasSynced}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		t.Fatal("MachineDeployments and Machines could not be listed")
	}
	go func() {
		defer close(r.ended)
		r.run(ctx)
	}()
	t.Cleanup(r.stop)
	if err := harness.Eventually(b.ctx, "the first roots are served", func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.serial < mostRoots/2 || len(r.ledger.Waiting()) > mostRoots/4 {
			return fmt.Errorf("%s", r.ledger.Summary(time.Now()))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *roots) stop() {
	r.cancel()
	<-r.ended
}

func (r *roots) run(ctx context.Context) {
	tick := time.NewTicker(changeEvery / 2)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.look(ctx)
		if n%2 == 0 {
			r.change(ctx)
		}
	}
}

// look records which roots are served, and the holders responsible for those that are late.
func (r *roots) look(ctx context.Context) {
	r.mu.Lock()
	now := time.Now()
	for _, w := range r.ledger.Waiting() {
		if r.isServed(w) {
			r.ledger.Served(w.Root, now)
		}
	}
	overdue := r.ledger.Overdue(now)
	r.mu.Unlock()
	for _, w := range overdue {
		note := r.bed.responsible(ctx, w.Root) + "; " + r.has(w.Root)
		r.mu.Lock()
		r.ledger.Note(w.Root, note)
		r.mu.Unlock()
	}
}

// count returns how many machines a root has, how many of them run, and how many are being deleted.
func (r *roots) count(root string) (there, running, ending int) {
	list, err := r.machines.List(labels.SelectorFromSet(labels.Set{v1alpha1.LabelName: root}))
	if err != nil { // a lister of a started informer does not fail
		return 0, 0, 0
	}
	for _, m := range list {
		switch {
		case m.DeletionTimestamp != nil:
			ending++
		case m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning:
			running++
			there++
		default:
			there++
		}
	}
	return there, running, ending
}

func (r *roots) isServed(w check.Wait) bool {
	there, running, ending := r.count(w.Root)
	_, err := r.deployments.Get(w.Root)
	if w.Want == check.Gone {
		return apierrors.IsNotFound(err) && there+ending == 0
	}
	return err == nil && there == w.Want && running == w.Want
}

func (r *roots) has(root string) string {
	there, running, ending := r.count(root)
	return fmt.Sprintf("it has %d machines, of which %d run, and %d that are being deleted", there, running, ending)
}

// change creates, scales or deletes one root. Only a root that is served is changed, so that each
// wait has one cause.
func (r *roots) change(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet {
		return
	}
	api := r.bed.lab.Machines.MachineV1alpha1().MachineDeployments(r.bed.namespace)
	waiting := map[string]bool{}
	for _, w := range r.ledger.Waiting() {
		waiting[w.Root] = true
	}
	var name string
	var err error
	now, want := time.Now(), 1
	switch {
	case len(r.order) < mostRoots:
		r.serial++
		name = fmt.Sprintf("root-%d", r.serial)
		_, err = api.Create(ctx, harness.Deployment(r.bed.namespace, name, int32(want)), metav1.CreateOptions{})
		r.order = append(r.order, name) // also when there is no answer: it may exist
	case r.random.IntN(2) == 0:
		name, want = r.order[r.random.IntN(len(r.order))], 2
		if waiting[name] {
			return
		}
		if r.want[name] == want {
			want = 1
		} else {
			r.bed.recorder.Expect(name, want)
		}
		err = r.bed.lab.ScaleDeployment(ctx, r.bed.namespace, name, want)
	default:
		name, want = r.order[0], check.Gone
		if r.order = r.order[1:]; waiting[name] {
			r.order = append(r.order, name)
			return
		}
		err = api.Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil && ctx.Err() == nil {
		r.err, r.failed = err, r.failed+1
	}
	r.want[name] = want
	r.ledger.Changed(name, want, now)
}

// settle ends the changes, and waits until each root is served.
func (r *roots) settle(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	r.quiet = true
	r.mu.Unlock()
	if err := harness.Eventually(r.bed.ctx, "all roots are served", func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		var errs []error
		for _, w := range r.ledger.Waiting() {
			errs = append(errs, fmt.Errorf("%s waits: %s", w.Root, w.Note))
		}
		return errors.Join(errs...)
	}); err != nil {
		t.Fatal(err)
	}
}

// verdict reports the roots that waited for longer than the bound, and fails the test when changes
// were rejected.
func (r *roots) verdict(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	t.Log(r.ledger.Summary(now))
	for _, w := range r.ledger.Late(now) {
		t.Logf("not served within %s: MachineDeployment %s", r.ledger.Bound, w.Describe(now))
	}
	if r.failed > 0 {
		t.Errorf("%d changes were rejected, last error: %v", r.failed, r.err)
	}
}

// responsible describes the slot of a root: its holder by the Lease, and what that process reports.
func (b *bed) responsible(ctx context.Context, root string) string {
	spread, err := assignment.NewSpread(b.slots, assignment.ByDeployment)
	if err != nil {
		return err.Error()
	}
	slot := spread.Of(b.namespace, root)
	leases := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace)
	lease, err := leases.Get(ctx, b.slotLease(slot), metav1.GetOptions{})
	if err != nil {
		return fmt.Sprintf("slot %d: %v", slot, err)
	}
	assigned := lease.Annotations[v1alpha1.AnnotationAssignedReplica]
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return fmt.Sprintf("slot %d has no holder, and is assigned to %q", slot, assigned)
	}
	session := *lease.Spec.HolderIdentity
	holder := fmt.Sprintf("slot %d is held by %s, and assigned to %q", slot, session, assigned)
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	view, err := b.lab.Slots(bounded, replicaOf(session))
	if err != nil {
		return fmt.Sprintf("%s, whose process does not answer: %v", holder, err)
	}
	here, holds := view.Holds(slot)
	return fmt.Sprintf("%s; its process %s reports: holds %t, open %t, stopping %t, suspended %t",
		holder, view.Session, holds, here.Open, here.Stopping, view.Suspended)
}
