package replica

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership"
)

type ownerReference = metav1.OwnerReference

const (
	labelSlot              = v1alpha1.LabelSlot
	leaseManager           = v1alpha1.LeaseManager
	leaseMachineController = v1alpha1.LeaseMachineController
)

// isSlotLease reports whether a path is that of a slot's Lease.
func isSlotLease(path string) bool { return strings.Contains(path, "/leases/fleet-slot-") }

// excused is for how long after a Lease was edited by hand two sessions may act on a slot: see
// docs/limits.md.
const excused = 30 * time.Second

// oracle sees every request and every VM, and reports violations of the invariants.
type oracle struct {
	*trial

	mu       sync.Mutex
	edited   time.Time       // when a Lease was last edited by hand
	restored time.Time       // when the control cluster's etcd last was
	holds    string          // the namespace in which deletions have been held since before the first replica started; "" for none
	late     map[string]bool // machines for which a create may have been late
	lost     []string        // replicas that are not restarted
	sentAll  int
	changes  int // of objects, Leases not counted
	byKind   map[string]int
}

func newOracle(t *trial) *oracle {
	return &oracle{trial: t, late: map[string]bool{}, byKind: map[string]int{}}
}

// owned is the end of a User-Agent: session, slot and epoch.
var owned = regexp.MustCompile(`session=([^;)]+); slot=(\d+); epoch=(\d+)`)

// sent checks a request at the moment of its send.
func (t *trial) sent(q request, r *http.Request) {
	t.watch(q, r)
	o := t.oracle
	o.mu.Lock()
	o.sentAll++
	o.byKind[q.place+" "+q.kind]++
	o.mu.Unlock()
	if q.kind != writes {
		return
	}
	if !strings.Contains(q.path, "/leases") {
		o.mu.Lock()
		o.changes++
		o.mu.Unlock()
	}
	o.deleted(q)
	o.touched(q, strings.HasSuffix(r.Header.Get("User-Agent"), "; leader)"))
	match := owned.FindStringSubmatch(r.Header.Get("User-Agent"))
	if match == nil {
		return
	}
	slot, _ := strconv.Atoi(match[2]) // they are digits
	o.acts(match[1], slot, q.method+" "+q.path)
}

// acts: no session begins something for a slot that another one holds.
func (o *oracle) acts(session string, slot int, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.edited.IsZero() && time.Since(o.edited) < excused {
		return
	}
	slots := o.options.Fleet.Slots
	fleet, _, _ := strings.Cut(session, "-")
	lease := o.control.Get("leases", fleetNamespace, member.SlotLeaseName(fleet, slot, slots))
	if lease == nil {
		return
	}
	if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); holder != "" && holder != session {
		o.fail("%s begins %s for slot %d, which %s holds", session, what, slot, holder)
	}
}

// called checks a call that may change something, at the moment of its send.
func (t *trial) called(ctx context.Context, p *process, op driver.Op, of driver.Target) {
	slot := -1
	for _, attribute := range telemetry.OwnerAttributes(ctx) {
		if attribute.Key == "mcf.slot" {
			slot = int(attribute.Value.AsInt64())
		}
	}
	if slot < 0 {
		t.fail("%s calls %s of %s under no slot", p.session, op, of.Machine.Name)
		return
	}
	t.oracle.acts(p.session, slot, string(op)+" "+of.Machine.Name)
	stored := t.control.Get("machines", of.Machine.Namespace, of.Machine.Name)
	if op == driver.OpCreate && (stored == nil || stored.GetUID() != of.Machine.UID) {
		t.oracle.mu.Lock()
		t.oracle.late[string(of.Machine.UID)] = true // the machine was deleted while the call was prepared: a limit
		t.oracle.mu.Unlock()
	}
}

