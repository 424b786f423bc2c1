package replica

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

const (
	slotsOfTrial   = 16
	fleetNamespace = "fleet"
	stepTime       = 250 * time.Millisecond
)

// trial is a fleet under faults. Its root goroutine injects the faults and checks everything, at
// intervals.
type trial struct {
	*testing.T

	options    Options // of every replica, without its name
	seed       uint64
	begun      time.Time
	random     *rand.Rand // of the root goroutine
	control    *apiserver.Server
	target     *apiserver.Server            // control where both are one cluster
	ownTargets map[string]*apiserver.Server // by namespace, which is the host of the URL; others have target
	network    *network
	cloud      *fakecloud.Cloud
	oracle     *oracle
	logger     logr.Logger
	tracer     trace.TracerProvider
	bearer     string // of the replicas, to the API servers

	skews       map[string]time.Duration // by how much the clocks of replicas are ahead of that of the control cluster
	targetAhead time.Duration            // by how much the clock of the target cluster is, where it is another one
	onWire      sync.WaitGroup

	wrapDriver func(driver.Driver) driver.Driver // changes what replicas see of the cloud
	watch      func(request, *http.Request)      // sees every request at the moment of its send

	processes   []*process           // in the order of their starts
	starts      int                  // how many there were
	restart     map[string]time.Time // replicas without a process, and when one is started
	roots       map[string]*root     // as they are wanted, by namespace/name
	collected   time.Time            // when garbage was last collected
	later       []event              // that are to come
	created     int                  // how many roots were created later
	ownerless   time.Duration        // of all slots, added up
	noTarget    bool                 // there is no target cluster
	lasting     *disturbance         // does not end with the other faults
	lastingName string
	spoilt      int       // objects that do not decode
	forged      int       // machines that a tenant has forged
	restoreDue  time.Time // when the last backup is restored
	restores    int
	faulty      string          // the replica with the lasting fault; empty for none
	served      []time.Duration // from changes at rest until their roots were served
	unready     notReady
	held        heldOrphans

	mu    sync.Mutex
	wrong string // the first violation
	story *strings.Builder
}

func newTrial(t *testing.T, o Options, seed uint64, story *strings.Builder) *trial {
	t.Helper()
	r := &trial{
		T: t, options: o, seed: seed, begun: time.Now(), random: rand.New(rand.NewPCG(seed, 2)), network: newNetwork(seed), story: story,
		skews: map[string]time.Duration{}, restart: map[string]time.Time{}, roots: map[string]*root{}, logger: logr.Discard(),
		tracer: noop.NewTracerProvider(), wrapDriver: func(d driver.Driver) driver.Driver { return d }, watch: func(request, *http.Request) {},
	}
	r.control = apiserver.New("c", time.Now)
	r.target = r.control
	if r.random.IntN(2) == 0 {
		r.target = apiserver.New("t", func() time.Time { return time.Now().Add(r.targetAhead) })
	}
	if story != nil {
		r.logger = newLogger(r)
	}
	r.cloud = &fakecloud.Cloud{Clock: time.Now, IDs: "sim:///i-", Stops: stopTime, Created: r.checkCreate, Ends: r.ends}
	r.oracle = newOracle(r)
	return r
}

// end ends all processes, and waits until nothing runs any more.
func (t *trial) end() {
	for _, p := range t.processes {
		p.kill()
	}
	t.network.healAll(nil)
	for _, p := range t.processes {
		<-p.done
	}
	t.onWire.Wait()
}

// run lets time pass until it is over, or cond holds, which it reports.
func (t *trial) run(d time.Duration, cond func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end) && t.fine(); {
		t.step()
		if cond != nil && cond() {
			return true
		}
	}
	return false
}

// until lets time pass until cond holds, and ends the test when it does not within twenty minutes.
func (t *trial) until(what string, cond func() bool) {
	t.Helper()
	if !t.run(20*time.Minute, cond) {
		t.Fatalf("expected that %s; %s %s", what, t.missing(), t.wrong)
	}
	t.checkSizes()
}

