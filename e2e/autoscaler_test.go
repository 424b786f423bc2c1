//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// The answers of the autoscaler's double; see e2e/autoscaler.
type (
	sized struct {
		Replicas int32
		Deleted  []string
		Skipped  map[string]string
		Writes   int
	}
	instance struct {
		ID, Machine string
		Creating    bool
		Error       *struct{ Class, Code, Message string }
	}
	grouped  struct{ Group, Machine string }
	nodeLike struct {
		Capacity                         corev1.ResourceList
		Labels                           map[string]string
		InstanceType, Region, Zone, From string
	}
)

// scaler is the autoscaler's double, with the MachineDeployment pool of the test's namespace as its
// node group.
type scaler struct {
	*space

	generation int
}

// query runs one command. A rejection has a reason; every other failure is an error.
func (a scaler) query(ctx context.Context, answer any, args ...string) (refused string, err error) {
	bin, err := harness.Bin()
	if err != nil {
		return "", err
	}
	var output strings.Builder
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "autoscaler"), append([]string{
		"--control-kubeconfig=" + filepath.Join(a.lab.Dir, "admin.kubeconfig"),
		"--target-kubeconfig=" + filepath.Join(a.lab.Dir, "target.kubeconfig"),
		fmt.Sprintf("--generation=%d", a.generation), fmt.Sprintf("--nodes=0:10:%s.pool", a.name),
	}, args...)...)
	cmd.Stdout = &output
	err = cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok && failed.ExitCode() == 1 {
		var why struct{ Error, Refusal string }
		if broken := json.Unmarshal([]byte(output.String()), &why); broken != nil {
			return "", fmt.Errorf("autoscaler %v: %w: %q", args, err, output.String())
		}
		if why.Refusal != "" {
			return why.Refusal, nil
		}
		return "", errors.New(why.Error)
	}
	if err != nil {
		return "", fmt.Errorf("autoscaler %v: %w; hack/test.sh e2e builds it", args, err)
	}
	return "", json.Unmarshal([]byte(output.String()), answer)
}

// do runs a command that must not be rejected.
func (a scaler) do(answer any, args ...string) {
	a.Helper()
	refused, err := a.query(a.Context(), answer, args...)
	a.must(err)
	if refused != "" {
		a.Fatalf("autoscaler %v: refused, since %s", args, refused)
	}
}

// resizes runs a command that changes the size of the pool, and compares its answer.
func (a scaler) resizes(want sized, args ...string) {
	a.Helper()
	var got sized
	a.do(&got, args...)
	if diff := cmp.Diff(want, got); diff != "" {
		a.Errorf("autoscaler %v (-want +got):\n%s", args, diff)
	}
}

// TestAutoscaler runs a double of the cluster-autoscaler, which reads, decides and writes like the
// original, and with types that do not have all fields. docs/autoscaler.md lists the cases, and the
// tests that show the others.
func TestAutoscaler(t *testing.T) {
	t.Parallel()
	s := newSpace(t, shared(t), "autoscaler", `{"zone":"sim-3g"}`)
	s.patch("machineclasses", harness.ClassName,
		`{"nodeTemplate":{"capacity":{"cpu":"4","gpu":"0","memory":"16Gi"},"instanceType":"standard-4",`+
			`"region":"sim-1","zone":"sim-1a","architecture":"arm64","virtualCapacity":{"example.com/dongle":"2"},"ofTheFuture":{"is":"kept"}}}`)
	s.deploy("pool", 0, func(d *v1alpha1.MachineDeployment) {
		d.Spec.AutoPreserveFailedMachineMax = 1 // the double's types do not have it
		d.Annotations = map[string]string{"autoscaler.gardener.cloud/scale-down-unneeded-time": "15m"}
		d.Spec.Template.Annotations = map[string]string{"template": "first"}
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": s.name}
	})
	s.progressing(corev1.ConditionTrue, v1alpha1.ReasonNewMachineSetAvailable)
	for _, test := range []struct {
		name string
		run  func(s *space)
	}{
		{"ScaleUpFromZero", autoscalerScalesUpFromZero},
		{"ScaleDownByName", autoscalerScalesDownByName},
		{"Rollout", autoscalerIsKeptFromARollout},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(s.in(t)) }) {
			t.FailNow() // each continues with the machines of the one before
		}
	}
	s.remove("machinedeployments", "pool")
	s.gone()
}

