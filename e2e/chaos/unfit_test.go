//go:build e2e

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/mcmcrds"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

const (
	// servedWithin is the bound for each root while a replica cannot do its work, servedWithinLeader
	// while the leader cannot. A root that takes longer is reported: TestWholeFleet checks the bounds,
	// in virtual time.
	servedWithin       = 45 * time.Second
	servedWithinLeader = 60 * time.Second
	// unreachedWithin is that bound while a replica does not reach the cloud.
	unreachedWithin = 3 * time.Minute
	// A list of the fleet's Leases, or of the objects of a grant, is larger than stallAbove thousand
	// bytes, and the answers to some writes are smaller. A connection that has stopped is closed after
	// stallTime.
	stallAbove = 10
	stallTime  = 10 * time.Second
	// blindAfter is longer than a watch of the Leases waits for its beginning, and shorter than the
	// fence.
	blindAfter = 4 * time.Second
)

// unfitLasts is how long roots are changed during a fault. After that, the test waits for all of
// them.
var unfitLasts = flag.Duration("unfit-lasts", 10*time.Minute, "how long each fault of TestEveryRootIsServed lasts")

// unfitness is a fault after which a replica runs, renews its Lease, and cannot do its work.
type unfitness struct {
	bound time.Duration
	// before runs before there are roots; nil: nothing.
	before func(t *testing.T, b *bed)
	// victim returns the replica that it affects.
	victim func(t *testing.T, b *bed) string
	begin  func(t *testing.T, b *bed, replica string)
	// again aggravates it at half time; nil: nothing.
	again func(t *testing.T, b *bed, replica string)
	end   func(t *testing.T, b *bed, replica string)
	// signs are where it has to be visible.
	signs func(b *bed, replica string) []sign
}

// TestEveryRootIsServed breaks a replica so that it runs and cannot do its work. Every change of a
// root is completed nevertheless, during the fault, and the reason is visible.
func TestEveryRootIsServed(t *testing.T) {
	if testing.Short() {
		t.Skip("each fault takes minutes; make chaos has them")
	}
	crash := func(t *testing.T, b *bed, replica string) { b.do(t, replica, harness.Crash) }
	heal := func(t *testing.T, b *bed, replica string) { b.heal(t, replica) }
	signs := func(_ *bed, replica string) []sign { return ofReplica(replica) }
	for name, u := range map[string]unfitness{
		"a link to the target cluster is cut": {
			bound: servedWithin, victim: follower, again: crash, end: heal,
			begin: func(t *testing.T, b *bed, replica string) {
				b.link(t, replica, harness.LinkTarget, harness.Cut(harness.Both))
			},
			signs: func(_ *bed, replica string) []sign { return append(ofTarget(replica), unopened()) },
		},
		"a link to the cloud is cut": {
			bound: unreachedWithin, victim: follower, again: crash, end: heal,
			begin: func(t *testing.T, b *bed, replica string) {
				b.link(t, replica, harness.LinkCloud, harness.Cut(harness.Both))
			},
			signs: func(_ *bed, replica string) []sign { return ofCloud(replica) },
		},
		"lists hang and writes pass": {
			bound: servedWithin, victim: follower, again: crash, end: heal, signs: signs,
			begin: func(t *testing.T, b *bed, replica string) {
				b.stall(t, replica, harness.LinkControl)
				b.stall(t, replica, harness.LinkTarget)
			},
		},
		"lists of the leader hang, and another replica dies": {
			bound: servedWithinLeader, victim: func(t *testing.T, b *bed) string { return b.leader(t) }, begin: blindLeader, signs: signs,
			end: func(t *testing.T, b *bed, replica string) {
				b.heal(t, replica)
				b.startAll(t)
			},
		},
		"a stored object does not decode": {
			bound: servedWithin, before: mcmDefinitions, begin: storeUndecodable, end: removeUndecodable,
			victim: func(t *testing.T, b *bed) string { return b.places(t)[b.slotLease(undecodableSlot(t, b))] },
			again:  crash, // another replica acquires its slots, or the next session does, with new lists
			signs: func(*bed, string) []sign {
				return []sign{reported(eventUndecodable, undecodable, undecodable)}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u.run(t)
		})
	}
}

