package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// counts are the numbers of a status.
type counts struct{ All, Updated, Ready, Available, Preserved, Unavailable int32 }

// withMachines is a set of that size with a machine for each word: its phase, or "kept" for one
// that has failed and is preserved; "-ends" after it for one that is being deleted.
func withMachines(w World, set *v1alpha1.MachineSet, size int32, words string) {
	set.Spec.Replicas = size
	w.Machines[set.UID] = nil
	for i, word := range strings.Fields(words) {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", set.UID, i)}}
		m.UID = types.UID(m.Name)
		word, ends := strings.CutSuffix(word, "-ends")
		if ends {
			m.DeletionTimestamp = &metav1.Time{Time: born}
		}
		m.Status.CurrentStatus.Phase = v1alpha1.MachinePhase(word)
		if word == "kept" {
			m.Status.CurrentStatus.Phase = v1alpha1.MachineFailed
			m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: born.Add(time.Hour)}
		}
		w.Machines[set.UID] = append(w.Machines[set.UID], m)
	}
}

// TestCounts: the status counts the machines of all sets, the updated ones those of the new set
// alone. No two counts of the rollout are equal.
func TestCounts(t *testing.T) {
	type machines struct {
		size  int32
		words string
	}
	for _, tc := range []struct {
		name       string
		older, old machines
		fresh      *machines
		want       counts
	}{
		{
			"in the middle of a rollout",
			machines{1, "Available Running-ends"},
			machines{3, "Running Running kept"},
			&machines{7, "Running Available Pending Pending"},
			counts{All: 9, Updated: 4, Ready: 3, Available: 5, Preserved: 1, Unavailable: 6},
		},
		{
			"the new set is not there yet",
			machines{2, "Running"},
			machines{4, "Running Unknown"},
			nil,
			counts{All: 3, Ready: 2, Available: 2, Unavailable: 4},
		},
		{
			"more are available than the sets should have",
			machines{0, "Running"},
			machines{1, "Running Available"},
			&machines{1, "Running"},
			counts{All: 4, Updated: 1, Ready: 3, Available: 4},
		},
		{
			"what is preserved ends, what runs ends",
			machines{1, "kept kept kept-ends"},
			machines{0, ""},
			&machines{3, "Running Running-ends Running-ends"},
			counts{All: 6, Updated: 3, Ready: 1, Available: 1, Preserved: 2, Unavailable: 3},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := deployment(5)
			d.Status = v1alpha1.MachineDeploymentStatus{ // of a pass before, of which nothing may be left
				Replicas: 50, UpdatedReplicas: 50, ReadyReplicas: 50, AvailableReplicas: 50, PreservedFailedReplicas: 50, UnavailableReplicas: 50,
			}
			w := worldOf(d, older("older", 2*time.Hour, 0), older("old", time.Hour, 0))
			withMachines(w, w.Owned[0], tc.older.size, tc.older.words)
			withMachines(w, w.Owned[1], tc.old.size, tc.old.words)
			if tc.fresh != nil {
				w.Owned = append(w.Owned, setOf(d, "new", 0, 0))
				withMachines(w, w.Owned[2], tc.fresh.size, tc.fresh.words)
			}
			s := status(countSets(w))
			got := counts{s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.PreservedFailedReplicas, s.UnavailableReplicas}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFailedMachines: the status lists those that its sets list, the oldest set's first, and none
// of before.
func TestFailedMachines(t *testing.T) {
	summary := func(name, set string) v1alpha1.MachineSummary {
		return v1alpha1.MachineSummary{
			Name: name, ProviderID: "cloud://" + name, OwnerRef: set, LastOperation: v1alpha1.LastOperation{Description: "why " + name},
		}
	}
	d := deployment(5)
	gone := summary("gone", "gone")
	d.Status.FailedMachines = []*v1alpha1.MachineSummary{&gone}
	w := worldOf(d, setOf(d, "new", 2, 0), older("old", time.Hour, 2), older("quiet", 2*time.Hour, 2), older("oldest", 3*time.Hour, 2))
	w.Owned[0].Status.FailedMachines = &[]v1alpha1.MachineSummary{summary("a", "new")}
	w.Owned[1].Status.FailedMachines = &[]v1alpha1.MachineSummary{summary("b", "old"), summary("c", "old")}
	w.Owned[3].Status.FailedMachines = &[]v1alpha1.MachineSummary{summary("d", "oldest")}
	oldest, b, c, a := summary("d", "oldest"), summary("b", "old"), summary("c", "old"), summary("a", "new")
	want := []*v1alpha1.MachineSummary{&oldest, &b, &c, &a}
	if diff := cmp.Diff(want, status(countSets(w)).FailedMachines); diff != "" {
		t.Errorf("failedMachines (-want +got):\n%s", diff)
	}
}

// A MachineDeployment without the condition Progressing is a new one, or one that was restored
// without its status. The cluster-autoscaler scales down only one of which nothing or
// NewMachineSetAvailable is reported, so shrinking must not look like a rollout that begins.
func TestProgressWithoutACondition(t *testing.T) {
	for name, tc := range map[string]struct {
		old, fresh, want string
	}{
		"machines are missing":                    {fresh: "Running Pending", want: v1alpha1.ReasonNewMachineSetCreated},
		"as many as are wanted":                   {fresh: "Running Running", want: v1alpha1.ReasonNewMachineSetAvailable},
		"one too many":                            {fresh: "Running Running Running"},
		"one too many that is being deleted":      {fresh: "Running Running Running-ends"},
		"one too many and some cannot be used":    {fresh: "Running Pending Pending", want: v1alpha1.ReasonNewMachineSetCreated},
		"an old machine is left":                  {old: "Running-ends", fresh: "Running Running", want: v1alpha1.ReasonNewMachineSetCreated},
		"an old machine is left and one too many": {old: "Running", fresh: "Running Running Running", want: v1alpha1.ReasonNewMachineSetCreated},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment(2)
			w := worldOf(d, older("old", time.Hour, 0), setOf(d, "new", 0, 0))
			withMachines(w, w.Owned[0], 0, tc.old)
			withMachines(w, w.Owned[1], 2, tc.fresh)
			got := ""
			if c := machinefacts.MachineDeploymentCondition(new(status(countSets(w))), v1alpha1.MachineDeploymentProgressing); c != nil {
				got = string(c.Status) + "/" + c.Reason
			}
			if want := strings.TrimSuffix("True/"+tc.want, "True/"); got != want {
				t.Errorf("Progressing is %q, want %q", got, want)
			}
		})
	}
}
