package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// limit is how long it may take, once nothing changes any more, until every root is served: a
	// process that cannot stop what is in flight ends after 45 s, a slot waits 15 s in quarantine and
	// 15 s for a dead session, an orphan or a mislabeled object is looked at again after a minute, and
	// each of these may follow another.
	limit = 5 * time.Minute
	// silence is for how long a root may be unserved at rest before a metric, or readiness, has to
	// report it.
	silence = 100 * time.Second
	// restTime is for how long a fleet at rest is observed, and restOwnerless how long all slots
	// together may be without a holder in that time: a slot that is tried with a replica that cannot
	// acquire it is without one for some 5 s.
	restTime, restOwnerless = 5 * time.Minute, time.Minute
	// serveWithin is for how long a root that is new or changed may be unserved while the fleet is at
	// rest: a replica that is tried again releases a slot that does not open after 30 s, another one
	// acquires it within 5 s, and a VM joins within 10 s; some ten requests follow each other, with
	// delays of up to 200 ms. A leader that cannot work resigns after resignsWithin before that.
	serveWithin, resignsWithin = 47 * time.Second, 15 * time.Second
	// triedLonger is how much later the leader takes a slot from a replica whose own time for it is
	// longer, because its lists have taken long.
	triedLonger = 15 * time.Second
)

func servedNamespaces() []string { return []string{"a", "b"} }

// event is something that happens later.
type event struct {
	at time.Time
	do func()
}

// begin starts replicas and creates the first roots.
func (t *trial) begin(replicas, roots int) {
	t.createUnmanaged()
	t.createNamespace(metav1.NamespaceSystem) // its UID identifies the cluster in the tags of VMs
	for _, namespace := range servedNamespaces() {
		t.createNamespace(namespace)
		t.createClass(namespace)
		for i := range roots {
			t.putRoot(namespace, fmt.Sprint("root-", i), t.random.IntN(3))
		}
	}
	t.holdSome()
	t.followHealth()
	t.followHeldOrphans()
	for i := range replicas {
		t.restart[fmt.Sprint("fleet-", i)] = time.Now().Add(t.between(0, 5*time.Second))
	}
}

// injectFaults begins faults for some time.
func (t *trial) injectFaults() {
	kinds := t.drawFaults()
	t.logf("faults: %q", kinds)
	next, change := time.Now().Add(t.between(0, 40*time.Second)), time.Now().Add(5*time.Second)
	t.run(t.between(30*time.Second, 2*time.Minute), func() bool {
		if time.Now().After(change) {
			t.changeSome()
			change = time.Now().Add(t.between(time.Second, 15*time.Second))
		}
		if len(kinds) > 0 && time.Now().After(next) {
			faultKinds()[kinds[t.random.IntN(len(kinds))]](t)
			next = time.Now().Add(t.between(500*time.Millisecond, 20*time.Second))
		}
		return false
	})
	t.run(time.Until(t.restoreDue)+2*stepTime, nil)
}

// heal ends all faults: of each replica one process runs, or is about to.
func (t *trial) heal() {
	t.logf("all faults end")
	for _, e := range t.later {
		e.do()
	}
	t.later = nil
	t.endHold()
	t.network.healAll(t.lasting)
	newest := map[string]bool{}
	for _, p := range slices.Backward(t.processes) {
		if p.isAlive() && newest[p.replica] {
			p.crash()
		}
		newest[p.replica] = newest[p.replica] || p.isAlive()
	}
}

// Names of faults that do not end.
const cloudCut, targetCut, targetListsHang, controlListsHang = "cloud cut", "target cut", "target lists hang", "control lists hang"

// lastings are the faults that do not end, by name. Each leaves a replica that is fit, and
// everything still has to be served.
func lastings() map[string]func(*trial) {
	of := func(d func(replica, place string) *disturbance, place string) func(*trial) {
		return func(t *trial) { t.lasting, t.faulty = t.network.disturb(d("fleet-0", place)), "fleet-0" }
	}
	return map[string]func(*trial){
		"nothing": func(*trial) {},
		// A replica that renews its Lease and is cut off from the target cluster.
		targetCut: of(cut, atTarget),
		// It serves the clusters, and the cloud does not answer it.
		cloudCut: of(cut, atCloud),
		// Small packets arrive at one replica, large ones do not.
		targetListsHang:  of(hanging, atTarget),
		controlListsHang: of(hanging, atControl),
		// A leader of that kind, and a replica that dies and is not restarted.
		"leader cannot list": func(t *trial) { t.blindLeader() },
		"cannot acquire": func(t *trial) {
			t.faulty = "fleet-0"
			t.lasting = t.network.disturb(&disturbance{
				name: "fleet-0 cannot write slot Leases", there: true, refuses: true,
				of: func(q request) bool { return q.replica == "fleet-0" && q.kind == writes && isSlotLease(q.path) },
			})
		},
		// A Secret that the API server cannot decrypt: no replica can list Secrets.
		"secrets unreadable": func(t *trial) {
			t.lasting = t.network.disturb(&disturbance{
				name: "lists of Secrets fail", there: true, refuses: true,
				of: func(q request) bool { return q.kind == lists && strings.HasSuffix(q.path, "/secrets") },
			})
		},
		"bad object":         func(t *trial) { t.storeUndecodable() },
		"namespace given up": func(t *trial) { t.emptyNamespace() },
		"cut off":            of(cut, ""),
		"renewals hang":      of(blockedLeases, ""),
	}
}