// step lets a little time pass, and does the work of Kubernetes and users.
func (t *trial) step() {
	time.Sleep(stepTime)
	synctest.Wait()
	t.boot()
	t.checkNodes()
	t.ownerless += time.Duration(t.unowned()) * stepTime
	if time.Since(t.collected) > 2*time.Second {
		t.collected = time.Now()
		t.collect()
	}
	for _, p := range t.processes {
		if !p.isAlive() && !p.judged {
			t.judge(p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.restart)) {
		if time.Now().After(t.restart[name]) {
			delete(t.restart, name)
			t.start(name)
		}
	}
	t.later = slices.DeleteFunc(t.later, func(e event) bool {
		due := time.Now().After(e.at)
		if due {
			e.do()
		}
		return due
	})
}

// replicas returns the names of the replicas that live, or will be restarted.
func (t *trial) replicas() []string {
	names := slices.Collect(maps.Keys(t.restart))
	for _, p := range t.alive() {
		names = append(names, p.replica)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// judge arranges the next process of a replica whose process has ended.
func (t *trial) judge(p *process) {
	select {
	case <-p.done:
	default:
		return
	}
	p.judged = true
	if !p.killed {
		p.mu.Lock()
		t.logf("%s has ended: %v %s", p.session, p.err, p.diedOf)
		p.mu.Unlock()
	}
	if p.err == nil && !p.leaving && !p.killed && p.diedOf == "" {
		t.fail("%s has left, and was not asked to", p.session)
	}
	if _, waits := t.restart[p.replica]; !waits && !slices.Contains(t.oracle.lost, p.replica) &&
		!slices.ContainsFunc(t.processes, func(other *process) bool { return other.replica == p.replica && other.isAlive() }) {
		t.restart[p.replica] = time.Now().Add(t.between(100*time.Millisecond, 5*time.Second))
	}
}

// alive returns the processes that live.
func (t *trial) alive() []*process {
	return slices.DeleteFunc(slices.Clone(t.processes), func(p *process) bool { return !p.isAlive() })
}

// collect deletes objects without an owner, as Kubernetes' garbage collector does.
func (t *trial) collect() {
	t.orphan()
	t.approve()
	t.deleteLeftNodes()
	t.recreate()
	uids := map[string]bool{}
	for _, resource := range []string{"machinedeployments", "machinesets"} {
		for _, o := range t.control.List(resource) {
			uids[string(o.GetUID())] = true
		}
	}
	for _, resource := range []string{"machinesets", "machines"} {
		for _, o := range t.control.List(resource) {
			owners := o.GetOwnerReferences()
			if len(owners) > 0 && o.GetDeletionTimestamp() == nil &&
				!slices.ContainsFunc(owners, func(owner ownerReference) bool { return uids[string(owner.UID)] }) {
				t.control.Delete(resource, o.GetNamespace(), o.GetName())
			}
		}
	}
}

// put stores an object.
func (t *trial) put(s *apiserver.Server, resource string, document map[string]any) {
	if _, err := s.Put(resource, document); err != nil {
		t.fail("put %s: %v", resource, err)
	}
}

// fail records a violation; the first one counts.
func (t *trial) fail(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wrong == "" {
		t.wrong = fmt.Sprintf("after %s: ", time.Since(t.begun)) + fmt.Sprintf(format, args...)
	}
}

func (t *trial) fine() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wrong == ""
}

// logf adds a line to the story.
func (t *trial) logf(format string, args ...any) {
	if t.story == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.story, "%10.3f %s\n", time.Since(t.begun).Seconds(), fmt.Sprintf(format, args...))
}

// logObjects writes all objects to the story, after a failure.
func (t *trial) logObjects() {
	for _, resource := range []string{"machinedeployments", "machinesets", "machines"} {
		for _, o := range t.control.List(resource) {
			t.logf("%s %s/%s (slot %s, owners %v): spec %v, status %v, annotations %v, deleted %v",
				resource, o.GetNamespace(), o.GetName(), slotOf(o),
				o.GetOwnerReferences(), o.Object["spec"], o.Object["status"], o.GetAnnotations(), o.GetDeletionTimestamp())
		}
	}
	for _, o := range t.target.List("nodes") {
		t.logf("node %s: %v, spec %v", o.GetName(), o.GetLabels(), o.Object["spec"])
	}
	for _, v := range t.cloud.Live() {
		t.logf("VM %s of machine %s/%s (%s), joined: %t", v.ID, v.Namespace, v.Machine, v.MachineUID, v.Joined)
	}
}

// between draws a duration, short ones more often than long ones.
func (t *trial) between(least, most time.Duration) time.Duration {
	f := t.random.Float64()
	return least + time.Duration(f*f*float64(most-least))
}

// root is a MachineDeployment as it is wanted.
type root struct {
	namespace, name string
	replicas        int
	changed         time.Time     // when it was last changed
	within          time.Duration // for how long it may be unserved, if longer than usual
	away            bool          // a user has deleted it, and creates it again when it is gone
	version         string        // of its template; "" for the first one
	settles         time.Time     // before that it does not count as served: what was done to it may not show yet
	surge           int           // its maxSurge, with a maxUnavailable of 0; 0 for the defaults
	keeps, ends     []string      // the UIDs of machines that it had then, which have to stay or to go
}

func (r *root) key() string { return r.namespace + "/" + r.name }

// setVersion sets the version of a MachineDeployment's template.
func (r *root) setVersion(u *unstructured.Unstructured) {
	_ = unstructured.SetNestedField(u.Object, r.version, "spec", "template", "metadata", "annotations", "version") // they are objects
}

// putRoot creates or changes a MachineDeployment.
func (t *trial) putRoot(namespace, name string, replicas int) *root {
	r := &root{namespace: namespace, name: name, replicas: replicas, changed: time.Now()}
	if old := t.roots[r.key()]; old != nil {
		r.away, r.version = old.away, old.version
	}
	t.roots[r.key()] = r
	t.logf("a user wants %d replicas of %s", replicas, r.key())
	if t.control.Edit("machinedeployments", namespace, name, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, int64(replicas), "spec", "replicas") // it is an object
	}) {
		return r
	}
	r.away = false
	t.createRoot(r)
	return r
}

