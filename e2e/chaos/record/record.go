package record

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineinformers "github.com/machine-controller-fleet/machine-controller-fleet/client/informers/externalversions"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/check"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Recorder counts machines during faults, and passes the records of a run to the checker. It
// bypasses the proxies, to which faults apply.
type Recorder struct {
	// Position is the end of the audit logs when the recording began.
	Position harness.AuditPosition
	// Outages are those of Outage.
	Outages []harness.Outage
	// Orphans are the client tokens of VMs that the test has created itself, for Machines that never
	// existed.
	Orphans []string

	lab       *harness.Lab
	namespace string
	began     time.Time
	unwatch   func()

	mu       sync.Mutex
	listed   bool // all objects from the start of the watches have been observed
	desired  map[string]int
	surge    map[string]int             // what a rollout may add, by deployment
	ahead    map[string]int             // desired machines that were not observed yet, by deployment
	machines map[string]map[string]bool // by deployment, those without deletionTimestamp
	counts   []check.Count
	endings  map[string]time.Time // when Machines were first seen to end, by UID
	resets   []check.Reset
}

// Start starts to count the machines of a namespace whose label name is their MachineDeployment's,
// as harness.Deployment creates them.
func Start(ctx context.Context, t *testing.T, lab *harness.Lab, namespace string) *Recorder {
	t.Helper()
	position, err := lab.AuditEnd()
	if err != nil {
		t.Fatal(err)
	}
	r := &Recorder{Position: position, lab: lab, namespace: namespace, began: time.Now(), unwatch: func() {}, endings: map[string]time.Time{}}
	r.watch(ctx, t)
	return r
}

// watch starts watches of MachineDeployments and Machines, and ends earlier ones.
func (r *Recorder) watch(ctx context.Context, t *testing.T) {
	t.Helper()
	r.unwatch()
	r.mu.Lock()
	r.listed, r.desired, r.machines = false, map[string]int{}, map[string]map[string]bool{}
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	factory := machineinformers.NewSharedInformerFactoryWithOptions(r.lab.Machines, 0, machineinformers.WithNamespace(r.namespace))
	r.unwatch = func() {
		cancel()
		factory.Shutdown()
	}
	informers := factory.Machine().V1alpha1()
	var listed []cache.InformerSynced
	for informer, handle := range map[cache.SharedIndexInformer]func(obj any, there bool){
		informers.MachineDeployments().Informer(): r.deployment, informers.Machines().Informer(): r.machine,
	} {
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { handle(obj, true) },
			UpdateFunc: func(_, obj any) { handle(obj, true) },
			DeleteFunc: func(obj any) { handle(obj, false) },
		})
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, handler.HasSynced)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), listed...) {
		t.Fatal("machines and MachineDeployments could not be listed")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed = true
	for deployment := range r.desired {
		r.count(deployment)
	}
}

