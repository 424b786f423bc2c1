package simulation

import "testing"

// TestBrokenPromises checks that the checker finds a violation in environments that break what the
// protocol relies on: two sessions own a slot, or another error occurs that is not just waiting.
// The same seed passes where the promise is kept. The adjustment makes the violation more likely.
func TestBrokenPromises(t *testing.T) {
	const most = 2000
	if testing.Short() {
		t.Skip("finding a violation may take all worlds")
	}
	for name, test := range map[string]struct {
		broken     promises
		adjustment adjustment
	}{
		"the fence counts from the answer, however late it is": {promises{fenceFromAnswer: true}, func(w *world, f *faults) {
			f.kinds, f.lossOneIn, f.lateOneIn = []func(){w.delayAnswers}, 0, 0
		}},
		"an update does not compare versions":                          {promises{noCompare: true}, nil},
		"an update does not compare UIDs, and creates what is missing": {promises{noUID: true}, nil},
		"live reads come from a cache":                                 {promises{staleReads: true}, nil},
		"that a session Lease was created is forgotten": {promises{createdForgotten: true}, func(w *world, f *faults) {
			f.kinds = []func(){w.deleteLease, w.replacePod, w.twin, w.restart}
		}},
		"nothing is reported to be in flight when something is":  {promises{idleAtOnce: true}, nil},
		"two processes get the file lock":                        {promises{lockForAll: true}, nil},
		"a write without an answer counts as one without effect": {promises{lossIsRefusal: true}, nil},
		"etcd is restored in less time than the fence": {promises{quickRestore: true}, func(w *world, f *faults) {
			f.kinds = []func(){w.restoreBackup, w.crash, w.scale, w.stallWatch}
		}},
		"clocks drift more than is allowed": {promises{fastClocks: true}, func(w *world, f *faults) {
			f.kinds = []func(){w.cutOff}
		}},
		"the wall clock also stands still in a suspension": {promises{blindWall: true}, func(w *world, f *faults) {
			f.kinds = []func(){w.sleep}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				found := run(seed, test.broken, test.adjustment, nil).checker
				if found.violation != "" && !found.stuck && run(seed, promises{}, test.adjustment, nil).checker.violation == "" {
					t.Logf("seed %d: at %v: %s", seed, found.at, found.violation)
					return
				}
			}
			t.Errorf("want a violation found within %d seeds, got none", most)
		})
	}
}
