package replica

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// The kinds of faults that begin and end. Each function begins one.
func faultKinds() map[string]func(*trial) {
	return map[string]func(*trial){
		"outage of a cluster":        (*trial).outage,
		"a replica is cut off":       (*trial).cutOff,
		"answers do not come back":   (*trial).oneWay,
		"lists hang":                 (*trial).listsHang,
		"renewals hang":              (*trial).renewalsHang,
		"requests of a kind fail":    (*trial).someFail,
		"watches are silent":         (*trial).silence,
		"crash":                      (*trial).crash,
		"a replica leaves":           (*trial).quit,
		"two processes of a replica": (*trial).twin,
		"history is compacted":       (*trial).compact,
		"Leases are deleted":         (*trial).deleteLease,
		"Leases are emptied":         (*trial).emptyLease,
		"slot labels are edited":     (*trial).relabel,
		"Leases of MCM change hands": (*trial).writeMCMLeases,
		"the cloud is away":          (*trial).cloudAway,
		"a proxy answers":            (*trial).proxyAnswers,
		"a replica is paused":        (*trial).pauseProcess,
		"a link is slow":             (*trial).slowLink,
		"etcd is restored":           (*trial).restoreEtcd,
		"machines are forged":        (*trial).forge,
		"a Node is not Ready":        (*trial).sicken,
		"finalizers are removed":     (*trial).forget,
	}
}

// drawFaults draws the kinds of faults of a run, and the faults of its network.
func (t *trial) drawFaults() (kinds []string) {
	for _, name := range slices.Sorted(maps.Keys(faultKinds())) {
		if t.random.IntN(3) == 0 {
			kinds = append(kinds, name)
		}
	}
	rates := []uint64{0, 0, 100, 20}
	t.network.lossOneIn, t.network.lateOneIn = rates[t.random.IntN(4)], rates[t.random.IntN(4)]
	if t.random.IntN(3) == 0 {
		t.network.lagMost = 5 * time.Second
	}
	return kinds
}

// randomProcess is a replica with a process that lives; "" is none.
func (t *trial) randomProcess() *process {
	alive := t.alive()
	if len(alive) == 0 {
		return nil
	}
	return alive[t.random.IntN(len(alive))]
}

// forAWhile ends a disturbance after some time.
func (t *trial) forAWhile(most time.Duration, d *disturbance) {
	d = t.network.disturb(d)
	for_ := t.between(time.Second, most)
	t.logf("%s for %s", d.name, for_)
	t.later = append(t.later, event{time.Now().Add(for_), func() { t.network.heal(d) }})
}

func (t *trial) outage() {
	place := []string{atControl, atTarget}[t.random.IntN(2)]
	t.forAWhile(time.Minute, &disturbance{
		name: place + " is away", there: true, back: true, refuses: t.random.IntN(2) == 0,
		of: func(q request) bool { return q.place == place },
	})
}

func (t *trial) proxyAnswers() {
	t.forAWhile(time.Minute, invents([]string{atControl, atTarget}[t.random.IntN(2)]))
}

func (t *trial) cloudAway() {
	t.forAWhile(time.Minute, &disturbance{
		name: "the cloud is away", there: true, back: true, of: func(q request) bool { return q.place == atCloud },
	})
}

// place draws a place, or "" for all of them.
func (t *trial) place() string { return []string{atControl, atTarget, ""}[t.random.IntN(3)] }

func (t *trial) cutOff() {
	if p := t.randomProcess(); p != nil {
		t.forAWhile(time.Minute, cut(p.replica, t.place()))
	}
}

// cut interrupts the network between a replica and a place, "" for all.
func cut(replica, place string) *disturbance {
	return &disturbance{
		name: replica + " is cut off from " + place, there: true, back: true,
		of: func(q request) bool { return q.replica == replica && (place == "" || q.place == place) },
	}
}

func (t *trial) oneWay() {
	if p := t.randomProcess(); p != nil {
		d := cut(p.replica, t.place())
		d.name, d.there = "answers do not come back to "+d.name, false
		t.forAWhile(time.Minute, d)
	}
}