func (r *Recorder) deployment(obj any, there bool) {
	d, ok := obj.(*v1alpha1.MachineDeployment)
	if !ok || !there {
		return // its machines are counted until they are gone
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ahead, known := r.ahead[d.Name]; known && int(d.Spec.Replicas) != ahead {
		return // from before
	}
	delete(r.ahead, d.Name)
	r.desired[d.Name] = int(d.Spec.Replicas)
	r.count(d.Name)
}

func (r *Recorder) machine(obj any, there bool) {
	if unknown, missed := obj.(cache.DeletedFinalStateUnknown); missed {
		obj = unknown.Obj
	}
	m, ok := obj.(*v1alpha1.Machine)
	if !ok || m.Labels[v1alpha1.LabelName] == "" {
		return
	}
	name := m.Labels[v1alpha1.LabelName]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.machines[name] == nil {
		r.machines[name] = map[string]bool{}
	}
	if _, known := r.endings[string(m.UID)]; !known && (!there || m.DeletionTimestamp != nil) {
		r.endings[string(m.UID)] = time.Now()
		if m.DeletionTimestamp != nil { // on a busy machine the watch is late
			r.endings[string(m.UID)] = m.DeletionTimestamp.Time
		}
	}
	before := len(r.machines[name])
	delete(r.machines[name], m.Name)
	if there && m.DeletionTimestamp == nil {
		r.machines[name][m.Name] = true
	}
	if len(r.machines[name]) != before {
		r.count(name)
	}
}

// Expect records that a deployment is about to be scaled up. Its watch may show that later than
// that of machines shows the next one.
func (r *Recorder) Expect(deployment string, replicas int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ahead == nil {
		r.ahead = map[string]int{}
	}
	r.ahead[deployment], r.desired[deployment] = replicas, replicas
	r.count(deployment)
}

// Rolls records that a rollout of a deployment may have so many machines more than desired, from
// now on.
func (r *Recorder) Rolls(deployment string, surge int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.surge == nil {
		r.surge = map[string]int{}
	}
	r.surge[deployment] = surge
}

// count records the number of machines; r.mu is held.
func (r *Recorder) count(deployment string) {
	desired, known := r.desired[deployment]
	if !known || !r.listed {
		return // the two watches are not ordered: the next change counts
	}
	r.counts = append(r.counts, check.Count{
		At: time.Now(), Deployment: deployment, Desired: desired, Surge: r.surge[deployment], Machines: len(r.machines[deployment]),
	})
}

// Reset records that the epochs of a slot start again; -1 means all.
func (r *Recorder) Reset(slot int, from, to time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets = append(r.resets, check.Reset{From: from, To: to, Slot: slot})
}

// Outage runs a function that stops and restarts the API server. The watches are restarted then:
// the earlier ones would recover half a minute later, and after a restore of etcd never.
func (r *Recorder) Outage(ctx context.Context, t *testing.T, do func()) harness.Outage {
	t.Helper()
	from := time.Now()
	do()
	if err := harness.Eventually(ctx, "the API server is available", func(ctx context.Context) error {
		_, err := r.lab.Holders(ctx)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.watch(ctx, t)
	o := harness.Outage{From: from, To: time.Now().Add(settled)}
	r.Outages = append(r.Outages, o)
	return o
}

// TargetOutage runs a function that starts the API server of a target cluster again. Until it has
// read its roles it refuses what they permit.
func (r *Recorder) TargetOutage(do func()) {
	from := time.Now()
	do()
	r.Outages = append(r.Outages, harness.Outage{From: from, To: time.Now().Add(settled)})
}

// settled is how long after its end an outage still counts.
const settled = 10 * time.Second

// Verdict checks the records of the run, and fails the test for each fault.
func (r *Recorder) Verdict(t *testing.T) check.Report {
	t.Helper()
	calls, err := r.lab.Cloud.Calls()
	if err != nil {
		t.Fatal(err)
	}
	// The VMs of the lab's own Nodes were created before, without a fleet.
	calls = slices.DeleteFunc(calls, func(c cloudapi.Call) bool { return c.End.Before(r.began) })
	requests, err := r.lab.Requests(r.Position)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	endings := []check.Ending{}
	for uid, at := range r.endings {
		endings = append(endings, check.Ending{At: at, MachineUID: uid})
	}
	var outages []check.Outage
	for _, o := range r.Outages {
		outages = append(outages, check.Outage(o))
	}
	report := check.Check(check.History{
		Calls: calls, Writes: writes(requests), Counts: r.counts, Endings: endings, Outages: outages, Resets: r.resets, Orphans: r.Orphans,
	})
	for _, fault := range report.Faults {
		t.Error(fault)
	}
	t.Logf("checked %d calls to the cloud, %d writes and %d Machines that ended, of %d sessions: "+
		"%d calls and %d writes came late and changed nothing",
		report.Calls, report.Writes, len(endings), report.Sessions, report.LateCalls, report.LateWrites)
	return report
}

// writes returns the fleet's writes from the audit log.
func writes(requests []harness.Request) (picked []check.Write) {
	for _, q := range requests {
		if !q.IsWrite() || !q.IsFleet() {
			continue
		}
		picked = append(picked, check.Write{
			At: q.At, Caller: q.UserAgent, Verb: q.Verb, Subresource: q.Subresource, Code: q.Code, Body: q.Body,
			Object: check.Object{Resource: q.Resource, Namespace: q.Namespace, Name: q.Name},
		})
	}
	return picked
}
