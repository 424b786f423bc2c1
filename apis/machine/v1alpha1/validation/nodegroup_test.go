package validation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

func TestNodeGroupOf(t *testing.T) {
	const size = "expected a number from 0 to 1000000"
	for annotations, tc := range map[string]struct {
		want    *validation.NodeGroup
		remarks []string
	}{
		`{}`:                             {},
		`{max-size: "0"}`:                {want: &validation.NodeGroup{}},
		`{max-size: "7"}`:                {want: &validation.NodeGroup{Max: 7}},
		`{min-size: "7", max-size: "7"}`: {want: &validation.NodeGroup{Min: 7, Max: 7}},
		`{min-size: "1"}`:                {remarks: []string{"min-size]: has no effect without " + v1alpha1.AnnotationMaxSize}},
		`{min-size: "8", max-size: "7"}`: {remarks: []string{
			"min-size]: expected at most 7, which " + v1alpha1.AnnotationMaxSize + " is; without that it is no node group",
		}},
		`{max-size: "-1"}`:                   {remarks: []string{`max-size]: ` + size + `, got "-1"; it has no effect`}},
		`{max-size: "1000001"}`:              {remarks: []string{`max-size]: ` + size + `, got "1000001"; it has no effect`}},
		`{max-size: "99999999999999999999"}`: {remarks: []string{`max-size]: ` + size + `, got "99999999999999999999"; it has no effect`}},
		`{min-size: x, max-size: "7"}`:       {remarks: []string{`min-size]: ` + size + `, got "x"; it has no effect`}},
		`{max-size: "7", scale-down-utilization-threshold: "0.5", scale-down-gpu-utilization-threshold: "1", scale-down-unneeded-time: 5m,
			scale-down-unready-time: 0s, max-node-provision-time: 1h, max-node-startup-time: 2m, zero-or-max-node-scaling: "true",
			allow-non-atomic-scale-up-to-max: "1", ignore-daemonsets-utilization: "false"}`: {want: &validation.NodeGroup{
			Max: 7, UtilizationThreshold: new(0.5), GPUUtilizationThreshold: new(1.0), UnneededTime: new(5 * time.Minute),
			UnreadyTime: new(time.Duration(0)), MaxProvisionTime: new(time.Hour), MaxStartupTime: new(2 * time.Minute),
			ZeroOrMax: new(true), AllowNonAtomicScaleUpToMax: new(true), IgnoreDaemonSetsOfUsage: new(false),
		}},
		`{max-size: "7", scale-down-utilization-threshold: "NaN", scale-down-unneeded-time: -1s, zero-or-max-node-scaling: perhaps}`: {
			want: &validation.NodeGroup{Max: 7}, remarks: []string{
				`scale-down-utilization-threshold]: expected a number from 0 to 1, got "NaN"; it has no effect`,
				`scale-down-unneeded-time]: expected a duration such as 10m, got "-1s"; it has no effect`,
				`zero-or-max-node-scaling]: expected true or false, got "perhaps"; it has no effect`,
			},
		},
		`{max-size: "7", autoscaler.gardener.cloud/scale-down-unneeded-time: 3m,
			autoscaler.gardener.cloud/scale-down-unready-time: 4m, scale-down-unready-time: 5m}`: {
			want: &validation.NodeGroup{Max: 7, UnneededTime: new(3 * time.Minute), UnreadyTime: new(5 * time.Minute)},
		},
	} {
		var short, all map[string]string
		if err := yaml.Unmarshal([]byte(annotations), &short); err != nil {
			t.Fatal(err)
		}
		all = map[string]string{}
		for key, value := range short {
			if !strings.Contains(key, "/") {
				key = v1alpha1.AutoscalerDomain + key
			}
			all[key] = value
		}
		var remarks []string
		for _, remark := range tc.remarks {
			remarks = append(remarks, "metadata.annotations["+v1alpha1.AutoscalerDomain+remark)
		}
		got, ok, gotRemarks := validation.NodeGroupOf(all)
		if tc.want == nil {
			tc.want = &validation.NodeGroup{}
		} else if !ok {
			t.Errorf("%s: not a group", annotations)
		}
		if diff := cmp.Diff(*tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", annotations, diff)
		}
		if diff := cmp.Diff(remarks, gotRemarks); diff != "" {
			t.Errorf("remarks on %s (-want +got):\n%s", annotations, diff)
		}
		if diff := cmp.Diff(remarks, validation.RemarksOnNodeGroup(all)); diff != "" {
			t.Errorf("remarks on %s (-want +got):\n%s", annotations, diff)
		}
		if len(short) > 5 != got.HasOptions() && len(short) > 5 {
			t.Errorf("%s: no options", annotations)
		}
	}
}