// hanging has the lists of a replica hang, while all else is answered: a network that loses large
// packets.
func hanging(replica, place string) *disturbance {
	return &disturbance{
		name: "lists of " + replica + " hang at " + place, back: true,
		of: func(q request) bool {
			return q.replica == replica && q.kind == lists && (place == "" || q.place == place)
		},
	}
}

func (t *trial) listsHang() {
	if p := t.randomProcess(); p != nil {
		t.forAWhile(time.Minute, hanging(p.replica, t.place()))
	}
}

// blockedLeases has a replica's requests for the fleet's Leases hang, while all other requests are
// answered.
func blockedLeases(replica, _ string) *disturbance {
	return &disturbance{
		name: "requests of " + replica + " about Leases hang", there: true, back: true,
		of: func(q request) bool {
			return q.replica == replica && strings.Contains(q.path, "/namespaces/"+fleetNamespace+"/leases")
		},
	}
}

func (t *trial) renewalsHang() {
	if p := t.randomProcess(); p != nil {
		d := blockedLeases(p.replica, "")
		d.there = t.random.IntN(2) == 0
		t.forAWhile(time.Minute, d)
	}
}

func (t *trial) someFail() {
	if p := t.randomProcess(); p != nil {
		place, kind := t.place(), []string{lists, watches, gets, writes}[t.random.IntN(4)]
		t.forAWhile(time.Minute, &disturbance{
			name: kind + " of " + p.replica + " fail at " + place, there: true, refuses: true,
			of: func(q request) bool {
				return q.replica == p.replica && q.kind == kind && (place == "" || q.place == place)
			},
		})
	}
}

// silent has the watches of a replica deliver nothing.
func silent(replica, place string) *disturbance {
	return &disturbance{
		name: "watches of " + replica + " are silent at " + place, back: true,
		of: func(q request) bool {
			return q.replica == replica && q.kind == watches && (place == "" || q.place == place)
		},
	}
}

func (t *trial) silence() {
	if p := t.randomProcess(); p != nil {
		t.forAWhile(time.Minute, silent(p.replica, t.place()))
	}
}

func (t *trial) crash() {
	if p := t.randomProcess(); p != nil {
		p.crash()
	}
}

func (t *trial) quit() {
	if p := t.randomProcess(); p != nil {
		p.quit()
	}
}

// twin replaces a pod by force: the next process begins while the old one runs, for a while.
func (t *trial) twin() {
	if p := t.randomProcess(); p != nil {
		t.start(p.replica)
		t.later = append(t.later, event{time.Now().Add(t.between(0, 30*time.Second)), p.crash})
	}
}

func (t *trial) compact() {
	t.logf("history is compacted")
	t.control.Compact()
	t.target.Compact()
}

// someLease draws a Lease of the fleet.
func (t *trial) someLease() *apiserver.Object {
	all := slices.DeleteFunc(t.control.List("leases"), func(o *apiserver.Object) bool { return o.GetNamespace() != fleetNamespace })
	if len(all) == 0 {
		return nil
	}
	return all[t.random.IntN(len(all))]
}

func (t *trial) deleteLease() {
	if lease := t.someLease(); lease != nil {
		t.logf("a user deletes Lease %s", lease.GetName())
		t.control.Remove("leases", lease.GetNamespace(), lease.GetName())
		if strings.HasSuffix(lease.GetName(), "-leader") {
			t.oracle.excuse()
		}
	}
}

func (t *trial) emptyLease() {
	if lease := t.someLease(); lease != nil {
		t.logf("a user empties Lease %s", lease.GetName())
		t.setHolder(lease.GetNamespace(), lease.GetName(), "")
		t.oracle.excuse()
	}
}

func (t *trial) setHolder(namespace, name, holder string) {
	t.control.Edit("leases", namespace, name, func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, holder, "spec", "holderIdentity") // it is an object
		_ = unstructured.SetNestedField(u.Object, int64(15), "spec", "leaseDurationSeconds")
	})
}

