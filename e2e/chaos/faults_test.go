//go:build e2e

package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	member "github.com/machine-controller-fleet/machine-controller-fleet/membership/state"
)

// fault breaks something and mends it again. short ones are part of every run, the others of long runs only.
type fault struct {
	name  string
	short bool
	do    func(t *testing.T, b *bed)
}

// TestFaults breaks one thing after the other under load. After each, every slot is held by a live session; after all,
// every machine runs with one VM, and the logs show nothing that must not be.
func TestFaults(t *testing.T) {
	b := newBed(t, 3)
	b.load(t)
	for _, f := range faults() {
		if testing.Short() && !f.short {
			continue
		}
		passed := t.Run(f.name, func(t *testing.T) {
			start := time.Now()
			f.do(t, b)
			t.Logf("the fault lasted %.1f s", time.Since(start).Seconds())
			b.held(t)
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
		{"kill for longer than a take-over", true, killForLong},
		{"pause in the middle of a cloud call", false, pauseInCall},
		{"a request held back past its fence", true, func(t *testing.T, b *bed) { late(t, b, "PATCH /apis/machine.sapcloud.io/", lateWrite) }},
		{"a create held back past its fence", false, func(t *testing.T, b *bed) { late(t, b, "POST "+cloudapi.PathInstances, lateCreate) }},
		{"a second process of a pod", true, func(t *testing.T, b *bed) { twice(t, b, b.lab.Double, 5*time.Second) }},
		{"a pod replaced by force", false, func(t *testing.T, b *bed) { twice(t, b, b.lab.DoubleInNewPod, 20*time.Second) }},
		{"API server away for 10 s", true, func(t *testing.T, b *bed) { apiServerAway(t, b, 10*time.Second) }},
		{"API server away for 30 s", false, func(t *testing.T, b *bed) { apiServerAway(t, b, 30*time.Second) }},
		{"slot Leases deleted", false, slotLeasesDeleted},
		{"session Lease deleted", false, func(t *testing.T, b *bed) { loseSession(t, b, "delete") }},
		{"slot Lease emptied by hand", true, func(t *testing.T, b *bed) { b.leases(t, "empty", b.slotLease(b.random.IntN(slots))) }},
		{"session Lease emptied by hand", false, func(t *testing.T, b *bed) { loseSession(t, b, "empty") }},
		{"labels edited by hand", true, labelsEdited},
	}
	for _, d := range []time.Duration{5 * time.Second, 12 * time.Second, 40 * time.Second, 2 * time.Minute} {
		list = append(list, fault{fmt.Sprintf("pause for %s", d), d == 12*time.Second, func(t *testing.T, b *bed) { pause(t, b, d) }})
	}
	for _, link := range []string{harness.LinkControl, harness.LinkTarget, harness.LinkCloud} {
		for _, cut := range []harness.Fault{harness.Cut(harness.Both), harness.Cut(harness.Answers), harness.Refuse()} {
			name := fmt.Sprintf("link to %s: %s %s", link, cut.Kind, cut.Only)
			list = append(list, fault{name, false, func(t *testing.T, b *bed) {
				b.link(t, link, cut, 20*time.Second)
			}})
		}
	}
	return list
}

// killForLong keeps a replica away until others have its slots.
func killForLong(t *testing.T, b *bed) {
	name := b.replica(t)
	b.do(t, name, harness.Kill)
	start := time.Now()
	if err := harness.Eventually(b.ctx, name+" holds nothing", func(context.Context) error {
		if n := b.shares(t)[name]; n > 0 {
			return fmt.Errorf("it holds %d slots", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("its slots were taken over %.1f s after it was killed", time.Since(start).Seconds())
	b.held(t)
	b.do(t, name, harness.Start)
	b.atWork(t, name) // it gets its share back
}

func pause(t *testing.T, b *bed, d time.Duration) {
	name := b.replica(t)
	b.do(t, name, harness.Pause)
	b.wait(t, d)
	b.do(t, name, harness.Resume)
}

func apiServerAway(t *testing.T, b *bed, d time.Duration) {
	const server = "kube-apiserver"
	b.recorder.outage(b.ctx, t, func() {
		b.do(t, server, harness.Kill)
		b.wait(t, d)
		b.do(t, server, harness.Start)
	})
}

// loseSession deletes the session Lease of a replica, or empties it. Its process ends as soon as it sees that, and the next
// one begins a session of its own.
func loseSession(t *testing.T, b *bed, what string) {
	name, before := b.worker(t)
	b.leases(t, what, member.SessionLeaseName(harness.FleetName, name))
	if err := harness.Eventually(b.ctx, name+" has a new session", func(ctx context.Context) error {
		now, err := b.session(ctx, name)
		if err == nil && (now == "" || now == before) {
			return fmt.Errorf("its Lease is held by %q", now)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b.ready(t, name)
}

// slotLeasesDeleted deletes the Leases of a few slots. Their holders stop as soon as they see it, and the leader makes them
// again; what is new cannot be acquired for 15 s.
func slotLeasesDeleted(t *testing.T, b *bed) {
	const noticed = 5 * time.Second
	for range 5 {
		slot := b.random.IntN(slots)
		b.recorder.reset(slot, time.Now(), time.Now().Add(noticed))
		b.leases(t, "delete", b.slotLease(slot))
	}
}

// labelsEdited gives machines and MachineSets labels that are wrong, nonsense, or none.
func labelsEdited(t *testing.T, b *bed) {
	api := b.lab.Machines.MachineV1alpha1()
	machines, err := api.Machines(b.namespace).List(b.ctx, metav1.ListOptions{Limit: 9})
	if err != nil {
		t.Fatal(err)
	}
	values := []string{`"` + fmt.Sprint(b.random.IntN(slots)) + `"`, `"nonsense"`, "null"}
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

// link makes a fault on one link of a replica for a while.
func (b *bed) link(t *testing.T, link string, f harness.Fault, d time.Duration) {
	t.Helper()
	name := b.replica(t)
	if err := b.lab.SetFault(b.ctx, name, link, f); err != nil {
		t.Fatal(err)
	}
	b.wait(t, d)
	if err := b.lab.Heal(b.ctx, name); err != nil {
		t.Fatal(err)
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

func (b *bed) slotLease(slot int) string { return fmt.Sprintf("%s-slot-%03d", harness.FleetName, slot) }

// leases deletes a Lease, or empties its holder, by hand.
func (b *bed) leases(t *testing.T, what, name string) {
	t.Helper()
	api := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace)
	var err error
	if what == "delete" {
		err = api.Delete(b.ctx, name, metav1.DeleteOptions{})
	} else {
		_, err = api.Patch(b.ctx, name, types.MergePatchType, []byte(`{"spec":{"holderIdentity":null}}`), metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
