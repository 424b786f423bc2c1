package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestGroupsAreRead(t *testing.T) {
	got, err := parseGroup("1:5:shoot--a.pool.z1")
	if want := (group{1, 5, "shoot--a", "pool.z1"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1:5", "1:5:pool", "5:1:ns.pool", "-1:5:ns.pool", "a:5:ns.pool", "1:5:.pool", "1:5:ns."} {
		if got, err := parseGroup(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, got)
		}
	}
	if err := (groups{"a": {namespace: "one"}}).Set("1:5:two.b"); err == nil {
		t.Error("want an error for groups of two namespaces, got none")
	}
}

func TestRolling(t *testing.T) {
	for name, tc := range map[string]struct {
		status v1alpha1.ConditionStatus
		reason string
		want   bool
	}{
		"done":             {v1alpha1.ConditionTrue, "NewMachineSetAvailable", false},
		"paused":           {v1alpha1.ConditionUnknown, "DeploymentPaused", false},
		"resumed":          {v1alpha1.ConditionUnknown, "DeploymentResumed", true},
		"going on":         {v1alpha1.ConditionTrue, "MachineSetUpdated", true},
		"too late":         {v1alpha1.ConditionFalse, "ProgressDeadlineExceeded", true},
		"paused before":    {v1alpha1.ConditionTrue, "DeploymentPaused", true},
		"done, it doubted": {v1alpha1.ConditionUnknown, "NewMachineSetAvailable", true},
	} {
		d := &v1alpha1.MachineDeployment{Status: v1alpha1.MachineDeploymentStatus{Conditions: []v1alpha1.MachineDeploymentCondition{
			{Type: v1alpha1.MachineDeploymentAvailable, Status: v1alpha1.ConditionFalse, Reason: "MinimumReplicasUnavailable"},
			{Type: v1alpha1.MachineDeploymentProgressing, Status: tc.status, Reason: tc.reason},
		}}}
		if got := rolling(d); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
		if d.Status.Conditions = d.Status.Conditions[:1]; rolling(d) {
			t.Error("it is rolling without the condition")
		}
	}
}

func TestLowered(t *testing.T) {
	const at = "2026-01-02T03:04:05Z"
	now, err := time.Parse(time.RFC3339, at)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		generation     int
		before         string
		replicas       int32
		machines       []string
		want           string
		fresh          []string
		changed        string
		refused, equal bool
	}{
		"the first marks nothing": {generation: 1, replicas: 3, machines: []string{"a"}, fresh: []string{"a"}},
		"the second writes names": {generation: 2, replicas: 3, machines: []string{"a", "b"}, want: "a,b", fresh: []string{"a", "b"}},
		"the second adds": {
			generation: 2, before: "a", replicas: 3, machines: []string{"a", "b"}, want: "a,b", fresh: []string{"b"},
		},
		"the third writes times": {
			generation: 3, replicas: 3, machines: []string{"a", "b"}, want: "a~" + at + ",b~" + at, fresh: []string{"a", "b"}, changed: at,
		},
		"the third keeps times": {
			generation: 3, before: "a~2025-12-31T00:00:00Z", replicas: 3, machines: []string{"a", "b"}, want: "a~2025-12-31T00:00:00Z,b~" + at,
			fresh: []string{"b"}, changed: at,
		},
		"the third keeps names": {
			generation: 3, before: "a", replicas: 3, machines: []string{"b"}, want: "a,b~" + at, fresh: []string{"b"}, changed: at,
		},
		"what is marked is not counted": {generation: 3, before: "a~" + at, replicas: 3, machines: []string{"a"}, equal: true},
		"names are marks of the third":  {generation: 3, before: "a", replicas: 3, machines: []string{"a"}, equal: true},
		"there are not less than none":  {generation: 3, replicas: 1, machines: []string{"a", "b"}, refused: true},
		"the second writes no time else": {
			generation: 2, before: "a~" + at, replicas: 1, machines: []string{"b"}, want: "a~" + at + ",b", fresh: []string{"b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.MachineDeployment{Spec: v1alpha1.MachineDeploymentSpec{Replicas: tc.replicas}}
			if tc.before != "" {
				d.Annotations = map[string]string{annotationTrigger: tc.before}
			}
			was := d.DeepCopy()
			got, fresh, err := lowered(d, tc.machines, tc.generation, now)
			if errors.Is(err, errSize) != tc.refused || (got == nil) != (tc.refused || tc.equal) {
				t.Fatalf("got %v, %v", got, err)
			}
			if diff := cmp.Diff(tc.fresh, fresh); diff != "" {
				t.Errorf("what counts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(was, d); diff != "" {
				t.Errorf("the input has changed (-want +got):\n%s", diff)
			}
			if got == nil {
				return
			}
			if got.Annotations[annotationTrigger] != tc.want || got.Annotations[annotationChanged] != tc.changed {
				t.Errorf("got the annotations %v, want %q at %q", got.Annotations, tc.want, tc.changed)
			}
			if want := tc.replicas - int32(len(tc.fresh)); got.Spec.Replicas != want {
				t.Errorf("got %d replicas, want %d", got.Spec.Replicas, want)
			}
		})
	}
}