func (u unfitness) run(t *testing.T) {
	b := newBed(t, 3)
	if u.before != nil {
		u.before(t, b)
	}
	roots := b.startRoots(t, u.bound)
	replica := u.victim(t, b)
	signs := u.signs(b, replica)
	t.Logf("%s is the victim; slots by replica: %v", replica, b.shares(t))
	u.begin(t, b, replica)
	look := b.lookOut(t, replica, signs)
	b.wait(t, *unfitLasts/2)
	if u.again != nil {
		u.again(t, b, replica)
	}
	b.wait(t, *unfitLasts/2)
	roots.settle(t)
	t.Logf("slots by replica at the end of the fault: %v", b.shares(t))
	roots.verdict(t)
	look.verdict(t, signs)
	roots.stop()
	u.end(t, b, replica)
	b.end(t)
}

// startAll starts the replicas that were ended.
func (b *bed) startAll(t *testing.T) {
	t.Helper()
	names, err := b.lab.Replicas(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if b.lab.Do(b.ctx, name, harness.Start) == nil { // an error means that it runs
			b.ready(t, name)
		}
	}
}

// follower returns a replica that does not lead.
func follower(t *testing.T, b *bed) string {
	t.Helper()
	names, err := b.lab.Replicas(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	leader := b.leader(t)
	for _, name := range names {
		if name != leader {
			return name
		}
	}
	t.Fatalf("want a replica other than the leader %s, got %v", leader, names)
	return ""
}

// stall stops large answers on a link permanently. Before that it closes open connections and
// blocks new ones for a while, so that watches cannot resume, and have to list.
func (b *bed) stall(t *testing.T, replica, link string) {
	t.Helper()
	b.link(t, replica, link, harness.Refuse())
	b.link(t, replica, link, harness.Cut(harness.Both))
	b.wait(t, blindAfter)
	b.link(t, replica, link, harness.Stall(stallAbove, stallTime))
}

// blindLeader stalls the lists and the watches of the leader's Leases, while its renewals pass, and
// kills another replica for good: only a leader that observes can declare it dead.
func blindLeader(t *testing.T, b *bed, leader string) {
	t.Helper()
	other := follower(t, b)
	b.stall(t, leader, harness.LinkControl)
	if err := harness.Eventually(b.ctx, leader+" does not observe any more", func(ctx context.Context) error {
		page := struct{ Observing bool }{true}
		err := b.lab.DebugSlots(ctx, leader, &page)
		if err == nil && page.Observing {
			err = errors.New("its renewals arrive through its watch")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	b.do(t, other, harness.Kill)
	t.Logf("killed %s; %s leads", other, b.leader(t))
}

// undecodable is the name of the object that does not decode, and of its namespace.
const undecodable = "undecodable"

// mcmDefinitions replaces the fleet's definitions by MCM's: they accept what does not decode.
func mcmDefinitions(t *testing.T, b *bed) {
	t.Helper()
	client := b.dynamic(t)
	definitions, err := mcmcrds.Lenient()
	if err != nil {
		t.Fatal(err)
	}
	if err := mcmcrds.Replace(b.ctx, client, definitions); err != nil {
		t.Fatal(err)
	}
	if err := b.lab.Prepare(b.ctx, undecodable, ""); err != nil {
		t.Fatal(err)
	}
}

func (b *bed) dynamic(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(b.lab.Config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func undecodableSlot(t *testing.T, b *bed) int {
	t.Helper()
	spread, err := assignment.NewSpread(b.slots, assignment.ByDeployment)
	if err != nil {
		t.Fatal(err)
	}
	return spread.Of(undecodable, undecodable)
}

// storeUndecodable creates a MachineDeployment whose drainTimeout is no duration. It has its slot
// label from its creation, so that it is among the objects of its slot at once.
func storeUndecodable(t *testing.T, b *bed, _ string) {
	t.Helper()
	content := harness.Deployment(undecodable, undecodable, 0)
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"replicas": int64(0),
			"selector": map[string]any{"matchLabels": map[string]any{v1alpha1.LabelName: undecodable}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelName: undecodable}},
				"spec": map[string]any{
					"class":        map[string]any{"kind": content.Spec.Template.Spec.Class.Kind, "name": content.Spec.Template.Spec.Class.Name},
					"drainTimeout": "soon",
				},
			},
		},
	}}
	object.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	object.SetKind("MachineDeployment")
	object.SetName(undecodable)
	object.SetLabels(map[string]string{v1alpha1.LabelSlot: fmt.Sprint(undecodableSlot(t, b))})
	resource := v1alpha1.SchemeGroupVersion.WithResource("machinedeployments")
	if _, err := b.dynamic(t).Resource(resource).Namespace(undecodable).Create(b.ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func removeUndecodable(t *testing.T, b *bed, _ string) {
	t.Helper()
	resource := v1alpha1.SchemeGroupVersion.WithResource("machinedeployments")
	if err := b.dynamic(t).Resource(resource).Namespace(undecodable).Delete(b.ctx, undecodable, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
