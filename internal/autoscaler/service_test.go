package autoscaler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
)

// TestALoop calls all methods that a client calls in a loop, in its order.
func TestALoop(t *testing.T) {
	f := newFleet(t, pool("pool", 2)...)
	c := f.client("n")
	ctx := t.Context()
	if _, err := c.Refresh(ctx, &externalgrpc.RefreshRequest{}); err != nil {
		t.Fatal(err)
	}
	groups, err := c.NodeGroups(ctx, &externalgrpc.NodeGroupsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &externalgrpc.NodeGroupsResponse{NodeGroups: []*externalgrpc.NodeGroup{
		{Id: "pool", MaxSize: 100, Debug: "MachineDeployment n/pool, class pool; zone z"},
	}}
	if diff := cmp.Diff(want, groups, protocmp.Transform()); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	for name, id := range map[string]string{"pool-0": "pool", "foreign": ""} {
		of, err := c.NodeGroupForNode(ctx, &externalgrpc.NodeGroupForNodeRequest{Node: nodes(name)[0]})
		if err != nil || of.GetNodeGroup() == nil || of.GetNodeGroup().GetId() != id {
			t.Errorf("group of %s: %v, %v; want %q", name, of, err, id)
		}
	}
	size, err := c.NodeGroupTargetSize(ctx, &externalgrpc.NodeGroupTargetSizeRequest{Id: "pool"})
	if err != nil || size.GetTargetSize() != 2 {
		t.Errorf("size %v, %v", size, err)
	}
	instances, err := c.NodeGroupNodes(ctx, &externalgrpc.NodeGroupNodesRequest{Id: "pool"})
	if err != nil || len(instances.GetInstances()) != 2 || instances.GetInstances()[0].GetId() != "vm://pool-0" {
		t.Errorf("instances %v, %v", instances, err)
	}
	_, err = c.NodeGroupGetOptions(ctx, &externalgrpc.NodeGroupAutoscalingOptionsRequest{Id: "pool"})
	wantCode(t, "options without an annotation", err, codes.Unimplemented)
	_, err = c.PricingNodePrice(ctx, &externalgrpc.PricingNodePriceRequest{})
	wantCode(t, "a price", err, codes.Unimplemented)
	if label, err := c.GPULabel(ctx, &externalgrpc.GPULabelRequest{}); err != nil || label.GetLabel() != v1alpha1.LabelAccelerator {
		t.Errorf("label %v, %v", label, err)
	}
	if kinds, err := c.GetAvailableGPUTypes(ctx, &externalgrpc.GetAvailableGPUTypesRequest{}); err != nil || len(kinds.GetGpuTypes()) != 0 {
		t.Errorf("kinds of accelerators %v, %v", kinds, err)
	}
	_, err = c.NodeGroupTargetSize(ctx, &externalgrpc.NodeGroupTargetSizeRequest{Id: "foreign"})
	wantCode(t, "a foreign group", err, codes.NotFound)
	if lists := f.api.Count("list *"); lists != 4 {
		t.Errorf("%d lists for a loop, want 4", lists)
	}
	if _, err := c.Cleanup(ctx, &externalgrpc.CleanupRequest{}); err != nil {
		t.Error(err)
	}
}

// TestTheTemplateServesAllReleases: both fields have the Node, whose encoding is that of a nested
// message.
func TestTheTemplateServesAllReleases(t *testing.T) {
	f := newFleet(t, pool("pool", 0)...)
	answer, err := f.client("n").NodeGroupTemplateNodeInfo(t.Context(), &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: "pool"})
	if err != nil {
		t.Fatal(err)
	}
	for field, encoded := range map[string][]byte{"older": answer.GetNodeInfo(), "newer": answer.GetNodeBytes()} {
		var node corev1.Node
		if err := node.Unmarshal(encoded); err != nil {
			t.Fatal(err)
		}
		if node.Labels[corev1.LabelTopologyZone] != "z" {
			t.Errorf("%s releases get %v", field, node)
		}
	}
}

// TestPodsOfTheTemplate: machine configuration decides, where it sets a number.
func TestPodsOfTheTemplate(t *testing.T) {
	f := newFleet(t, append(pool("pool", 0), pool("configured", 0)...)...)
	c := f.client("n")
	for id, want := range map[string]string{"pool": "110", "configured": "50"} {
		answer, err := c.NodeGroupTemplateNodeInfo(t.Context(), &externalgrpc.NodeGroupTemplateNodeInfoRequest{Id: id})
		var node corev1.Node
		if err == nil {
			err = node.Unmarshal(answer.GetNodeBytes())
		}
		if got := node.Status.Allocatable.Pods().String(); err != nil || got != want {
			t.Errorf("%s: %s pods, %v; want %s", id, got, err, want)
		}
	}
}