// autoscalerScalesUpFromZero scales the pool up to 4 while the cloud fails at first: machines
// without a Node are instances that are being created, and can be removed again.
func autoscalerScalesUpFromZero(s *space) {
	a := scaler{s, 3}
	var like nodeLike
	a.do(&like, "template-node", "pool")
	dongles := like.Capacity["example.com/dongle"]
	if like.From != "" || like.Capacity.Cpu().String() != "4" || dongles.String() != "2" || like.InstanceType != "standard-4" ||
		like.Region != "sim-1" ||
		like.Zone != "sim-1a" || like.Labels[corev1.LabelArchStable] != "arm64" || like.Labels["worker.gardener.cloud/pool"] != s.name {
		s.Errorf("a Node would be like %+v", like)
	}
	before := s.deployment("pool")

	end := createsFail(s, "sim-3g")
	a.resizes(sized{Replicas: 5, Writes: 1}, "increase-size", "pool", "5")
	var requested []instance
	s.eventually("five instances are being created, and report the error of the cloud", func(ctx context.Context) error {
		requested = nil
		if _, err := a.query(ctx, &requested, "nodes", "pool"); err != nil {
			return err
		}
		var wrong deviations
		wrong.unless(len(requested) == 5, "there are %d", len(requested))
		for _, i := range requested {
			wrong.unless(i.ID == "requested://"+i.Machine && i.Creating && i.Error != nil && i.Error.Class == "Other" && i.Error.Code == "Internal",
				"%+v %+v", i, i.Error)
		}
		return wrong.err()
	})
	a.resizes(sized{Replicas: 4, Deleted: []string{requested[0].Machine}, Writes: 1}, "delete-nodes", "pool", requested[0].ID)
	end()
	s.running("pool", 4)
	s.joined()

	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	var joined []instance
	a.do(&joined, "nodes", "pool")
	for _, m := range machines {
		node, err := s.lab.Target.CoreV1().Nodes().Get(s.Context(), m.Labels[v1alpha1.LabelNode], metav1.GetOptions{})
		s.must(err)
		if !slices.Contains(joined, instance{ID: node.Spec.ProviderID, Machine: m.Name}) {
			s.Errorf("Node %s is VM %s, and the instances are %+v", node.Name, node.Spec.ProviderID, joined)
		}
		var of grouped
		if a.do(&of, "group-of-node", node.Name); of != (grouped{"pool", m.Name}) {
			s.Errorf("Node %s is of %+v, want machine %s of pool", node.Name, of, m.Name)
		}
	}
	isWrittenWithoutLosses(s, before)
}

// createsFail makes all creates in a zone fail, until the returned function is called or the test
// ends.
func createsFail(s *space, zone string) (end func()) {
	s.Helper()
	set := func(faults ...cloudapi.Fault) {
		s.Helper()
		patch, err := json.Marshal(map[string]any{"faults": faults})
		s.must(err)
		s.must(s.lab.Cloud.Set(context.WithoutCancel(s.Context()), string(patch)))
	}
	set(cloudapi.Fault{
		Operations: []cloudapi.Operation{cloudapi.OpCreateInstance}, Zones: []string{zone}, Kind: cloudapi.FaultInternal, Rate: 1,
	})
	end = func() { s.Helper(); set() }
	s.Cleanup(end)
	return end
}

// isWrittenWithoutLosses checks that the whole-object writes of the double, and those of the fleet,
// have removed nothing that the other one needs.
func isWrittenWithoutLosses(s *space, before *v1alpha1.MachineDeployment) {
	s.Helper()
	after := s.deployment("pool")
	if after.Spec.AutoPreserveFailedMachineMax != 0 {
		s.Error("the double knows all fields, so that the test shows nothing")
	}
	for key, value := range before.Annotations {
		if after.Annotations[key] != value {
			s.Errorf("annotation %s was %q and is %q", key, value, after.Annotations[key])
		}
	}
	if diff := cmp.Diff(before.Labels, after.Labels); diff != "" || after.Labels[v1alpha1.LabelSlot] == "" {
		s.Errorf("labels before and after (-want +got):\n%s", diff)
	}
	for _, c := range before.Status.Conditions {
		if machinefacts.MachineDeploymentCondition(&after.Status, c.Type) == nil {
			s.Errorf("the condition %s is lost: %v", c.Type, after.Status.Conditions)
		}
	}
	raw, err := s.api().RESTClient().Get().Namespace(s.name).Resource("machineclasses").Name(harness.ClassName).Do(s.Context()).Raw()
	s.must(err)
	var class struct {
		Metadata     metav1.ObjectMeta
		NodeTemplate map[string]any
	}
	s.must(json.Unmarshal(raw, &class))
	if kept := fmt.Sprint(class.NodeTemplate["ofTheFuture"]); !slices.Contains(class.Metadata.Finalizers, v1alpha1.FinalizerName) ||
		kept != "map[is:kept]" {
		s.Errorf("the fleet has written its finalizer (%v), and of a field that it does not know is left: %s", class.Metadata.Finalizers, kept)
	}
}