// checks a VM that is about to be created, with the cloud's lock held.
func (t *trial) checkCreate(v *fakecloud.Resource) {
	v.Boots = time.Now().Add(bootTime)
	stored := t.control.Get("machines", v.Namespace, v.Machine)
	if stored == nil || stored.GetUID() != v.MachineUID || stored.GetDeletionTimestamp() != nil {
		t.oracle.mu.Lock()
		t.oracle.late[string(v.MachineUID)] = true
		t.oracle.mu.Unlock()
	}
	t.logf("VM %s of machine %s", v.ID, v.Machine)
}

// ends checks a VM that is about to end, with the cloud's lock held.
func (t *trial) ends(v *fakecloud.Resource) {
	stored := t.control.Get("machines", v.Namespace, v.Machine)
	if stored != nil && stored.GetUID() == v.MachineUID && stored.GetDeletionTimestamp() == nil && !t.oracle.mayBeUndeleted() {
		t.fail("VM %s is deleted, and its machine %s is not", v.ID, v.Machine)
	}
	if v.MachineUID == "" || v.ControlCluster == anotherCluster {
		t.fail("VM %s is deleted, which is not the fleet's", v.ID)
	}
	t.logf("VM %s of machine %s is deleted", v.ID, v.Machine)
}

// mayBeUndeleted reports whether a call that was sent before etcd was restored may still arrive:
// the machine that it deletes may not be marked as deleted in the backup.
func (o *oracle) mayBeUndeleted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.restored.IsZero() && time.Since(o.restored) < brokenAfter
}

// excuse records that a Lease was edited by hand.
func (o *oracle) excuse() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.edited = time.Now()
}

// forgotten counts the VMs that may be left behind, because the sweep of orphans does not find
// them: those of late creates by a replica that could not identify the control cluster yet. See
// docs/limits.md.
func (o *oracle) forgotten() (n int) {
	live := o.cloud.Live()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range live {
		stored := o.control.Get("machines", v.Namespace, v.Machine)
		if gone := stored == nil || stored.GetUID() != v.MachineUID; gone && o.late[string(v.MachineUID)] && v.ControlCluster == "" {
			n++
		}
	}
	return n
}

// machineBar is how many bytes of JSON a machine may have: the cluster-autoscaler's search for the
// group of a Node goes through all machines of the namespace, which it caches. What API servers
// add, managedFields, is not counted.
const machineBar = 3000

// checkSizes checks the sizes of all machines.
func (t *trial) checkSizes() {
	t.Helper()
	for _, m := range t.control.List("machines") {
		text, err := json.Marshal(m.Object)
		if err != nil || len(text) > machineBar {
			t.Errorf("machine %s has %d bytes (%v), want at most %d: %s", m.GetName(), len(text), err, machineBar, text)
		}
	}
}

// health returns the problems that replicas report, by metrics and readiness; "" for none.
func (t *trial) health() string {
	var all []string
	for _, p := range t.alive() {
		if err := p.ready(); err != nil {
			all = append(all, p.replica+" is not ready: "+err.Error())
		}
		for _, aspect := range p.unfit() {
			all = append(all, p.replica+" is not fit: "+aspect)
		}
		for _, name := range []string{
			"mcf_unowned_slots", "mcf_unopened_slots", "mcf_suspended", "mcf_refused_namespaces", "mcf_unreached_accounts", "mcf_orphans",
		} {
			if value, _ := p.metric(name); value > 0 {
				all = append(all, p.replica+": "+name+" "+strconv.FormatFloat(value, 'g', -1, 64))
			}
		}
	}
	return strings.Join(all, "; ")
}

// unowned counts the slot Leases that no session holds which lives.
func (t *trial) unowned() (n int) {
	sessions := map[string]bool{}
	for _, p := range t.alive() {
		sessions[p.session] = true
	}
	for _, lease := range t.control.List("leases") {
		if lease.GetNamespace() == fleetNamespace && strings.HasPrefix(lease.GetName(), "fleet-slot-") {
			if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); !sessions[holder] {
				n++
			}
		}
	}
	return n
}
