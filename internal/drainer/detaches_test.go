package drainer

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// A cloud does not get hundreds of detach requests at a time, however many Nodes are drained.
func TestVolumesOfAllDrainsAreCounted(t *testing.T) {
	d, cluster, other := newDetaches(), &target.Cluster{}, &target.Cluster{Name: "other"}
	isFree := func(want int) {
		t.Helper()
		if volumes, _ := d.free(cluster, "n"); volumes != want {
			t.Errorf("%d free, want %d", volumes, want)
		}
	}
	if !d.reserve(cluster, deletionOf("a"), "n", 30) || d.reserve(cluster, deletionOf("b"), "n", 11) ||
		!d.reserve(cluster, deletionOf("b"), "n", 10) {
		t.Error("expected at most 30 moving volumes, and 10 of one namespace")
	}
	isFree(0)
	if !d.reserve(other, deletionOf("c"), "n", 1) {
		t.Error("another cluster is full, too")
	}
	woken := 0
	_, freed := d.free(cluster, "n")
	d.await(cluster, deletionOf("c"), freed, func() { woken++ })
	d.set(cluster, deletionOf("a"), "n", 30)
	if woken > 0 {
		t.Error("woken by nothing")
	}
	d.set(cluster, deletionOf("a"), "n", 29)
	d.set(cluster, deletionOf("a"), "n", 28)
	isFree(2)
	if woken != 1 {
		t.Errorf("woken %d times", woken)
	}
	d.forget(deletionOf("a"))
	d.forget(deletionOf("b"))
	isFree(drain.MaxDetachesOfOne)
	if !d.reserve(cluster, deletionOf("a"), "n", drain.MaxDetachesOfOne+10) {
		t.Error("a pod with more volumes than move at a time would never leave")
	}
}

// deletionOf identifies the drain for the deletion of an owner.
func deletionOf(owner string) errand { return errand{types.UID(owner), ForDeletion} }

// A tenant can have volumes that never detach: its kubelets say when they do. Others are drained
// all the same.
func TestEachNamespaceHasItsShareOfMovingVolumes(t *testing.T) {
	for name, tc := range map[string]struct {
		moving map[string]int
		want   int // that may begin to move of namespace n
	}{
		"nothing moves":                         {nil, 40},
		"one alone has all but the reserve":     {map[string]int{"n": 40}, 0},
		"another has all it may have":           {map[string]int{"tenant": 40}, 8},
		"another has more, by force":            {map[string]int{"tenant": 1000}, 8},
		"another has more, and n its part":      {map[string]int{"tenant": 1000, "n": 8}, 0},
		"two others have all they may have":     {map[string]int{"tenant": 40, "tenant-2": 8}, 1},
		"both have the same":                    {map[string]int{"tenant": 22, "n": 22}, 0},
		"another gave some of its up":           {map[string]int{"tenant": 30, "n": 8}, 8},
		"more move than may, of several":        {map[string]int{"tenant": 40, "tenant-2": 40}, 0},
		"n has more than it may have, by force": {map[string]int{"n": 60}, 0},
	} {
		d, cluster := newDetaches(), &target.Cluster{}
		for namespace, volumes := range tc.moving {
			d.set(cluster, deletionOf(namespace), namespace, volumes)
		}
		if got, _ := d.free(cluster, "n"); got != tc.want {
			t.Errorf("%s: %d free, want %d", name, got, tc.want)
		}
		if further := deletionOf("further"); tc.want > 0 {
			if tc.want < drain.MaxDetachesOfOne && d.reserve(cluster, further, "n", tc.want+1) {
				t.Errorf("%s: %d could be reserved", name, tc.want+1)
			}
			if !d.reserve(cluster, further, "n", tc.want) {
				t.Errorf("%s: %d could not be reserved", name, tc.want)
			}
			if got, _ := d.free(cluster, "n"); got != 0 {
				t.Errorf("%s: %d free after that, want 0", name, got)
			}
		}
		for namespace := range tc.moving {
			d.forget(deletionOf(namespace))
		}
		d.forget(deletionOf("further"))
		if got, _ := d.free(cluster, "n"); got != 40 || len(d.in(cluster).namespaces) > 0 {
			t.Errorf("%s: %d free when all have ended, want 40", name, got)
		}
	}
}

// Another worker may free room between the look at it and the decision to wait.
func TestFreedVolumeSlotBeforeTheWaitWakesTheDrain(t *testing.T) {
	d, cluster, woken := newDetaches(), &target.Cluster{}, 0
	wake := func() { woken++ }
	d.reserve(cluster, deletionOf("a"), "n", drain.MaxDetachesOfOne)
	_, freed := d.free(cluster, "n")
	d.forget(deletionOf("a")) // the last one: no other drain will make room
	d.await(cluster, deletionOf("b"), freed, wake)
	if woken != 1 {
		t.Fatalf("woken %d times, want once", woken)
	}
	d.reserve(cluster, deletionOf("c"), "n", 2)
	_, freed = d.free(cluster, "n")
	d.reserve(cluster, deletionOf("c"), "n", 1) // less room is no news
	d.await(cluster, deletionOf("b"), freed, wake)
	if woken != 1 {
		t.Errorf("woken %d times although the limit is reached", woken)
	}
	d.set(cluster, deletionOf("c"), "n", 0)
	if woken != 2 {
		t.Errorf("woken %d times, want again", woken)
	}
}

// A machine may be preserved while it waits for an update in place: the end of one drain is not
// that of the other.
func TestDrainsOfOneOwnerWaitForVolumesApart(t *testing.T) {
	d, cluster, woken := newDrainer(t), &target.Cluster{}, 0
	volumes := d.detaches
	for _, aim := range []Aim{ForUpdate, ForPreservation} {
		d.Of("m", aim)
	}
	volumes.set(cluster, errand{"m", ForPreservation}, "n", 3)
	volumes.set(cluster, deletionOf("other"), "n", drain.MaxDetachesOfOne)
	_, freed := volumes.free(cluster, "n")
	volumes.await(cluster, errand{"m", ForPreservation}, freed, func() { woken++ })
	d.Drop("m", ForUpdate)
	if moves := volumes.in(cluster).drains[errand{"m", ForPreservation}].volumes; moves != 3 || woken > 0 {
		t.Errorf("%d volumes move for the other drain, woken %d times; want 3 and no wake", moves, woken)
	}
	volumes.forget(deletionOf("other"))
	if woken != 1 {
		t.Errorf("woken %d times, want once: volumes may move now", woken)
	}
}
