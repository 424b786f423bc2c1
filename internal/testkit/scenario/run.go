package scenario

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// All reads the files that match a pattern. It fails the test when there is none, or one cannot be
// read.
func All(t *testing.T, pattern string) []File {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no file of scenarios is called %s (%v)", pattern, err)
	}
	var files []File
	for _, path := range paths {
		f, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// Run computes the verdict on each scenario of the files that match the pattern, and compares it
// with the one in the file. With -update it writes them into the files instead; then the change of
// the files has to be reviewed.
func Run(t *testing.T, pattern string, decide func(t *testing.T, s Scenario) string) {
	t.Helper()
	for _, f := range All(t, pattern) {
		t.Run(strings.TrimSuffix(filepath.Base(f.Path), filepath.Ext(f.Path)), func(t *testing.T) {
			verdicts := make([]string, len(f.Scenarios))
			for i, s := range f.Scenarios {
				t.Run(s.Name, func(t *testing.T) {
					verdicts[i] = strings.TrimRight(decide(t, s), "\n")
					if diff := cmp.Diff(s.Want, verdicts[i]); diff != "" && !golden.Update() {
						t.Errorf("another verdict; if it is right: %s\n(-%s +now):\n%s", golden.Command(t), f.Path, diff)
					}
				})
			}
			if golden.Update() && !t.Failed() {
				if err := f.Rewrite(verdicts); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
