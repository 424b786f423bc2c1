package orphans

import (
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// breakRequests replaces rules about requested sweeps.
func (b promises) breakRequests(o *Controller) {
	if b.noRequests {
		o.rules.spaced = func(wanted, _, _ time.Duration) time.Duration { return max(wanted, 24*time.Hour) }
	}
	if b.noSpacing {
		o.rules.spaced = func(wanted, _, _ time.Duration) time.Duration { return wanted }
	}
	if b.usualSweeps {
		o.rules.due = func([]decide.Suspect, decide.Record, decide.Record, time.Duration) time.Duration { return 0 }
	}
}

// atMostRequests reports whether no rule is replaced, or only rules about requested sweeps.
func (b promises) atMostRequests() bool {
	return b == promises{noRequests: b.noRequests, noSpacing: b.noSpacing, usualSweeps: b.usualSweeps}
}

// requestSweep has the owner of a machine request a sweep on its class, which all processes
// observe.
func (w *world) requestSweep(namespace, class string) {
	is := false
	w.control.Edit("machineclasses", namespace, class, func(u *unstructured.Unstructured) {
		annotations := u.GetAnnotations()
		if is = annotations[v1alpha1.AnnotationSweepRequested] == ""; !is {
			return
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationSweepRequested] = "m"
		u.SetAnnotations(annotations)
	})
	if !is {
		return
	}
	w.tell("a sweep of %s is requested", namespace)
	for _, p := range w.processes {
		if !p.dead.Load() {
			p.orphans.Requested(namespace)
		}
	}
}

// resolveSurplus creates a second VM of a machine, and checks that it goes as soon as the
// quarantine allows, and the machine's own stays.
func (w *world) resolveSurplus() {
	if !w.fine() {
		return
	}
	time.Sleep(time.Duration(w.draw(int(w.period)))) // at any moment between two usual sweeps
	own := w.addRunning("a", "class-2")
	surplus := w.doubleVM(own)
	age := max(w.quarantine, w.period-w.period/10)
	time.Sleep(w.period/plansInPeriod + age + 2*time.Minute) // the last sweep in addition to the usual ones may have been just now
	synctest.Wait()
	if surplus.Live() && !w.wasHeld(*surplus) {
		w.report("VM %s is not its machine's, and is left %s after a sweep was requested", surplus.ID, time.Since(surplus.Created))
	}
}

// addRunning creates a Machine that names its VM.
func (w *world) addRunning(namespace, class string) machine {
	const name = "running"
	o := w.put("machines", machineDocument(namespace, name, class))
	vm := w.create(driver.ResourceVM, namespace, accountOf(class), name, o.GetUID())
	w.control.Edit("machines", namespace, name, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, vm.ID, "spec", "providerID")
	})
	return machine{namespace: namespace, name: name, class: class, providerID: vm.ID, uid: o.GetUID()}
}

// requestWithoutEnd has a cloud or a client request a sweep again as soon as the last request was
// served, and checks how often its account is listed.
func (w *world) requestWithoutEnd() {
	if !w.fine() {
		return
	}
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.lists["b/2"]
	}
	before := count()
	for begun := time.Now(); time.Since(begun) < 2*w.period; {
		w.requestSweep("b", "class-2")
		time.Sleep(5 * time.Second)
		synctest.Wait()
	}
	// In two periods there are up to 3 usual sweeps, and one in addition to these in each quarter.
	if n := count() - before; n > 3+2*plansInPeriod+1 {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fail("the account was listed %d times in two periods because of requests", n)
	}
}
