package machineset

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/disruption"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// lateWorlds is how many are generated, with the seeds 1, 2, 3 …: a failure names its own.
const lateWorlds = 40

// lateWorld is a controller before an API server that refuses requests, or does not answer them,
// with caches that show what changes as late as the dice say. It is stopped, and another one
// begins.
type lateWorld struct {
	*bench

	seed    uint64
	dice    *rand.Rand
	backlog *apiserver.Backlog
	stop    func()

	mu        sync.Mutex
	faults    int            // of 100 requests, how many are refused; and as many are not answered
	requested map[string]int // how often, by request
	story     []string

	// most and fewest are the extremes of the desired number of machines since the last time without
	// changes; lost is the number of machines that others have deleted since.
	most, fewest, lost int
}

// However late each cache is, for all that the API server refuses or does not answer, and wherever
// a process ends: there are never more machines than desired, never fewer than desired and left,
// and in the end as many as desired.
func TestSetConvergesWithALateCache(t *testing.T) {
	for seed := range uint64(worlds.Some(lateWorlds)) {
		t.Run(fmt.Sprintf("seed %d", seed+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLateWorld(t, seed+1)
				for range 10 + w.dice.IntN(40) {
					w.step()
				}
				w.settle()
				if t.Failed() {
					t.Log("\n" + strings.Join(w.story, "\n"))
				}
			})
		})
	}
}

func newLateWorld(t *testing.T, seed uint64) *lateWorld {
	t.Helper()
	w := &lateWorld{
		bench: &bench{T: t, server: apiserver.Recording(), reported: &apitest.EventLog{}},
		seed:  seed, dice: rand.New(rand.NewPCG(seed, seed)), requested: map[string]int{},
	}
	w.server.Fault(func(r apiserver.Request) error { return w.fault(r, "refused") })
	w.server.Lose(func(r apiserver.Request) error {
		w.look(r)
		return w.fault(r, "not answered")
	})
	w.start()
	w.create(0)
	return w
}

// start begins with a controller whose caches begin with what there is.
func (w *lateWorld) start() {
	view := objectcache.NewView()
	c, err := New(configOf(w.server, view, w.reported))
	if err != nil {
		w.Fatal(err)
	}
	w.backlog = w.server.ShowLate(view)
	ctx, end := context.WithCancel(klog.NewContext(w.Context(), klog.Logger{})) // what fails here is meant to
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	w.stop = func() {
		end()
		<-ended
	}
}

func (w *lateWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

// fault draws whether a request fails. It depends on the request, and not on its time: requests of
// one batch are in no order.
func (w *lateWorld) fault(r apiserver.Request, what string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprint(w.seed, what, r.Verb, r.Resource, r.Subresource, r.Name)
	w.requested[text]++
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, text, w.requested[text])
	if int(h.Sum64()>>8%100) >= w.faults {
		return nil
	}
	w.story = append(w.story, fmt.Sprintf("  %s: %s %s %s%s", what, r.Verb, r.Name, r.Resource, r.Subresource))
	return errors.New(what)
}

// look checks the invariants after each creation and deletion of a machine.
func (w *lateWorld) look(r apiserver.Request) {
	if r.Resource != "machines" || r.Verb != "create" && r.Verb != "delete" {
		return
	}
	standing := len(w.standing())
	w.note("  %s %s: %d stand", r.Verb, r.Name, standing)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.Verb == "create" && standing > w.most:
		w.Errorf("%d machines stand, and never more than %d were wanted", standing, w.most)
	case r.Verb == "delete" && standing < w.fewest-w.lost:
		w.Errorf("%d machines exist, never fewer than %d were desired, and %d were deleted by others", standing, w.fewest, w.lost)
	}
}

func (w *lateWorld) standing() (machines []*v1alpha1.Machine) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp == nil {
			machines = append(machines, m)
		}
	}
	return machines
}

// step does one random thing while no pass runs, and then advances the caches and the time.
func (w *lateWorld) step() {
	w.setFaults(0)
	switch w.dice.IntN(10) {
	case 0, 1, 2:
		w.scale(w.dice.IntN(12))
	case 3:
		w.disturb()
	case 4:
		w.fail()
	case 5:
		freeze := [...]string{`"True"`, "null"}[w.dice.IntN(2)]
		w.note("freeze: %s", freeze)
		w.patch(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelFreeze, freeze)
	case 6:
		w.note("another process begins")
		w.stop()
		w.start()
	case 7:
		w.quiet()
	case 8:
		w.orphan()
	}
	w.clean(2)
	w.setFaults([...]int{0, 0, 20, 100}[w.dice.IntN(4)])
	w.backlog.Show("machinesets", w.dice.IntN(w.backlog.Len("machinesets")+1))
	w.backlog.Show("machines", w.dice.IntN(w.backlog.Len("machines")+1))
	w.pass([...]time.Duration{0, time.Second, 10 * time.Second, 45 * time.Second, 2 * time.Minute}[w.dice.IntN(5)])
}

