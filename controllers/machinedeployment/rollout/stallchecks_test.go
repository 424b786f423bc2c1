package rollout

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// stallCase is a deployment of which one check is asked alone. Its words are those of TestStories.
type stallCase struct {
	check, when, deployment string
	sets                    []string
	// uncached is how many machines of old sets the API server has and the cache does not; -1 when the
	// API server was not read.
	uncached int
	// want is the reason, and about what the message has to name; "" when the check must find nothing.
	want, about string
}

var stallCases = []stallCase{
	{
		check: "in-place update without target cluster", when: "there is no target cluster", deployment: "strategy=InPlaceUpdate notarget",
		sets: []string{"a size=1 Running", "b size=0"}, want: v1alpha1.ReasonInPlaceUpdateNotSupported, about: "spec.strategy.type",
	},
	{
		check: "in-place update without target cluster", when: "there is one", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 Running", "b size=0"},
	},
	{
		check: "in-place update without target cluster", when: "machines are replaced", deployment: "notarget",
		sets: []string{"a size=1 Running", "b size=0"},
	},
	{
		check: "in-place update without target cluster", when: "no old machine is left", deployment: "strategy=InPlaceUpdate notarget",
		sets: []string{"b size=1 Running"},
	},
	{
		check: "in-place update failed", when: "the Node reports a failure", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 Running/failed", "b size=0"}, want: v1alpha1.ReasonInPlaceUpdateFailed,
		about: "a-0 could not be updated in place: no space left",
	},
	{
		check: "in-place update failed", when: "the machine reports a failure", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 InPlaceUpdateFailed", "b size=0"}, want: v1alpha1.ReasonInPlaceUpdateFailed, about: "a-0",
	},
	{
		check: "in-place update failed", when: "the update is in progress", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 InPlaceUpdating/selected", "b size=0"},
	},
	{
		check: "in-place update failed", when: "the machine is being deleted", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 Terminating/failed", "b size=0"},
	},
	{
		check: "new MachineSet frozen", when: "it is frozen and machines are missing",
		sets: []string{"a size=1 Running", "b size=2 frozen Running"},
		want: v1alpha1.ReasonMachineSetFrozen, about: v1alpha1.AnnotationUnfreeze,
	},
	{
		check: "new MachineSet frozen", when: "it must not scale up and machines are missing",
		sets: []string{"a size=1 Running", "b size=2 closed Running"},
		want: v1alpha1.ReasonMachineSetFrozen, about: v1alpha1.LabelScaleUpDisabled,
	},
	{check: "new MachineSet frozen", when: "it has all of its machines", sets: []string{"a size=1 Running", "b size=1 frozen Running"}},
	{check: "new MachineSet frozen", when: "an old one is frozen", sets: []string{"a size=2 frozen Running", "b size=1 Running"}},
	{
		check: "machine creation failed", when: "a new machine could not be created",
		sets: []string{"a size=1 Running", "b size=2 Running CreateFailed"}, want: v1alpha1.ReasonMachineCreateFailed,
		about: "b-1 could not be created: ResourceExhausted: no quota",
	},
	{check: "machine creation failed", when: "an old machine could not be created", sets: []string{
		"a size=1 CreateFailed", "b size=1 Running",
	}},
	{
		check: "requests rejected by the API server", when: "the new set must not create machines",
		sets: []string{"a size=1 Running", "b size=1 refused=FailedCreate"},
		want: v1alpha1.ReasonFailedCreate, about: "d-b: a webhook says no",
	},
	{
		check: "requests rejected by the API server", when: "an old set must not delete machines",
		sets: []string{"a size=0 refused=FailedDelete Running", "b size=1"},
		want: v1alpha1.ReasonFailedDelete, about: "d-a: a webhook says no",
	},
	{check: "requests rejected by the API server", when: "an old set need not create machines", sets: []string{
		"a size=1 refused=FailedCreate", "b size=1",
	}},
	{
		check: "new machine preserved", when: "a new machine has failed and is preserved",
		sets: []string{"a size=1 Running", "b size=1 Preserved"},
		want: v1alpha1.ReasonMachinesPreserved, about: "b-0",
	},
	{check: "new machine preserved", when: "another machine is the first that is not available", sets: []string{
		"a size=1 Running", "b size=2 Pending Preserved",
	}},
	{check: "new machine preserved", when: "an old machine is preserved", sets: []string{"a size=1 Preserved", "b size=1 Running"}},
	{
		check: "new machine not available", when: "a new machine is Pending", sets: []string{"a size=1 Running", "b size=2 Running Pending"},
		want: v1alpha1.ReasonMachinesNotAvailable, about: `b-1 is not available, its phase is "Pending"`,
	},
	{check: "new machine not available", when: "the first one that is not available is preserved", sets: []string{
		"a size=1 Running", "b size=2 Preserved Pending",
	}},
	{check: "new machine not available", when: "an old machine is Pending", sets: []string{"a size=1 Pending", "b size=1 Running"}},
	{check: "new machine not available", when: "the machine is being deleted", sets: []string{
		"a size=1 Running", "b size=1 Running Terminating",
	}},
	{
		check: "machine terminating", when: "an old machine is being deleted", sets: []string{"a size=0 Terminating", "b size=1 Running"},
		want: v1alpha1.ReasonMachinesTerminating, about: "a-0",
	},
	{
		check: "machine terminating", when: "a new machine is being deleted, too, and comes first",
		sets: []string{"a size=0 Terminating", "b size=1 Terminating"},
		want: v1alpha1.ReasonMachinesTerminating, about: "b-0",
	},
	{check: "machine terminating", when: "none is being deleted", sets: []string{"a size=0 Running", "b size=1 Pending"}},
	{
		check: "new machines missing", when: "the new set has too few", sets: []string{"a size=1 Running", "b size=2 Running Terminating"},
		want: v1alpha1.ReasonMachinesNotAvailable, about: "d-b has 1 of 2 machines",
	},
	{check: "new machines missing", when: "it has all", sets: []string{"a size=1", "b size=1 Pending"}},
	{check: "new machines missing", when: "there is no new set", sets: []string{"a size=1"}},
	{
		check: "old MachineSet invalid", when: "an old set is invalid", sets: []string{"a size=1 invalid Running", "b size=1 Running"},
		want: v1alpha1.ReasonMachinesNotDeleted, about: "d-a is invalid and not reconciled: its intents cannot be read",
	},
	{check: "old MachineSet invalid", when: "it has no machines", sets: []string{"a size=0 invalid", "b size=1 Running"}},
	{check: "old MachineSet invalid", when: "the new set is invalid", sets: []string{"a size=1 Running", "b size=1 invalid Running"}},
	{
		check: "deletions held", when: "an old set has more machines than its replicas",
		sets: []string{"a size=1 held Running Running", "b size=1 Running"},
		want: v1alpha1.ReasonHoldAnnotation, about: "d-a: Deletions are held by a person",
	},
	{check: "deletions held", when: "the new set has too many", sets: []string{"a size=1 Running", "b size=1 held Running Running"}},
	{
		check: "old machines not deleted", when: "an old set has more machines than its replicas",
		sets: []string{"a size=1 Running Running", "b size=1 Running"},
		want: v1alpha1.ReasonMachinesNotDeleted, about: "d-a has 2 machines, its spec has 1",
	},
	{check: "old machines not deleted", when: "the others are being deleted", sets: []string{
		"a size=1 Running Terminating", "b size=1 Running",
	}},
	{check: "old machines not deleted", when: "it has not observed its replicas", sets: []string{
		"a size=1 Running Running unobserved", "b size=1 Running",
	}},
	{check: "old machines not deleted", when: "the new set has too many", sets: []string{"a size=1 Running", "b size=1 Running Running"}},
	{
		check: "old machines not in the cache", when: "the API server has one", deployment: "strategy=Recreate",
		sets: []string{"a size=0", "b size=1 Running"}, uncached: 1,
		want: v1alpha1.ReasonMachinesNotDeleted, about: "not in the cache: 1",
	},
	{check: "old machines not in the cache", when: "the API server has none", sets: []string{"a size=0", "b size=1 Running"}},
	{
		check: "old machines not in the cache", when: "the API server was not read", deployment: "strategy=Recreate",
		sets: []string{"a size=0", "b size=1 Running"}, uncached: -1,
	},
	{
		check: "in-place update in progress", when: "a Node is selected", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 Running/selected", "b size=0"}, want: v1alpha1.ReasonMachinesUpdating, about: "a-0 is being updated in place",
	},
	{
		check: "in-place update in progress", when: "no Node is selected", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 Running/candidate", "b size=0"},
	},
	{check: "in-place update in progress", when: "machines are replaced", sets: []string{"a size=1 Running/selected", "b size=0"}},
	{
		check: "in-place update in progress", when: "no new set exists", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 Running/selected"},
	},
	{
		check: "Nodes not selected", when: "the user selects and has not", deployment: "strategy=InPlaceUpdate manual",
		sets: []string{"a size=2 Running/candidate Running/candidate", "b size=0"}, want: v1alpha1.ReasonNodesNotSelected,
		about: "in-place update: 2;",
	},
	{
		check: "Nodes not selected", when: "the user has selected one of them", deployment: "strategy=InPlaceUpdate manual",
		sets: []string{"a size=2 Running/labelled Running/candidate", "b size=0"}, want: v1alpha1.ReasonNodesNotSelected,
		about: "in-place update: 1;",
	},
	{
		check: "Nodes not selected", when: "their updates have another template", deployment: "strategy=InPlaceUpdate manual",
		sets: []string{"a size=1 Running/candidate+to-c", "b size=0"},
	},
	{
		check: "Nodes not selected", when: "they are no candidates", deployment: "strategy=InPlaceUpdate manual",
		sets: []string{"a size=1 Running/candidate+barred", "b size=0"},
	},
	{
		check: "Nodes not selected", when: "their machines are being deleted", deployment: "strategy=InPlaceUpdate manual",
		sets: []string{"a size=1 Terminating/candidate", "b size=0"},
	},
	{
		check: "Nodes not selected", when: "the fleet selects", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 Running/candidate", "b size=0"},
	},
	{
		check: "Nodes not selected", when: "all are selected", deployment: "strategy=InPlaceUpdate manual",
		sets: []string{"a size=1 Running/selected", "b size=0"},
	},
	{
		check: "old machine not ready for its in-place update", when: "it is Unknown", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=2 Running/candidate Unknown/candidate", "b size=0"}, want: v1alpha1.ReasonMachinesNotAvailable,
		about: "a-1 cannot be updated in place",
	},
	{
		check: "old machine not ready for its in-place update", when: "its Node is missing", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 Running", "b size=0"}, want: v1alpha1.ReasonMachinesNotAvailable, about: "a-0 cannot be updated in place",
	},
	{
		check: "old machine not ready for its in-place update", when: "all can be selected", deployment: "strategy=InPlaceUpdate",
		sets: []string{"a size=1 Running/candidate", "b size=0"},
	},
	{
		check: "old machine not ready for its in-place update", when: "machines are replaced",
		sets: []string{"a size=1 Unknown", "b size=0"},
	},
}

