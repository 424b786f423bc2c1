package merge

import (
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/scenario"
)

func TestIrreconcilable(t *testing.T) {
	scenario.Run(t, "testdata/irreconcilable.txt", func(t *testing.T, s scenario.Scenario) string {
		var had, next []*v1alpha1.MachineConfig
		for _, fact := range s.Given {
			if name, ok := strings.CutPrefix(fact.Key, "had "); ok {
				had = append(had, config(name, fact.Value))
				continue
			}
			next = append(next, config(fact.Key, fact.Value))
		}
		current, merged := mustMerge(t, had...), mustMerge(t, next...)
		if p := Irreconcilable(&current.Spec, merged); p != nil {
			return problem(p)
		}
		return "reconcilable"
	})
}

// A target that cannot be read is not compared, and the pool can leave it.
func TestNothingIsIrreconcilableWhileCurrentCannotBeRead(t *testing.T) {
	merged := mustMerge(t, config("a", `{"fips":true}`))
	for _, raw := range []string{"", "null", "{", `{"ignition":{"version":"9.0.0"}}`} {
		current := v1alpha1.RenderedMachineConfigSpec{}
		current.Config.Raw = []byte(raw)
		if p := Irreconcilable(&current, merged); p != nil {
			t.Errorf("%q: %v", raw, p)
		}
	}
}

func mustMerge(t *testing.T, configs ...*v1alpha1.MachineConfig) Merged {
	t.Helper()
	m, err := Merge(configs, nil, Fleet{Extensions: extensions})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
