//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/chaos/record"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// slots is the default number of slots, which nearly all labs of the long form have.
const slots = 256

// fewSlots is the number in the short form, in which half of the requests would be those for slots.
const fewSlots = 32

// slotCount returns the number of slots of a lab for tests of both forms.
func slotCount() int {
	if testing.Short() {
		return fewSlots
	}
	return slots
}

// bed is a fleet of several replicas under load, for the injection of faults.
type bed struct {
	ctx       context.Context //nolint:containedctx // it is the test's own, and every step of a fault needs it
	lab       *harness.Lab
	namespace string
	slots     int
	random    *rand.Rand
	scene     *scene
	churn     *churn
	recorder  *record.Recorder
}

// newBed starts a lab with a fleet of n replicas, and a load that is recorded.
func newBed(t *testing.T, n int) *bed {
	t.Helper()
	return newBedWith(t, n, slotCount())
}

// newBedWith is newBed with another number of slots, and further flags of the replicas.
func newBedWith(t *testing.T, n, slots int, flags ...string) *bed {
	t.Helper()
	return newBedIn(t, slots, harness.Options{Replicas: n, CloudsimFlags: cloudFlags, FleetFlags: strings.Join(flags, " ")})
}

// newBedIn is newBed in another lab.
func newBedIn(t *testing.T, slots int, options harness.Options) *bed {
	t.Helper()
	b := &bed{namespace: "chaos", slots: slots, random: rand.New(rand.NewPCG(seed(t), 1))}
	options.FleetFlags = strings.TrimSpace(fmt.Sprintf("--slots=%d %s", slots, options.FleetFlags))
	b.startLab(t, options)
	if err := b.lab.Prepare(b.ctx, b.namespace, `{"sourceDestCheck":false}`); err != nil { // so that VMs are initialized, too
		t.Fatal(err)
	}
	if err := b.lab.WaitHeld(b.ctx, slots); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.scene, err = observe(b.ctx, b.lab, b.namespace); err != nil {
		t.Fatal(err)
	}
	b.recorder = record.Start(b.ctx, t, b.lab, b.namespace)
	return b
}

// startLab starts a lab of the test's own.
func (b *bed) startLab(t *testing.T, options harness.Options) {
	t.Helper()
	b.ctx, b.lab = harness.Begin(t, options, func() []harness.Outage {
		if b.recorder == nil {
			return nil
		}
		return b.recorder.Outages
	})
}

// load keeps machines in creation and in deletion until the test is over.
func (b *bed) load(t *testing.T) {
	t.Helper()
	b.churn = startChurn(b.ctx, b.lab, b.scene, b.namespace)
	t.Cleanup(func() { _ = b.churn.stop() }) // end reports its errors, once
	if err := b.scene.busy(b.ctx); err != nil {
		t.Fatal(err)
	}
}

// end stops the load, waits until the expected state is reached, and checks the logs.
func (b *bed) end(t *testing.T) {
	t.Helper()
	if b.churn != nil {
		if err := b.churn.stop(); err != nil {
			t.Fatal(err)
		}
	}
	b.waitHeld(t)
	endRight(b.ctx, t, b.lab, b.namespace)
	b.recorder.Verdict(t)
}

// waitHeld waits until every slot is held by a session that lives, and logs how long that took.
func (b *bed) waitHeld(t *testing.T) {
	t.Helper()
	start := time.Now()
	if err := b.lab.WaitHeld(b.ctx, b.slots); err != nil {
		t.Fatal(err)
	}
	t.Logf("all slots are held after %.1f s", time.Since(start).Seconds())
}

// do acts on a process and fails the test when that is not possible.
func (b *bed) do(t *testing.T, process, action string) {
	t.Helper()
	if err := b.lab.Do(b.ctx, process, action); err != nil {
		t.Fatal(err)
	}
}

// wait waits in real time, as long as a fault lasts.
func (b *bed) wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-b.ctx.Done():
		t.Fatal(b.ctx.Err())
	case <-time.After(d):
	}
}

// replica returns one at random.
func (b *bed) replica(t *testing.T) string {
	t.Helper()
	names, err := b.lab.Replicas(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	return names[b.random.IntN(len(names))]
}

// leader returns the replica that leads.
func (b *bed) leader(t *testing.T) string {
	t.Helper()
	var replica string
	if err := harness.Eventually(b.ctx, "there is a leader", func(ctx context.Context) error {
		lease, err := b.lab.Control.CoordinationV1().Leases(harness.FleetNamespace).Get(ctx, harness.FleetName+"-leader", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return errors.New("there is no leader")
		}
		replica = replicaOf(*lease.Spec.HolderIdentity)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return replica
}

// replicaOf cuts the random part off a session.
func replicaOf(session string) string {
	at := strings.LastIndexByte(session, '_')
	return session[:max(at, 0)]
}

// shares returns how many slots each replica holds.
func (b *bed) shares(t *testing.T) map[string]int {
	t.Helper()
	holders, err := b.lab.Holders(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	shares := map[string]int{}
	for _, session := range holders {
		shares[replicaOf(session)]++
	}
	return shares
}