// setsOf returns the sets of a case.
func (tc stallCase) setsOf(t *testing.T) *sets {
	t.Helper()
	st := newStory(t)
	st.deployment(strings.Fields("template=b " + tc.deployment))
	for _, text := range tc.sets {
		text, unobserved := strings.CutSuffix(text, " unobserved")
		if st.set(strings.Fields(text)); unobserved {
			st.w.Owned[len(st.w.Owned)-1].Generation++
		}
	}
	if tc.uncached >= 0 {
		st.w.Live = &Live{Machines: map[types.UID][]*metav1.ObjectMeta{"a": slices.Repeat([]*metav1.ObjectMeta{{}}, tc.uncached)}}
	}
	return countSets(st.w)
}

// TestStallChecks calls each check without the others.
func TestStallChecks(t *testing.T) {
	for _, tc := range stallCases {
		t.Run(tc.check+"/"+tc.when, func(t *testing.T) {
			all := slices.Concat(failureChecks, waitChecks)
			i := slices.IndexFunc(all, func(c stallCheck) bool { return c.name == tc.check })
			if i < 0 {
				t.Fatalf("expected the name of a check, got %q", tc.check)
			}
			got := all[i].find(stalls{tc.setsOf(t)})
			switch {
			case tc.want == "" && got != (machinefacts.Condition{}):
				t.Errorf("expected no cause, got %s: %s", got.Reason, got.Message)
			case tc.want != "" && (got.Reason != tc.want || !strings.Contains(got.Message, tc.about)):
				t.Errorf("expected %s with %q in its message, got %+v", tc.want, tc.about, got)
			}
		})
	}
}

