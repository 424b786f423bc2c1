package autoscaler

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
)

func decodeRequest(raw []byte, into proto.Message) error {
	return newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, into)
}

// manyNodes returns Nodes with labels of so many bytes in all each.
func manyNodes(count, labels int) []byte {
	request := &externalgrpc.NodeGroupDeleteNodesRequest{Id: "pool"}
	for i := range count {
		node := &externalgrpc.ExternalGrpcNode{Name: fmt.Sprint("node-", i), ProviderID: fmt.Sprint("vm://", i), Labels: map[string]string{}}
		for j := range 16 {
			node.Labels[fmt.Sprintf("label-%02d", j)] = strings.Repeat("x", labels/16)
		}
		node.Annotations = map[string]string{"other": "x", v1alpha1.AnnotationMachine: "n/m/u"}
		request.Nodes = append(request.Nodes, node)
	}
	raw, _ := proto.Marshal(request)
	return raw
}

// TestAsManyNodesAsACallMayName are decoded, without what no answer depends on.
func TestAsManyNodesAsACallMayName(t *testing.T) {
	raw := manyNodes(groups.MostNodes, 500)
	if len(raw) > maxRequest {
		t.Fatalf("%d bytes, want at most %d", len(raw), maxRequest)
	}
	got := &externalgrpc.NodeGroupDeleteNodesRequest{}
	if err := decodeRequest(raw, got); err != nil {
		t.Fatal(err)
	}
	node := got.GetNodes()[groups.MostNodes-1]
	if len(got.GetNodes()) != groups.MostNodes || got.GetId() != "pool" || node.GetName() != "node-999" ||
		node.GetProviderID() != "vm://999" ||
		len(node.GetLabels()) != 0 || len(node.GetAnnotations()) != 1 || node.GetAnnotations()[v1alpha1.AnnotationMachine] != "n/m/u" {
		t.Errorf("%d Nodes of group %s, the last one is %v", len(got.GetNodes()), got.GetId(), node)
	}
}

// TestRequestsBeyondTheBoundsAreNotDecoded: the memory that they take is not that of their fields.
func TestRequestsBeyondTheBoundsAreNotDecoded(t *testing.T) {
	repeated := func(one string) []byte { return []byte(strings.Repeat(one, maxRequest/len(one))) }
	labels := strings.Repeat("\x1a\x00", maxFields)
	for _, tc := range []struct {
		name string
		raw  []byte
		into proto.Message
		want string
	}{
		{"empty Nodes", repeated("\x0a\x00"), &externalgrpc.NodeGroupDeleteNodesRequest{}, "1000 Nodes"},
		{"one Node too many", manyNodes(groups.MostNodes+1, 0), &externalgrpc.NodeGroupDeleteNodesRequest{}, "1000 Nodes"},
		{
			"labels of one Node", append([]byte{0x0a, 0x80, 0x80, 0x08}, labels...), // a field of 128 kB
			&externalgrpc.NodeGroupDeleteNodesRequest{}, "65536 fields",
		},
		{"fields that are not known", repeated("\x78\x00"), &externalgrpc.RefreshRequest{}, "65536 fields"},
		{"one field again and again", repeated("\x0a\x00"), &externalgrpc.NodeGroupForNodeRequest{}, "65536 fields"},
		{"a field that is cut", []byte{0x0a, 0x05, 0x00}, &externalgrpc.NodeGroupDeleteNodesRequest{}, "EOF"},
		{"a tag that is cut", []byte{0x80}, &externalgrpc.NodeGroupDeleteNodesRequest{}, "EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := decodeRequest(tc.raw, tc.into)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if size := proto.Size(tc.into); size != 0 {
				t.Errorf("%d bytes were decoded", size)
			}
		})
	}
}

// TestAScanAllocatesNothing: what is refused takes no more than its bytes.
func TestAScanAllocatesNothing(t *testing.T) {
	raw := manyNodes(groups.MostNodes, 500)
	of := (&externalgrpc.NodeGroupDeleteNodesRequest{}).ProtoReflect().Descriptor()
	if n := testing.AllocsPerRun(3, func() {
		fields := maxFields
		if err := scan(raw, of, &fields); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%f allocations", n)
	}
}