func TestExempt(t *testing.T) {
	failed := &v1alpha1.Machine{Status: v1alpha1.MachineStatus{CurrentStatus: v1alpha1.CurrentStatus{Phase: v1alpha1.MachineFailed}}}
	going := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	runs := &v1alpha1.Machine{}
	got := []string{
		exempt(runs, false, false), exempt(failed, false, false), exempt(going, false, false), exempt(runs, true, false),
		exempt(runs, false, true),
	}
	want := []string{"", "it has failed", "it is being deleted", "it is preserved", "its Node is not to be scaled down"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func machine(name, node, id string, owners ...string) v1alpha1.Machine {
	m := v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": "pool", "node": node}}}
	m.Spec.ProviderID = id
	for _, owner := range owners {
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{Name: owner})
	}
	return m
}

func TestMachinesAreFound(t *testing.T) {
	machines := []v1alpha1.Machine{machine("new", "", ""), machine("a", "node-a", "aws:///eu-1a/i-1"), machine("b", "node-b", "i-2")}
	for id, want := range map[string]string{
		"aws:///i-1": "a", "aws:///eu-1b/i-2": "b", "requested://new": "new", "aws:///eu-1a/i-3": "", "": "",
	} {
		got := ""
		if m := machineOf(id, machines); m != nil {
			got = m.Name
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", id, got, want)
		}
	}
}

func TestOwnersAreFollowed(t *testing.T) {
	owned := v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Name: "set", OwnerReferences: []metav1.OwnerReference{{Name: "pool"}, {Name: "other"}}},
	}
	sets := []v1alpha1.MachineSet{{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}, owned}
	for name, tc := range map[string]struct {
		owners  []string
		want    string
		noOwner bool
		fails   bool
	}{
		"the first owner counts": {[]string{"set", "bare"}, "pool", false, false},
		"no owner":               {nil, "", true, true},
		"no owner of its set":    {[]string{"bare"}, "", true, true},
		"there is no such set":   {[]string{"gone"}, "", false, true},
	} {
		m := machine("m", "", "", tc.owners...)
		got, err := deploymentOf(&m, sets)
		if got != tc.want || errors.Is(err, errNoOwner) != tc.noOwner || (err != nil) != tc.fails {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestInstances(t *testing.T) {
	op := func(m v1alpha1.Machine, kind v1alpha1.MachineOperationType, state v1alpha1.MachineState, code, text string) v1alpha1.Machine {
		m.Status.LastOperation = v1alpha1.LastOperation{Type: kind, State: state, ErrorCode: code, Description: text}
		return m
	}
	other := machine("other", "", "")
	other.Labels["name"] = "elsewhere"
	nodes := []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: corev1.NodeSpec{ProviderID: "sim:///i-1"}}}
	got := instancesOf("pool", []v1alpha1.Machine{
		other,
		op(machine("a", "node-a", "i-1"), v1alpha1.MachineOperationCreate, v1alpha1.MachineStateFailed, "Internal", "it has joined all the same"),
		op(machine("b", "", ""), v1alpha1.MachineOperationCreate, v1alpha1.MachineStateProcessing, "", ""),
		op(machine("c", "", ""), v1alpha1.MachineOperationCreate, v1alpha1.MachineStateFailed, "ResourceExhausted", "none left"),
		op(machine("d", "", ""), v1alpha1.MachineOperationCreate, v1alpha1.MachineStateFailed, "Internal", "broken"),
		op(machine("e", "node-e", "i-5"), v1alpha1.MachineOperationDelete, v1alpha1.MachineStateFailed, "Internal", "broken"),
	}, nodes)
	want := []instance{
		{ID: "sim:///i-1", Machine: "a"},
		{ID: "requested://b", Machine: "b", Creating: true},
		{ID: "requested://c", Machine: "c", Creating: true, Error: &instanceError{"OutOfResources", "ResourceExhausted", "none left"}},
		{ID: "requested://d", Machine: "d", Creating: true, Error: &instanceError{"Other", "Internal", "broken"}},
		{ID: "requested://e", Machine: "e"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKindsOfClasses(t *testing.T) {
	for kind, known := range map[string]bool{"MachineClass": true, "AWSMachineClass": false, "": false} {
		d := &v1alpha1.MachineDeployment{}
		d.Spec.Template.Spec.Class = v1alpha1.ClassSpec{Kind: kind, Name: "large"}
		if name, err := classOf(d); (name == "large") != known || errors.Is(err, errKind) == known {
			t.Errorf("kind %q: got %q, %v", kind, name, err)
		}
	}
}

func TestTemplate(t *testing.T) {
	class := func(change func(*v1alpha1.NodeTemplate)) *v1alpha1.MachineClass {
		of := &v1alpha1.NodeTemplate{
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), "gpu": resource.MustParse("0"),
			},
			VirtualCapacity: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("9Gi"), "dongle": resource.MustParse("2")},
			InstanceType:    "large", Region: "eu", Zone: "eu-a",
		}
		change(of)
		return &v1alpha1.MachineClass{NodeTemplate: of}
	}
	d := &v1alpha1.MachineDeployment{}
	labels := map[string]string{labelPool: "workers", corev1.LabelArchStable: "any"}
	d.Spec.Template.Spec.NodeTemplateSpec.Labels = labels
	node := func(pool, size string) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{labelPool: pool, corev1.LabelInstanceTypeStable: size}},
			Status:     corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}},
		}
	}
	for name, tc := range map[string]struct {
		change   func(*v1alpha1.NodeTemplate)
		nodes    []corev1.Node
		capacity string // cpu, memory, gpu and dongle
		arch     string
	}{
		"from the class": {
			func(*v1alpha1.NodeTemplate) {}, []corev1.Node{node("others", "large"), node("workers", "small")}, "4 9Gi 0 2", "amd64",
		},
		"another processor": {func(of *v1alpha1.NodeTemplate) { of.Architecture = new("arm64") }, nil, "4 9Gi 0 2", "arm64"},
		"nothing virtual":   {func(of *v1alpha1.NodeTemplate) { of.VirtualCapacity = nil }, nil, "4 8Gi 0 0", "amd64"},
		"from a Node":       {func(*v1alpha1.NodeTemplate) {}, []corev1.Node{node("workers", "large")}, "3 0 0 0", "amd64"},
		"without a gpu key": {change: func(of *v1alpha1.NodeTemplate) { delete(of.Capacity, "gpu") }},
		"without a zone":    {change: func(of *v1alpha1.NodeTemplate) { of.Zone = "" }},
		"without a region":  {change: func(of *v1alpha1.NodeTemplate) { of.Region = "" }},
		"without a type":    {change: func(of *v1alpha1.NodeTemplate) { of.InstanceType = "" }},
	} {
		got, err := templateOf(d, class(tc.change), tc.nodes)
		if tc.capacity == "" {
			if !errors.Is(err, errTemplate) {
				t.Errorf("%s: got %+v, %v, want an error", name, got, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := map[string]string{labelPool: "workers", corev1.LabelArchStable: tc.arch}
		if diff := cmp.Diff(want, got.Labels); diff != "" {
			t.Errorf("%s: labels (-want +got):\n%s", name, diff)
		}
		gpu, dongle := got.Capacity["gpu"], got.Capacity["dongle"]
		if has := fmt.Sprint(got.Capacity.Cpu(), got.Capacity.Memory(), &gpu, &dongle); has != tc.capacity ||
			(got.From == "") != (len(tc.nodes) != 1) {
			t.Errorf("%s: it has %s and is from %q, want %s", name, has, got.From, tc.capacity)
		}
	}
	if labels[corev1.LabelArchStable] != "any" {
		t.Errorf("the input has changed: %v", labels)
	}
	if got, err := templateOf(d, &v1alpha1.MachineClass{}, nil); !errors.Is(err, errTemplate) {
		t.Errorf("without a nodeTemplate: got %+v, %v", got, err)
	}
}