// TestStallChecksAllHaveCases fails for a check without a case in which it finds a cause, or
// without one in which it does not.
func TestStallChecksAllHaveCases(t *testing.T) {
	for _, check := range slices.Concat(failureChecks, waitChecks) {
		for _, finds := range []bool{true, false} {
			if !slices.ContainsFunc(stallCases, func(tc stallCase) bool { return tc.check == check.name && (tc.want != "") == finds }) {
				t.Errorf("check %q has no case in which it finds a cause = %v; add one to stallCases", check.name, finds)
			}
		}
	}
}

// TestTheFirstOfSeveralCausesOfAStallIsReported fixes the order of the checks.
func TestTheFirstOfSeveralCausesOfAStallIsReported(t *testing.T) {
	for _, tc := range []struct{ name, deployment, old, fresh, want string }{
		{"frozen before creation failed", "", "a size=1 Running", "b size=3 frozen CreateFailed", v1alpha1.ReasonMachineSetFrozen},
		{
			"creation failed before rejected", "", "a size=1 Running", "b size=3 refused=FailedCreate CreateFailed",
			v1alpha1.ReasonMachineCreateFailed,
		},
		{"rejected before not available", "", "a size=1 Running", "b size=3 refused=FailedCreate Pending", v1alpha1.ReasonFailedCreate},
		{"not available before terminating", "", "a size=1 Terminating", "b size=3 Pending", v1alpha1.ReasonMachinesNotAvailable},
		{"terminating before missing", "", "a size=0 Terminating", "b size=3 Running", v1alpha1.ReasonMachinesTerminating},
		{"held before not deleted", "", "a size=1 held Running Running", "b size=3 Running Running Running", v1alpha1.ReasonHoldAnnotation},
		{
			"failed in place before frozen", "strategy=InPlaceUpdate", "a size=1 Running/failed", "b size=3 frozen",
			v1alpha1.ReasonInPlaceUpdateFailed,
		},
		{
			"updating before not selectable", "strategy=InPlaceUpdate", "a size=2 Unknown Running/selected", "b size=0",
			v1alpha1.ReasonMachinesUpdating,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := stallCase{deployment: tc.deployment, sets: []string{tc.old, tc.fresh}}.setsOf(t)
			st := v1alpha1.MachineDeploymentStatus{Conditions: []v1alpha1.MachineDeploymentCondition{{
				Type: v1alpha1.MachineDeploymentProgressing, Reason: v1alpha1.ReasonProgressDeadlineExceeded,
			}}}
			if got := (report{s}).stalled(st); got.Reason != tc.want {
				t.Errorf("expected %s, got %+v", tc.want, got)
			}
		})
	}
}