// autoscalerScalesDownByName deletes one machine in each of the three ways in which autoscalers
// name it, neither the oldest nor the newest one.
func autoscalerScalesDownByName(s *space) {
	for generation := 3; generation >= 1; generation-- {
		machines, err := s.machines(s.Context(), "pool")
		s.must(err)
		var names []string
		for _, m := range machines {
			names = append(names, m.Name)
		}
		named := names[len(names)/2]
		scaler{s, generation}.resizes(sized{Replicas: int32(len(names)) - 1, Deleted: []string{named}, Writes: 1}, "delete-nodes", "pool", named)
		names = slices.DeleteFunc(names, func(name string) bool { return name == named })
		s.eventually(fmt.Sprintf("of generation %d exactly %s is deleted, and no mark is left", generation, named),
			func(ctx context.Context) error {
				machines, err1 := s.machines(ctx, "pool")
				d, err2 := s.api().MachineDeployments(s.name).Get(ctx, "pool", metav1.GetOptions{})
				if err := errors.Join(err1, err2); err != nil {
					return err
				}
				var wrong deviations
				var found []string
				for _, m := range machines {
					found = append(found, m.Name)
					wrong.unless(m.Annotations[v1alpha1.AnnotationPriority] != v1alpha1.PriorityTriggered &&
						m.Annotations[v1alpha1.AnnotationMarkedForDeletionTime] == "",
						"%s is marked: %v", m.Name, m.Annotations)
				}
				for _, name := range names {
					if !slices.Contains(found, name) {
						s.Fatalf("machine %s was deleted, and was not named", name)
					}
				}
				wrong.unless(slices.Equal(found, names), "there are %v, want %v", found, names)
				list, is := d.Annotations[v1alpha1.AnnotationTriggerDeletion]
				wrong.unless(!is, "the MachineDeployment names %q", list)
				return wrong.err()
			})
	}
	s.joined()
}

// autoscalerIsKeptFromARollout: while a rollout lasts, which makes no progress at first, the
// autoscaler may scale up, and neither down nor remove Nodes.
func autoscalerIsKeptFromARollout(s *space) {
	a := scaler{s, 3}
	machines, err := s.machines(s.Context(), "pool")
	s.must(err)
	end := createsFail(s, "sim-3g")
	s.rollIt("second")
	s.eventually("the rollout has begun, and its Node is kept", func(ctx context.Context) error {
		kept, err1 := s.rolloutNodes(ctx)
		d, err2 := s.api().MachineDeployments(s.name).Get(ctx, "pool", metav1.GetOptions{})
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		var wrong deviations
		wrong.unless(strings.HasPrefix(kept[machines[0].Name], "kept"), "Nodes are marked: %v", kept)
		progress := machinefacts.MachineDeploymentCondition(&d.Status, v1alpha1.MachineDeploymentProgressing)
		wrong.unless(progress != nil && progress.Reason != v1alpha1.ReasonNewMachineSetAvailable, "Progressing is %v", progress)
		return wrong.err()
	})
	a.resizes(sized{Replicas: 1, Skipped: map[string]string{machines[0].Name: "its Node is not to be scaled down"}}, "delete-nodes", "pool",
		machines[0].Name)
	refused, err := a.query(s.Context(), new(sized), "decrease-target-size", "pool", "1")
	if s.must(err); refused != "machines are being replaced" {
		s.Errorf("autoscaler decrease-target-size: refused since %q", refused)
	}
	a.resizes(sized{Replicas: 2, Writes: 1}, "increase-size", "pool", "1")
	end()
	s.rolled("second", 2)
	s.withoutRolloutNodes()
}

// deployment reads a MachineDeployment.
func (s *space) deployment(name string) *v1alpha1.MachineDeployment {
	s.Helper()
	d, err := s.api().MachineDeployments(s.name).Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	return d
}