// last draws a fault that does not end, or begins the requested one.
func (t *trial) last() {
	name := *lastingFlag
	if name == "" {
		names := slices.Sorted(maps.Keys(lastings()))
		name = names[t.random.IntN(len(names))]
	}
	t.logf("lasting fault: %s", name)
	t.lastingName = name
	begin := lastings()[name]
	if begin == nil {
		t.Fatalf("-lasting: expected one of %q, got %q", slices.Sorted(maps.Keys(lastings())), name)
	}
	begin(t)
}

// converge changes every root once more, and waits until all of them are served.
func (t *trial) converge() {
	t.run(t.between(0, 20*time.Second), nil)
	for _, name := range slices.Sorted(maps.Keys(t.roots)) {
		r := t.roots[name]
		t.putRoot(r.namespace, r.name, r.replicas+1)
	}
	for i := range 6 { // so that many slots have objects
		t.putRoot(servedNamespaces()[i%2], fmt.Sprint("last-", i), 1)
	}
	changed, looked := time.Now(), time.Now()
	missing, rests := "", 0
	served := t.run(limit, func() bool {
		if missing = t.missing(); missing == "" {
			rests++
			return rests > 8
		}
		rests = 0
		if time.Since(changed) > silence && time.Since(looked) > 20*time.Second {
			looked = time.Now()
			if t.health() == "" {
				t.fail("%s after the last change there is nothing wrong in any metric, but: %s", time.Since(changed), missing)
			}
		}
		return false
	})
	if !served && t.fine() {
		t.fail("%s after the last change: %s [%s]", limit, missing, t.health())
	}
	t.logf("rests %s after the last change", time.Since(changed))
}

// rest lets time pass in which nothing happens except for the lasting fault, and roots that change
// one by one. Each is served in time.
func (t *trial) rest() {
	if !t.fine() {
		return
	}
	t.ownerless = 0
	d := restTime
	if t.lasting == nil {
		d = time.Minute // nothing lets later changes differ from the first ones
	}
	var changed []*root
	next := time.Now()
	t.run(d, func() bool {
		if time.Now().After(next) {
			next = time.Now().Add(t.between(5*time.Second, 20*time.Second))
			if r := t.changeAtRest(changed); r != nil {
				changed = append(changed, r)
			}
		}
		changed = t.checkServed(changed)
		t.checkFitWithoutSecrets()
		return false
	})
	t.run(t.serveWithin()+resignsWithin+time.Second, func() bool {
		changed = t.checkServed(changed)
		return len(changed) == 0
	})
	t.logf("slots were without a holder for %s in %s", t.ownerless, d)
	if t.ownerless > restOwnerless {
		t.fail("slots were without a holder for %s in %s in which nothing happened", t.ownerless, d)
	}
	for _, r := range t.sortedRoots() {
		if missing := t.unfinished(r); missing != "" {
			t.fail("after %s in which nothing happened: %s", d, missing)
		}
	}
	if missing := t.missing(); missing != "" {
		t.fail("after %s in which nothing happened: %s", d, missing)
	}
}

// checkFitWithoutSecrets checks that no replica reports that it is unfit because it cannot list
// Secrets: no other could.
func (t *trial) checkFitWithoutSecrets() {
	for _, lease := range t.control.List("leases") {
		if report := lease.GetAnnotations()[v1alpha1.AnnotationFitness]; strings.Contains(report, "lists of secrets") {
			t.fail("%s reports %s", lease.GetName(), report)
		}
	}
}

// serveWithin returns for how long a root may be unserved while the fleet is at rest. That a cloud
// does not answer shows in a minute of calls.
func (t *trial) serveWithin() time.Duration {
	switch t.lastingName {
	case cloudCut:
		return unreachedWithin
	case targetCut, targetListsHang, controlListsHang: // slots do not open
		return serveWithin + triedLonger
	}
	return serveWithin
}

// faultyLeads reports whether the replica with the lasting fault leads.
func (t *trial) faultyLeads() bool {
	return slices.ContainsFunc(t.alive(), func(p *process) bool {
		if p.replica != t.faulty {
			return false
		}
		leads, _ := p.metric("mcf_leader")
		return leads == 1
	})
}