// TestPauseAfterTheDeadlineIsReportedOnce: Progressing stays
// ProgressDeadlineExceeded, and RolloutStalled goes with the pause.
func TestPauseAfterTheDeadlineIsReportedOnce(t *testing.T) {
	s := stallCase{deployment: "paused", sets: []string{"a size=1 Running", "b size=3 Pending"}}.setsOf(t)
	exceeded := v1alpha1.MachineDeploymentStatus{Conditions: []v1alpha1.MachineDeploymentCondition{
		{Type: v1alpha1.MachineDeploymentProgressing, Reason: v1alpha1.ReasonProgressDeadlineExceeded},
	}}
	s.d.Status = *exceeded.DeepCopy()
	if got := (report{s}).rolloutEvents(exceeded); len(got) > 0 {
		t.Errorf("Events of a pause that is known: %v", got)
	}
	s.d.Status.Conditions = append(s.d.Status.Conditions, v1alpha1.MachineDeploymentCondition{Type: v1alpha1.MachineDeploymentRolloutStalled})
	if got := (report{s}).rolloutEvents(exceeded); len(got) != 1 || got[0].Reason != v1alpha1.EventRolloutPaused {
		t.Errorf("Events %v, want %s", got, v1alpha1.EventRolloutPaused)
	}
}
