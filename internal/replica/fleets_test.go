package replica

import (
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/targettest"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// fleets is a trial with two fleets, stable and canary, to which labels assign namespaces.
type fleets struct {
	*trial

	roots map[string]*root // by namespace
	opens atomic.Int32     // how often stable has listed the Nodes of a target cluster
}

func newFleets(t *testing.T, slotsOfCanary int) *fleets {
	t.Helper()
	r := newTrial(t, replicaOptions(func(o *Options) {
		o.NamespaceSelector, o.Fleet.ShardBy, o.Targets.ByNamespace = "fleet in (stable, both)", string(assignment.ByNamespace), true
	}), 1, nil)
	f := &fleets{trial: r, roots: map[string]*root{}}
	r.watch = f.check
	r.wrapDriver = func(d driver.Driver) driver.Driver {
		return driver.Around(d, func(ctx context.Context, call driver.Call, next func(context.Context) error) error {
			if call.Op == driver.OpCreate {
				time.Sleep(2 * time.Second)
			}
			return next(ctx)
		})
	}
	apiserver.Add(r.target, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
	for namespace, fleet := range map[string]string{"a": "stable", "b": "canary"} {
		r.createNamespace(namespace)
		f.assign(namespace, fleet)
		r.createClass(namespace)
		r.putTarget(namespace, targettest.SecretOf("https://"+namespace+".example", "t"))
		f.roots[namespace] = r.putRoot(namespace, "of-"+namespace, 3)
	}
	r.start("fleet-0")
	r.start("fleet-1")
	stable := r.options
	r.options.Fleet.Name, r.options.Fleet.Slots, r.options.NamespaceSelector = "canary", slotsOfCanary, "fleet in (canary, both)"
	r.start("canary-0")
	r.options = stable
	return f
}

// assign labels a namespace for a fleet; "" removes the label.
func (f *fleets) assign(namespace, fleet string) {
	f.control.Edit("namespaces", "", namespace, func(u *unstructured.Unstructured) {
		u.SetLabels(map[string]string{"fleet": fleet})
		if fleet == "" {
			u.SetLabels(nil)
		}
	})
}

// isHeld reports whether a fleet holds both Leases of a namespace.
func (f *fleets) isHeld(namespace, fleet string) bool {
	for _, name := range []string{leaseManager, leaseMachineController} {
		lease := f.control.Get("leases", namespace, name)
		if lease == nil {
			return false
		}
		if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); holder != FleetIdentity(fleetNamespace, fleet) {
			return false
		}
	}
	return true
}

// writtenIn matches what is written in a namespace, but for Leases and Events.
var writtenIn = regexp.MustCompile(`/namespaces/([ab])/(machine|secrets)`)

// check: a fleet writes in a namespace only while it holds both Leases there.
func (f *fleets) check(q request, _ *http.Request) {
	fleet, _, _ := strings.Cut(q.replica, "-")
	if q.place == atControl && strings.HasSuffix(q.path, "/v1/secrets") {
		f.fail("%s sends %s %s, which is about the Secrets of all namespaces", q.replica, q.method, q.path)
	}
	if everywhere := q.place == atControl && q.kind == writes && !strings.Contains(q.path, "/namespaces/"); everywhere {
		f.fail("%s sends %s %s, which is in no namespace", q.replica, q.method, q.path)
	}
	if q.place == atTarget && q.kind == lists && fleet == "fleet" {
		f.opens.Add(1)
	}
	if in := writtenIn.FindStringSubmatch(q.path); q.kind == writes && in != nil && !f.isHeld(in[1], fleet) {
		f.fail("%s sends %s %s, and its fleet does not hold the Leases of the namespace", q.replica, q.method, q.path)
	}
}

// running counts the machines of a namespace that run.
func (f *fleets) running(namespace string) (n int) {
	for _, m := range f.machinesOf("of-" + namespace) {
		if m.Status.CurrentStatus.Phase == v1alpha1.MachineRunning {
			n++
		}
	}
	return n
}

// vms returns the IDs of all VMs that live.
func (f *fleets) vms() (ids []string) {
	for _, v := range f.cloud.Live() {
		ids = append(ids, v.ID)
	}
	slices.Sort(ids)
	return ids
}

// emitted reports whether a root has an Event.
func (f *fleets) emitted(namespace, reason string) bool {
	return slices.ContainsFunc(f.control.List("events"), func(o *apiserver.Object) bool {
		got, _, _ := unstructured.NestedString(o.Object, "reason")
		of, _, _ := unstructured.NestedString(o.Object, "regarding", "name")
		return got == reason && of == "of-"+namespace
	})
}

// counted returns the value of a gauge, of the replicas of a fleet.
func (f *fleets) counted(fleet, metric string) (n float64) {
	for _, p := range f.alive() {
		if value, _ := p.metric(metric); strings.HasPrefix(p.replica, fleet) {
			n += value
		}
	}
	return n
}

// A namespace whose label names another fleet is handed over within some seconds, at rest and while
// machines are created, and back: no VM is touched, and none exists twice.
func TestNamespacesMoveBetweenFleets(t *testing.T) {
	t.Parallel()
	for name, slots := range map[string]int{"slots of the same number": slotsOfTrial, "slots of another number": 2 * slotsOfTrial} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleets(t, slots)
				defer f.end()
				f.until("all machines run", func() bool { return f.running("a") == 3 && f.running("b") == 3 })
				f.moveAtRest()
				f.moveUnderLoad()
				for _, root := range f.roots {
					f.deleteRoot(root)
				}
				f.until("nothing is left", func() bool { return len(f.control.List("machinedeployments")) == 0 })
				if f.wrong != "" {
					t.Error(f.wrong)
				}
			})
		})
	}
}