// changeAtRest creates or changes a root, but none of those that wait to be served; nil is none.
func (t *trial) changeAtRest(waiting []*root) *root {
	if t.random.IntN(3) == 0 {
		t.created++
		return t.putRoot(servedNamespaces()[t.random.IntN(2)], fmt.Sprint("rest-", t.created), 1)
	}
	all := t.sortedRoots()
	r := all[t.random.IntN(len(all))]
	if slices.Contains(waiting, r) {
		return nil
	}
	switch t.random.IntN(8) {
	case 0, 1:
		return t.recreateAtRest(r)
	case 2:
		return t.sickenAtRest(r)
	}
	return t.putRoot(r.namespace, r.name, 1+r.replicas%2)
}

// checkServed returns those of the changed roots that are not served, and fails when that lasts for
// too long.
func (t *trial) checkServed(changed []*root) []*root {
	return slices.DeleteFunc(changed, func(r *root) bool {
		missing, since := cmp.Or(t.unserved(r), t.unfinished(r)), time.Since(r.changed)
		if t.lastingName != cloudCut && t.faultyLeads() {
			r.within = t.serveWithin() + resignsWithin
		}
		if missing != "" && since > max(r.within, t.serveWithin()) {
			t.fail("%s after its change, with the fleet at rest: %s [%s]", since, missing, t.health())
		}
		if missing == "" {
			t.served = append(t.served, since)
			t.logf("%s was served %s after its change", r.key(), since)
		}
		return missing == ""
	})
}

// live is a whole run.
func (t *trial) live() {
	t.setClocks()
	t.begin(2+t.random.IntN(2), 1+t.random.IntN(3))
	t.injectFaults()
	t.last()
	t.heal()
	t.converge()
	t.rest()
	t.checkTimes()
	if !t.fine() {
		t.logObjects()
	}
}

// blindLeader runs a fleet of three with a leader that cannot list, and a replica that dies and is
// not restarted.
func (t *trial) blindLeader() {
	t.heal()
	if len(t.replicas()) < 3 {
		t.start("fleet-2")
	}
	var leader *process
	t.run(2*time.Minute, func() bool {
		leader = nil
		for _, p := range t.alive() {
			if leads, _ := p.metric("mcf_leader"); leads == 1 && p.ready() == nil && len(p.unfit()) == 0 {
				leader = p
			}
		}
		return leader != nil && len(t.alive()) >= 3
	})
	if leader == nil {
		t.fail("there is no leader")
		return
	}
	t.faulty = leader.replica
	t.lasting = t.network.disturb(&disturbance{
		name: "lists and watches of the leader " + leader.replica + " hang", back: true,
		of: func(q request) bool {
			return q.replica == leader.replica && (q.kind == lists || q.kind == watches) && q.place == atControl
		},
	})
	for _, p := range t.alive() {
		if p != leader {
			t.oracle.lost = append(t.oracle.lost, p.replica)
			p.crash()
			return
		}
	}
}

// storeUndecodable stores an object that does not decode.
func (t *trial) storeUndecodable() {
	t.spoilt++
	t.put(t.control, "machines", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
		"metadata": map[string]any{"namespace": "a", "name": "bad", "labels": map[string]any{labelSlot: strconv.Itoa(t.random.IntN(16))}},
		"spec":     map[string]any{"class": map[string]any{"kind": "MachineClass", "name": "small"}, "drainTimeout": "soon"},
	})
	for _, p := range t.alive() { // a new list contains it
		if t.random.IntN(2) == 0 {
			p.crash()
		}
	}
}

// emptyNamespace deletes the roots of a namespace, and with them the Leases.
func (t *trial) emptyNamespace() {
	t.heal()
	t.run(limit, func() bool { return !slices.ContainsFunc(t.sortedRoots(), func(r *root) bool { return r.away }) })
	for _, name := range slices.Sorted(maps.Keys(t.roots)) {
		if r := t.roots[name]; r.namespace == "b" {
			t.deleteRoot(r)
		}
	}
	for _, set := range t.control.List("machinesets") { // one that was orphaned may not have been adopted again
		if set.GetNamespace() == "b" {
			t.control.Delete("machinesets", "b", set.GetName())
		}
	}
	gone := func() bool {
		for _, resource := range []string{"machinedeployments", "machinesets", "machines"} {
			for _, o := range t.control.List(resource) {
				if o.GetNamespace() == "b" {
					return false
				}
			}
		}
		return true
	}
	if !t.run(limit, gone) {
		t.fail("namespace b is not empty after %s", limit)
		return
	}
	if t.random.IntN(4) == 0 { // the fleet releases them by itself
		t.run(11*time.Minute, nil)
		return
	}
	t.logf("MCM's Leases in b are emptied")
	t.setHolder("b", leaseManager, "")
	t.setHolder("b", leaseMachineController, "")
}