// createRoot creates a MachineDeployment.
func (t *trial) createRoot(r *root) {
	labels := map[string]any{"root": r.name}
	template := map[string]any{"labels": labels}
	if r.version != "" {
		template["annotations"] = map[string]any{"version": r.version}
	}
	spec := map[string]any{
		"replicas": int64(r.replicas), "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": template,
			"spec":     map[string]any{"class": map[string]any{"kind": "MachineClass", "name": "small"}},
		},
	}
	if r.surge > 0 {
		spec["strategy"] = map[string]any{
			"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(r.surge), "maxUnavailable": int64(0)},
		}
	}
	t.put(t.control, "machinedeployments", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
		"metadata": map[string]any{"namespace": r.namespace, "name": r.name}, "spec": spec,
	})
}

// deleteRoot deletes a MachineDeployment.
func (t *trial) deleteRoot(r *root) {
	delete(t.roots, r.key())
	t.logf("a user deletes %s", r.key())
	t.control.Delete("machinedeployments", r.namespace, r.name)
	t.deleteLeftSets()
}

// deleteLeftSets has a user delete the MachineSets of MachineDeployments that were deleted, if they
// were orphaned earlier, and no MachineDeployment has adopted them since.
func (t *trial) deleteLeftSets() {
	for _, set := range t.control.List("machinesets") {
		if len(set.GetOwnerReferences()) == 0 && t.roots[set.GetNamespace()+"/"+set.GetLabels()["root"]] == nil {
			t.control.Delete("machinesets", set.GetNamespace(), set.GetName())
		}
	}
}

// createNamespace creates a Namespace.
func (t *trial) createNamespace(name string) {
	t.put(t.control, "namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
}

// createClass creates a class and its Secret in a namespace.
func (t *trial) createClass(namespace string) {
	t.put(t.control, "secrets", map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": namespace, "name": "small"},
		"data": map[string]any{"userData": "PDxCT09UU1RSQVBfVE9LRU4+Pg=="}, // <<BOOTSTRAP_TOKEN>>
	})
	t.put(t.control, "machineclasses", map[string]any{
		"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": map[string]any{"namespace": namespace, "name": "small"},
		"provider": "simulated", "providerSpec": map[string]any{}, "secretRef": map[string]any{"name": "small"},
	})
}

// unserved returns what a root lacks; "" for nothing.
func (t *trial) unserved(r *root) string {
	o := t.control.Get("machinedeployments", r.namespace, r.name)
	if o == nil {
		return r.key() + " is gone"
	}
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, path...)
		return n
	}
	observed, available, all := number("status", "observedGeneration"), number("status", "availableReplicas"), number("status", "replicas")
	if observed != o.GetGeneration() || available != int64(r.replicas) || all != int64(r.replicas) {
		return fmt.Sprintf("%s (slot %s) has %d replicas of which %d are available, want %d; generation %d of %d was observed",
			r.key(), slotOf(o), all, available, r.replicas, observed, o.GetGeneration())
	}
	return ""
}

func slotOf(o *apiserver.Object) string {
	if slot := o.GetLabels()[labelSlot]; slot != "" {
		return slot
	}
	return "none"
}

// missing returns what all roots lack; "" for nothing.
func (t *trial) missing() string {
	var all []string
	desired := 0
	for _, r := range t.sortedRoots() {
		desired += r.replicas
		if missing := t.unserved(r); missing != "" {
			all = append(all, missing)
		}
	}
	if len(all) > 3 {
		all = append(all[:3], "and "+strconv.Itoa(len(all)-3)+" more")
	}
	if len(all) == 0 {
		if n := t.ofForger(); n > 0 {
			return fmt.Sprintf("%d machines that a tenant has forged, and deleted, are there", n)
		}
		for _, set := range t.control.List("machinesets") {
			if len(set.GetOwnerReferences()) == 0 && t.roots[set.GetNamespace()+"/"+set.GetLabels()["root"]] != nil {
				return fmt.Sprintf("MachineSet %s/%s is of no MachineDeployment", set.GetNamespace(), set.GetName())
			}
		}
		machines, vms := len(t.control.List("machines"))-t.spoilt, len(t.cloud.Live())-t.oracle.forgotten()-unmanagedVMs
		if machines != desired || vms != desired {
			return fmt.Sprintf("want %d machines and VMs, there are %d machines and %d VMs", desired, machines, vms)
		}
	}
	return strings.Join(all, "; ")
}
