//go:build e2e

package chaos

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// fault injects a fault and ends it. short ones are part of every run, the others of long runs
// only.
type fault struct {
	name  string
	short bool
	do    func(t *testing.T, b *bed)
}

// TestFaults injects one fault after the other under load. After each, every slot is held by a live
// session; after all, every machine runs with one VM, and the logs show no violation.
func TestFaults(t *testing.T) {
	b := newBedWith(t, 3, slotCount(), sweepFlags) // a create that a fault delays can go out after its machine is gone, and leaves an orphan
	if testing.Short() {
		// Long runs also check that sessions are not suspended, which load on this machine could cause.
		// The lab has started before those of the other tests, since this one takes longest.
		t.Parallel()
	}
	b.load(t)
	for _, f := range faults() {
		if testing.Short() && !f.short {
			continue
		}
		passed := t.Run(f.name, func(t *testing.T) {
			start := time.Now()
			f.do(t, b)
			t.Logf("the fault lasted %.1f s", time.Since(start).Seconds())
			b.waitHeld(t)
		})
		if !passed {
			t.FailNow() // the next faults would hit a fleet that is broken already
		}
	}
	b.end(t)
}

func faults() []fault {
	list := []fault{
		{"kill", false, func(t *testing.T, b *bed) { b.do(t, b.replica(t), harness.Crash) }},
		{"kill the leader", true, func(t *testing.T, b *bed) { b.do(t, b.leader(t), harness.Crash) }},
		{"kill for longer than a take-over", false, killForLong},
		{"pause in the middle of a cloud call", false, pauseInCall},
		{"pause in the middle of a cloud call, shorter than the fence", false, pauseInShortCall},
		{"a request held back past its fence", true, func(t *testing.T, b *bed) { late(t, b, "PATCH /apis/machine.sapcloud.io/", lateWrite) }},
		{"a create held back past its fence", false, func(t *testing.T, b *bed) { late(t, b, string(driver.OpCreate)+" ", lateCreate) }},
		{"a second process of a pod", true, func(t *testing.T, b *bed) { twice(t, b, b.lab.Double, 5*time.Second) }},
		{"a pod replaced by force", false, func(t *testing.T, b *bed) { twice(t, b, b.lab.DoubleInNewPod, 20*time.Second) }},
		{"API server away for 10 s", true, func(t *testing.T, b *bed) { apiServerAway(t, b, 10*time.Second) }},
		{"API server away for 30 s", false, func(t *testing.T, b *bed) { apiServerAway(t, b, 30*time.Second) }},
		{"slot Leases deleted", false, slotLeasesDeleted},
		{"session Lease deleted", false, func(t *testing.T, b *bed) { loseSession(t, b, b.deleteLease) }},
		{"slot Lease emptied by hand", true, func(t *testing.T, b *bed) { slotLeaseEdited(t, b, handEdits()[:1]) }},
		{"slot Leases edited by hand", false, func(t *testing.T, b *bed) { slotLeaseEdited(t, b, handEdits()[1:]) }},
		{"session Lease emptied by hand", false, func(t *testing.T, b *bed) {
			loseSession(t, b, func(t *testing.T, lease string) { b.patchLease(t, lease, emptied) })
		}},
		{"reports deleted and edited by hand", true, reportsChanged},
		{"labels edited by hand", true, labelsEdited},
	}
	for _, d := range []time.Duration{5 * time.Second, 12 * time.Second, 40 * time.Second, 2 * time.Minute} {
		list = append(list, fault{fmt.Sprintf("pause for %s", d), d == 12*time.Second, func(t *testing.T, b *bed) { pause(t, b, d) }})
	}
	cuts := []harness.Fault{harness.Cut(harness.Both), harness.Cut(harness.Answers), harness.Refuse()}
	for _, cut := range cuts {
		name := fmt.Sprintf("link to %s: %s %s", harness.LinkControl, cut.Kind, cut.Only)
		list = append(list,
			fault{name + ", until the fence", false, func(t *testing.T, b *bed) { cutOff(t, b, cut, false) }},
			fault{name + ", until the take-over", false, func(t *testing.T, b *bed) { cutOff(t, b, cut, true) }},
		)
		for _, link := range []string{harness.LinkTarget, harness.LinkCloud} {
			name := fmt.Sprintf("link to %s: %s %s", link, cut.Kind, cut.Only)
			list = append(list, fault{name, false, func(t *testing.T, b *bed) { cutFrom(t, b, link, cut, 20*time.Second) }})
		}
	}
	return list
}

// killForLong keeps a replica ended until others have its slots.
func killForLong(t *testing.T, b *bed) {
	s := b.standing(t)
	b.do(t, s.replica, harness.Kill)
	b.loses(t, s)
	b.waitHeld(t)
	b.do(t, s.replica, harness.Start)
	b.startsAnew(t, s) // and gets its share back
}

func apiServerAway(t *testing.T, b *bed, d time.Duration) {
	const server = "kube-apiserver"
	b.recorder.Outage(b.ctx, t, func() {
		b.do(t, server, harness.Kill)
		b.wait(t, d)
		b.do(t, server, harness.Start)
	})
}

// labelsEdited gives machines and MachineSets wrong, invalid or no slot labels.
func labelsEdited(t *testing.T, b *bed) {
	api := b.lab.Machines.MachineV1alpha1()
	machines, err := api.Machines(b.namespace).List(b.ctx, metav1.ListOptions{Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	values := []string{`"` + fmt.Sprint(b.random.IntN(b.slots)) + `"`, `"nonsense"`, "null"}
	patch := func(value string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelSlot, value)
	}
	for i, m := range machines.Items {
		_, err := api.Machines(b.namespace).Patch(b.ctx, m.Name, types.MergePatchType, patch(values[i%3]), metav1.PatchOptions{})
		if err != nil {
			t.Logf("%s: %v", m.Name, err) // it may be gone by now
		}
	}
	sets, err := api.MachineSets(b.namespace).List(b.ctx, metav1.ListOptions{Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i, set := range sets.Items {
		_, err := api.MachineSets(b.namespace).Patch(b.ctx, set.Name, types.MergePatchType, patch(values[i%3]), metav1.PatchOptions{})
		if err != nil {
			t.Logf("%s: %v", set.Name, err)
		}
	}
}

func (b *bed) cloud(t *testing.T, settings string) {
	t.Helper()
	if err := b.lab.Cloud.Set(b.ctx, settings); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) ready(t *testing.T, replica string) {
	t.Helper()
	if err := b.lab.Ready(b.ctx, replica); err != nil {
		t.Fatal(err)
	}
}