func (w *lateWorld) setFaults(percent int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = percent
}

func (w *lateWorld) scale(replicas int) {
	w.note("%d are wanted", replicas)
	w.most, w.fewest = max(w.most, replicas), min(w.fewest, replicas)
	w.patch(`{"spec":{"replicas":%d}}`, replicas)
}

// disturb deletes a machine, as another client.
func (w *lateWorld) disturb() {
	if standing := w.standing(); len(standing) > 0 {
		m := standing[w.dice.IntN(len(standing))]
		w.note("%s is deleted by another client", m.Name)
		w.lost++
		w.server.Delete("machines", "n", m.Name)
	}
}

// orphan removes a machine from the set as another client; the set must adopt it unchanged, and
// create none instead; or it changes one that has no controller.
func (w *lateWorld) orphan() {
	standing := w.standing()
	if len(standing) == 0 {
		return
	}
	m := standing[w.dice.IntN(len(standing))]
	patch := `{"metadata":{"ownerReferences":null}}`
	if metav1.GetControllerOf(m) == nil {
		patch = fmt.Sprintf(`{"metadata":{"labels":{"seen":"%d"}}}`, w.dice.IntN(1000))
	}
	w.note("%s: %s", m.Name, patch)
	w.patchMachine(m.Name, patch)
}

// fail sets a machine to Failed, with a disruption; or has a failed one recover.
func (w *lateWorld) fail() {
	standing := w.standing()
	if len(standing) == 0 {
		return
	}
	m := standing[w.dice.IntN(len(standing))]
	phase := v1alpha1.MachineFailed
	if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed {
		phase = v1alpha1.MachineRunning
	}
	w.note("%s is %s", m.Name, phase)
	w.lost++
	w.patchMachine(m.Name, fmt.Sprintf(`{"status":{"currentStatus":{"phase":%q}}}`, phase), "status")
	root := &v1alpha1.MachineSet{}
	disruption.WriteDisruptions(root, []disruption.Disruption{{Name: m.Name, UID: m.UID}})
	w.patch(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationDisruptions, root.Annotations[v1alpha1.AnnotationDisruptions])
}

// clean releases about one of n machines that are ending.
func (w *lateWorld) clean(n int) {
	for _, m := range w.machines() {
		if m.DeletionTimestamp != nil && w.dice.IntN(n) == 0 {
			w.patchMachine(m.Name, `{"metadata":{"finalizers":null}}`)
		}
	}
}

// quiet waits until all that has begun has ended.
func (w *lateWorld) quiet() {
	for range 12 {
		w.backlog.Show("machinesets", w.backlog.Len("machinesets"))
		w.backlog.Show("machines", w.backlog.Len("machines"))
		w.pass(2 * time.Minute)
		w.clean(1)
	}
	replicas := int(w.set().Spec.Replicas)
	w.note("all is quiet: %d stand, %d are wanted", len(w.standing()), replicas)
	w.most, w.fewest, w.lost = replicas, min(replicas, len(w.standing())), 0
	for _, m := range w.standing() {
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed { // a frozen set keeps it, and replaces it when it is not frozen any more
			w.lost++
		}
	}
}

// settle waits until all has ended, and checks the set's final state.
func (w *lateWorld) settle() {
	w.setFaults(0)
	w.patch(`{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelFreeze)
	w.quiet()
	w.stop()
	set := w.set()
	if got := len(w.standing()); got != int(set.Spec.Replicas) {
		w.Errorf("%d machines stand in the end, want %d", got, set.Spec.Replicas)
	}
	if in, err := machinefacts.ReadIntents(set); err != nil || len(in.Create)+len(in.Delete) > 0 {
		w.Errorf("intents %+v are left, %v", in, err)
	}
	if got := int(set.Status.Replicas); got != len(w.machines()) {
		w.Errorf("status.replicas is %d, and there are %d", got, len(w.machines()))
	}
	for _, m := range w.standing() {
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineFailed && disruption.Allows(disruptionsOf(w.T, set), m) {
			w.Errorf("%s has failed, has a disruption, and was not replaced", m.Name)
		}
	}
}

func disruptionsOf(t *testing.T, set *v1alpha1.MachineSet) []disruption.Disruption {
	t.Helper()
	disruptions, err := disruption.ReadDisruptions(set)
	if err != nil {
		t.Fatal(err)
	}
	return disruptions
}
