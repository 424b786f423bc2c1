package groups_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
)

func TestTemplate(t *testing.T) {
	for _, tc := range []struct{ name, class, template, want string }{
		{
			"all that a class has", `{capacity: {cpu: "4", gpu: "2", memory: 16Gi}, virtualCapacity: {example.com/dongle: "3"},
				instanceType: standard-4, region: r, zone: r-a, architecture: arm64}`,
			`{metadata: {labels: {pool: workers, autoscaler.machine.sapcloud.io/accelerator: a100, fleet.machine.sapcloud.io/slot: "7"},
				annotations: {a: b}}, spec: {taints: [{key: k, value: v, effect: NoSchedule}]}}`,
			`{metadata: {name: template-of-pool, annotations: {a: b}, labels: {pool: workers, autoscaler.machine.sapcloud.io/accelerator: a100,
				kubernetes.io/arch: arm64, kubernetes.io/os: linux, kubernetes.io/hostname: template-of-pool,
				node.kubernetes.io/instance-type: standard-4, topology.kubernetes.io/region: r, topology.kubernetes.io/zone: r-a}},
			spec: {taints: [{key: k, value: v, effect: NoSchedule}]},
			status: {conditions: [{type: Ready, status: "True"}],
				capacity: {cpu: "4", memory: 16Gi, nvidia.com/gpu: "2", example.com/dongle: "3", pods: "110"},
				allocatable: {cpu: "4", memory: 16Gi, nvidia.com/gpu: "2", example.com/dongle: "3", pods: "110"}}}`,
		},
		{
			"its own pods, labels over those of the class, and no accelerators",
			`{capacity: {cpu: "1", gpu: "0", memory: 1Gi, pods: "30"}, instanceType: t, region: r, zone: z}`,
			`{metadata: {labels: {topology.kubernetes.io/zone: other}}}`,
			`{metadata: {name: template-of-pool, labels: {kubernetes.io/arch: amd64, kubernetes.io/os: linux, kubernetes.io/hostname: template-of-pool,
				node.kubernetes.io/instance-type: t, topology.kubernetes.io/region: r, topology.kubernetes.io/zone: other}},
			spec: {},
			status: {conditions: [{type: Ready, status: "True"}],
				capacity: {cpu: "1", memory: 1Gi, pods: "30"}, allocatable: {cpu: "1", memory: 1Gi, pods: "30"}}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			class := &v1alpha1.MachineClass{NodeTemplate: &v1alpha1.NodeTemplate{}}
			class.Name = "c"
			pool := deployment("pool", 0, "0 9")
			want := &corev1.Node{}
			for text, into := range map[string]any{
				tc.class: class.NodeTemplate, tc.template: &pool.Spec.Template.Spec.NodeTemplateSpec, tc.want: want,
			} {
				if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
					t.Fatal(err)
				}
			}
			w := world{deployments: []*v1alpha1.MachineDeployment{pool}, classes: []*v1alpha1.MachineClass{class}}
			got, err := w.read().Template("pool")
			checkCode(t, err, 0)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoTemplate(t *testing.T) {
	pool := []*v1alpha1.MachineDeployment{deployment("pool", 0, "0 9")}
	_, err := world{deployments: pool}.read().Template("pool")
	checkCode(t, err, groups.Unimplemented)
	class := &v1alpha1.MachineClass{}
	class.Name = "c"
	_, err = world{deployments: pool, classes: []*v1alpha1.MachineClass{class}}.read().Template("pool")
	checkCode(t, err, groups.Unimplemented)
}

func TestAccelerators(t *testing.T) {
	of := func(kind string) func(*v1alpha1.MachineDeployment) {
		return func(d *v1alpha1.MachineDeployment) {
			d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{v1alpha1.LabelAccelerator: kind}
		}
	}
	got := world{deployments: []*v1alpha1.MachineDeployment{
		deployment("a", 0, "0 9", of("t4")), deployment("b", 0, "0 9", of("a100")), deployment("c", 0, "0 9", of("t4")),
		deployment("d", 0, "0 9"), deployment("e", 0, "", of("h100")),
	}}.read().Accelerators()
	if diff := cmp.Diff([]string{"a100", "t4"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