// moveAtRest hands a over to canary, and back.
func (f *fleets) moveAtRest() {
	f.Helper()
	const moved = 5 * time.Second
	vms := f.vms()
	for i, fleet := range []string{"canary", "fleet"} {
		if n := f.opens.Load(); n != 1 {
			f.Errorf("step %d: stable has listed the Nodes of %d target clusters, want that of its namespace", i, n)
		}
		f.assign("a", map[string]string{"canary": "canary", "fleet": "stable"}[fleet])
		if !f.run(moved, func() bool { return f.isHeld("a", fleet) }) {
			f.Fatalf("expected that %s holds the Leases after %s; %s", fleet, moved, f.wrong)
		}
		f.run(time.Minute, nil)
		if got := f.vms(); !slices.Equal(got, vms) {
			f.Errorf("handed over to %s: VMs %v, want %v", fleet, got, vms)
		}
	}
	if n := f.opens.Load(); n != 2 {
		f.Errorf("stable has the namespace again, and has listed the Nodes of target clusters %d times, want twice", n)
	}
}

// moveUnderLoad hands a over while machines of it are created.
func (f *fleets) moveUnderLoad() {
	f.Helper()
	for i, label := range []string{"canary", "stable"} {
		f.putRoot("a", "of-a", 8+5*i)
		f.run(time.Duration(i+1)*stepTime, nil)
		f.assign("a", label)
		f.until("new machines run", func() bool { return f.running("a") == 8+5*i })
	}
	if now, ever := f.cloud.VMs(); now != 16 || ever != 16 {
		f.Errorf("%d VMs of %d ever created, want 16: one for each machine", now, ever)
	}
}

// A namespace that two fleets select stays with the one that has it; one that no fleet selects is
// served by none. Both are reported.
func TestNamespaceOfTwoFleetsOrOfNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleets(t, slotsOfTrial)
		defer f.end()
		f.until("all machines run", func() bool { return f.running("a") == 3 && f.running("b") == 3 })
		f.run(time.Minute, nil)
		if n := f.counted("", "mcf_refused_namespaces") + f.counted("", "mcf_unselected_namespaces"); n != 0 {
			t.Errorf("%v namespaces are reported, each of which one fleet serves", n)
		}
		f.assign("a", "both")
		f.until("the other fleet reports it", func() bool {
			return f.counted("canary", "mcf_refused_namespaces") == 1 && f.emitted("a", v1alpha1.EventNotAlone)
		})
		if !f.isHeld("a", "fleet") || f.counted("fleet", "mcf_refused_namespaces") != 0 {
			t.Error("the fleet that has the namespace has lost it, or reports it")
		}
		f.assign("a", "")
		f.until("both fleets report it", func() bool {
			return f.counted("fleet", "mcf_unselected_namespaces") == 1 && f.counted("canary", "mcf_unselected_namespaces") == 1
		})
		if !f.emitted("a", v1alpha1.EventNotSelected) || f.emitted("b", v1alpha1.EventNotSelected) || f.isHeld("a", "fleet") {
			t.Error("expected the Event NotSelected on the root of a alone, and no holder")
		}
		f.assign("a", "stable")
		f.until("it is served, and not reported", func() bool {
			return f.isHeld("a", "fleet") && f.counted("", "mcf_unselected_namespaces") == 0 && f.counted("", "mcf_refused_namespaces") == 0
		})
		if f.wrong != "" {
			t.Error(f.wrong)
		}
	})
}
