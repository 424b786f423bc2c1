package simulation

import "testing"

// TestBrokenPromises: in an environment that does not keep what the protocol rests on, two sessions come to own a slot, or
// something else goes wrong that is not just waiting, and the checker finds it. The same seed passes where the promise is
// kept. The weather is what brings it out.
func TestBrokenPromises(t *testing.T) {
	const most = 2000
	if testing.Short() {
		t.Skip("finding something may take all worlds")
	}
	for name, test := range map[string]struct {
		broken  promises
		weather weather
	}{
		"the fence counts from the answer, however late it is": {promises{fenceFromAnswer: true}, func(w *world, f *faults) {
			f.kinds, f.lossOneIn, f.lateOneIn = []func(){w.fade}, 0, 0
		}},
		"an update does not compare versions":                        {promises{noCompare: true}, nil},
		"an update does not compare UIDs, and makes what is missing": {promises{noUID: true}, nil},
		"live reads come from a cache":                               {promises{staleReads: true}, nil},
		"that a session Lease was created is forgotten": {promises{createdForgotten: true}, func(w *world, f *faults) {
			f.kinds = []func(){w.deleteLease, w.replacePod, w.twin, w.restart}
		}},
		"nothing is said to be in flight when something is":         {promises{idleAtOnce: true}, nil},
		"two processes get the file lock":                           {promises{lockForAll: true}, nil},
		"a write without an answer is taken for one without effect": {promises{lossIsRefusal: true}, nil},
		"etcd is restored in less time than the fence": {promises{quickRestore: true}, func(w *world, f *faults) {
			f.kinds = []func(){w.restoreBackup, w.crash, w.scale, w.sticky}
		}},
		"clocks drift more than is allowed": {promises{fastClocks: true}, func(w *world, f *faults) {
			f.kinds = []func(){w.cutOff}
		}},
		"the wall clock stands still, too, in a suspension": {promises{blindWall: true}, func(w *world, f *faults) {
			f.kinds = []func(){w.sleep}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				found := run(seed, test.broken, test.weather, nil).checker
				if found.violation != "" && !found.stuck && run(seed, promises{}, test.weather, nil).checker.violation == "" {
					t.Logf("seed %d: at %v: %s", seed, found.at, found.violation)
					return
				}
			}
			t.Errorf("%d seeds, and nothing was found", most)
		})
	}
}
