package machinedeployment

import (
	"fmt"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestTheTaintOfAnUpdatedNodeCanBeOmitted: by the setting, and by the annotation of a deployment,
// which goes before it.
func TestTheTaintOfAnUpdatedNodeCanBeOmitted(t *testing.T) {
	for name, tc := range map[string]struct {
		omit       bool
		annotation string
		want       bool
	}{
		"as in Gardener":                        {want: true},
		"omitted":                               {omit: true},
		"omitted for one deployment":            {annotation: "false"},
		"omitted, and added for one deployment": {omit: true, annotation: "true", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := &nodeServer{}
			onBench(t, func(b *bench) {
				b.createInPlace(n)
				if tc.annotation != "" {
					b.patch(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationComponentsTaint, tc.annotation)
				}
				b.updateInPlace(n)
				b.mustBeUpdated(n)
				if got := strings.Contains(fmt.Sprint(n.Sent("patch nodes")), v1alpha1.TaintCriticalComponentsNotReady); got != tc.want {
					t.Errorf("taint added: %v, want %v; patches of the Node: %s", got, tc.want, n.Sent("patch nodes"))
				}
			}, withNode(n), func(_ *bench, cfg *Config) { cfg.NoComponentsTaint = tc.omit })
		})
	}
}