func TestOptions(t *testing.T) {
	f := newFleet(t, pool("pool", 0, func(d *v1alpha1.MachineDeployment) {
		d.Annotations[v1alpha1.AnnotationUnneededTime] = "5m"
		d.Annotations[v1alpha1.AnnotationUtilizationThreshold] = "0"
		d.Annotations[v1alpha1.AnnotationMaxStartupTime] = "7m"
	})...)
	c := f.client("n")
	for name, defaults := range map[string]*externalgrpc.NodeGroupAutoscalingOptions{
		"newer": {
			ScaleDownUtilizationThreshold: 0.5, ScaleDownUnneededDuration: durationpb.New(time.Hour),
			ScaleDownUnreadyDuration: durationpb.New(2 * time.Hour), ZeroOrMaxNodeScaling: true,
		},
		"older": {
			ScaleDownUtilizationThreshold: 0.5, ScaleDownUnneededTime: &externalgrpc.DurationOfOlderReleases{Duration: int64(time.Hour)},
			ScaleDownUnreadyTime: &externalgrpc.DurationOfOlderReleases{Duration: int64(2 * time.Hour)}, ZeroOrMaxNodeScaling: true,
		},
		"none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			want := &externalgrpc.NodeGroupAutoscalingOptions{}
			if defaults != nil {
				want, _ = proto.Clone(defaults).(*externalgrpc.NodeGroupAutoscalingOptions)
			}
			want.ScaleDownUtilizationThreshold = 0
			want.ScaleDownUnneededDuration = durationpb.New(5 * time.Minute)
			want.ScaleDownUnneededTime = &externalgrpc.DurationOfOlderReleases{Duration: int64(5 * time.Minute)}
			want.MaxNodeStartupDuration = durationpb.New(7 * time.Minute)
			got, err := c.NodeGroupGetOptions(t.Context(), &externalgrpc.NodeGroupAutoscalingOptionsRequest{Id: "pool", Defaults: defaults})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.GetNodeGroupAutoscalingOptions(), protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnInstanceThatCannotBeCreated(t *testing.T) {
	objects := pool("pool", 1)
	m, _ := objects[3].(*v1alpha1.Machine)
	m.Spec.ProviderID, m.Status.CurrentStatus.Phase = "", v1alpha1.MachineCrashLoopBackOff
	m.Status.LastOperation = v1alpha1.LastOperation{
		Type: v1alpha1.MachineOperationCreate, State: v1alpha1.MachineStateFailed, ErrorCode: "ResourceExhausted", Description: "no quota",
	}
	f := newFleet(t, objects...)
	got, err := f.client("n").NodeGroupNodes(t.Context(), &externalgrpc.NodeGroupNodesRequest{Id: "pool"})
	if err != nil {
		t.Fatal(err)
	}
	want := &externalgrpc.NodeGroupNodesResponse{Instances: []*externalgrpc.Instance{{
		Id: "requested://pool-0", Status: &externalgrpc.InstanceStatus{
			InstanceState: externalgrpc.InstanceStatus_instanceCreating,
			ErrorInfo:     &externalgrpc.InstanceErrorInfo{ErrorCode: "ResourceExhausted", ErrorMessage: "no quota", InstanceErrorClass: 1},
		},
	}}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReadsAreShared: however often a client refreshes and however many calls it sends, a namespace
// is read once a second at most.
func TestReadsAreShared(t *testing.T) {
	f := newFleet(t, append(pool("a", 1), pool("b", 1)...)...)
	c := f.client("n")
	call := func() {
		t.Helper()
		if _, err := c.NodeGroups(t.Context(), &externalgrpc.NodeGroupsRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	refresh := func() {
		t.Helper()
		if _, err := c.Refresh(t.Context(), &externalgrpc.RefreshRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	wantReads := func(when string, want int) {
		t.Helper()
		if got := f.api.Count("list machines/*", "list machines"); got != want {
			t.Errorf("%s: %d reads, want %d: %v", when, got, want, f.api.Log())
		}
	}
	for range 20 {
		refresh()
		call()
	}
	wantReads("at once", 1)
	f.clock.SetTime(f.clock.Now().Add(maxAge))
	call()
	wantReads("when it is as old as it may be", 1)
	refresh()
	wantReads("after a refresh", 2)
	f.clock.SetTime(f.clock.Now().Add(maxAge + time.Second))
	call()
	wantReads("when it is too old", 3)
}

// TestNamespacesAreSeparate: two autoscalers of two namespaces with groups of the same name.
func TestNamespacesAreSeparate(t *testing.T) {
	f := newFleet(t, append(poolIn("n", "pool", 1), poolIn("other", "pool", 3)...)...)
	connect := f.replica()
	for namespace, want := range map[string]int32{"n": 1, "other": 3} {
		c := connect(f.certificateOf(namespace))
		size, err := c.NodeGroupTargetSize(t.Context(), &externalgrpc.NodeGroupTargetSizeRequest{Id: "pool"})
		if err != nil || size.GetTargetSize() != want {
			t.Errorf("%s: %v, %v; want %d", namespace, size, err, want)
		}
		if _, err := c.NodeGroupIncreaseSize(t.Context(), &externalgrpc.NodeGroupIncreaseSizeRequest{Id: "pool", Delta: want}); err != nil {
			t.Error(err)
		}
		size, err = c.NodeGroupTargetSize(t.Context(), &externalgrpc.NodeGroupTargetSizeRequest{Id: "pool"})
		if err != nil || size.GetTargetSize() != 2*want {
			t.Errorf("%s: %v, %v; want %d", namespace, size, err, 2*want)
		}
	}
}