// writeMCMLeases has another holder acquire, or empty, MCM's Leases of a namespace.
func (t *trial) writeMCMLeases() {
	namespace, holder := servedNamespaces()[t.random.IntN(2)], []string{"", "mcm-1"}[t.random.IntN(2)]
	t.logf("MCM's Leases in %s get the holder %q", namespace, holder)
	for _, name := range []string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController} {
		t.setHolder(namespace, name, holder)
	}
}

// relabel removes the slot label of an object, or changes it.
func (t *trial) relabel() {
	resource := []string{"machinedeployments", "machinesets", "machines", "nodes"}[t.random.IntN(4)]
	server := t.control
	if resource == "nodes" {
		server = t.target
	}
	all := server.List(resource)
	if len(all) == 0 {
		return
	}
	o := all[t.random.IntN(len(all))]
	label := []string{"", "nonsense", fmt.Sprint(t.random.IntN(16))}[t.random.IntN(3)]
	t.logf("a user labels %s %s %q", resource, o.GetName(), label)
	server.Edit(resource, o.GetNamespace(), o.GetName(), func(u *unstructured.Unstructured) {
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		if labels[labelSlot] = label; label == "" {
			delete(labels, labelSlot)
		}
		u.SetLabels(labels)
	})
}

// changeSome changes a root.
func (t *trial) changeSome() {
	names := slices.Sorted(maps.Keys(t.roots))
	switch n := t.random.IntN(8); {
	case len(names) == 0 || n == 0:
		t.created++
		t.putRoot(servedNamespaces()[t.random.IntN(2)], fmt.Sprint("more-", t.created), 1+t.random.IntN(2))
	case n == 1 && len(names) > 2:
		if r := t.roots[names[t.random.IntN(len(names))]]; !r.away {
			t.deleteRoot(r)
		}
	case n == 3:
		t.deleteToRecreate(t.roots[names[t.random.IntN(len(names))]], t.random.IntN(2) == 0)
	case n == 4:
		t.deleteSet(t.roots[names[t.random.IntN(len(names))]])
	case n == 2:
		r := t.roots[names[t.random.IntN(len(names))]]
		t.logf("a user rolls %s", r.key())
		t.control.Edit("machinedeployments", r.namespace, r.name, func(u *unstructured.Unstructured) {
			r.version = fmt.Sprint(u.GetGeneration())
			r.setVersion(u)
		})
		r.changed = time.Now()
	default:
		r := t.roots[names[t.random.IntN(len(names))]]
		t.putRoot(r.namespace, r.name, t.random.IntN(4))
	}
}

// longestPause bounds the time for which a process is paused.
const longestPause = time.Minute

// pauseProcess stops a process for some time, as SIGSTOP and SIGCONT do: its requests, answers and
// timers are delayed. Goroutines cannot be stopped in a bubble, so that timers of controllers and
// of client-go still fire; their effects are delayed.
func (t *trial) pauseProcess() {
	if p := t.randomProcess(); p != nil {
		d := t.between(time.Second, longestPause)
		t.logf("%s is paused for %s", p.session, d)
		p.pause()
		t.later = append(t.later, event{time.Now().Add(d), p.resume})
	}
}

// slowLink delays requests, answers and events of a replica, of all kinds or of one.
func (t *trial) slowLink() {
	if p := t.randomProcess(); p != nil {
		d := slow(p.replica, t.place())
		d.slowest = t.between(time.Second, 8*time.Second)
		ways := t.random.IntN(3)
		d.there, d.back = ways != 0, ways != 1
		if kind := []string{"", "", lists, watches, gets, writes}[t.random.IntN(6)]; kind != "" {
			all := d.of
			d.name, d.of = kind+": "+d.name, func(q request) bool { return q.kind == kind && all(q) }
		}
		t.forAWhile(time.Minute, d)
	}
}

// slow delays all between a replica and a place, "" for all places, by up to a second each way.
func slow(replica, place string) *disturbance {
	d := cut(replica, place)
	d.name, d.slowest = "the link of "+replica+" to "+place+" is slow", time.Second
	return d
}
