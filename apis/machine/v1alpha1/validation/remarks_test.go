package validation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1/validation"
)

func TestRemarks(t *testing.T) {
	const refused = ": no Node may have it; the API server refuses all of nodeTemplate when the VM has joined"
	for template, want := range map[string][]string{
		`{}`: nil,
		`{class: {kind: MachineClass}, drainTimeout: 0s, maxEvictRetries: 0, nodeConditions: "KernelDeadlock, XfsShutdown,,"}`: nil,
		`{class: {kind: AWSMachineClass}}`: {`spec.template.spec.class.kind: "AWSMachineClass" is read as MachineClass`},
		`{drainTimeout: -5m, healthTimeout: -1s, creationTimeout: -1s, inPlaceUpdateTimeout: -1s, machinePreserveTimeout: -1s}`: {
			"spec.template.spec.drainTimeout: -5m0s counts as 0, no time at all",
			"spec.template.spec.healthTimeout: -1s counts as 0, no time at all",
			"spec.template.spec.creationTimeout: -1s counts as 0, no time at all",
			"spec.template.spec.inPlaceUpdateTimeout: -1s counts as 0, no time at all",
			"spec.template.spec.machinePreserveTimeout: -1s counts as 0, no time at all",
		},
		`{maxEvictRetries: -3}`: {"spec.template.spec.maxEvictRetries: -3 counts as 0"},
		`{nodeConditions: "KernelDedlock,Ready"}`: {
			`spec.template.spec.nodeConditions: "KernelDedlock" is a condition that neither kubelets nor node-problem-detector report by default, and has no effect on a Node without it`,
			"spec.template.spec.nodeConditions: no Node on which Ready is not False counts as healthy",
		},
		`{nodeTemplate: {metadata: {labels: {a.b/c: d, "a b": c, e: "f g"}, annotations: {A.b/c: "d e", "f g": h}}}}`: {
			"spec.template.spec.nodeTemplate.metadata.labels[a b]" + refused,
			"spec.template.spec.nodeTemplate.metadata.labels[e]" + refused,
			"spec.template.spec.nodeTemplate.metadata.annotations[f g]" + refused,
		},
		`{nodeTemplate: {spec: {taints: [{key: a.b/c, value: d, effect: NoExecute}, {key: a, effect: NoSchedul}, {key: "a b", effect: NoSchedule}, {key: a, value: "b c", effect: NoSchedule}]}}}`: {
			"spec.template.spec.nodeTemplate.spec.taints[1]" + refused,
			"spec.template.spec.nodeTemplate.spec.taints[2]" + refused,
			"spec.template.spec.nodeTemplate.spec.taints[3]" + refused,
		},
		`{nodeTemplate: {spec: {unschedulable: true}}}`: {"spec.template.spec.nodeTemplate.spec: what is there besides taints has no effect"},
	} {
		var spec v1alpha1.MachineSpec
		if err := yaml.UnmarshalStrict([]byte(template), &spec); err != nil {
			t.Fatal(err)
		}
		of := v1alpha1.MachineTemplateSpec{Spec: spec}
		for kind, got := range map[string][]string{
			"MachineDeployment": validation.RemarksOnMachineDeployment(&v1alpha1.MachineDeploymentSpec{Template: of}),
			"MachineSet":        validation.RemarksOnMachineSet(&v1alpha1.MachineSetSpec{Template: of}),
		} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", kind, template, diff)
			}
		}
	}
	want := []string{"spec.minReadySeconds: -1 counts as 0", "spec.autoPreserveFailedMachineMax: -2 counts as 0"}
	if diff := cmp.Diff(want,
		validation.RemarksOnMachineSet(&v1alpha1.MachineSetSpec{MinReadySeconds: -1, AutoPreserveFailedMachineMax: -2})); diff != "" {
		t.Errorf("numbers of a set (-want +got):\n%s", diff)
	}
	want = append(want, "spec.revisionHistoryLimit: -3 counts as 0", "spec.progressDeadlineSeconds: -4 counts as 0")
	if diff := cmp.Diff(want, validation.RemarksOnMachineDeployment(&v1alpha1.MachineDeploymentSpec{
		MinReadySeconds: -1, AutoPreserveFailedMachineMax: -2, RevisionHistoryLimit: new(int32(-3)), ProgressDeadlineSeconds: new(int32(-4)),
	})); diff != "" {
		t.Errorf("numbers of a deployment (-want +got):\n%s", diff)
	}
}
