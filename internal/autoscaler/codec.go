package autoscaler

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/groups"
)

const (
	// maxRequest is how many bytes a request has at most. One that names Nodes has their labels and
	// annotations, too: groups.MostNodes of them may have 1 kB each.
	maxRequest = 1 << 20
	// maxFields is how many fields a request has at most, those of nested messages included. A label
	// is three of them. They bound the memory of a request: an empty message of two bytes takes a
	// hundred when it is decoded.
	maxFields = 64 << 10
	// decodesAtOnce is how many requests are decoded at a time, of all clients.
	decodesAtOnce = 4
)

// codec decodes requests within bounds.
type codec struct {
	encoding.CodecV2

	free chan struct{}
}

func newCodec() codec {
	return codec{encoding.GetCodecV2(grpcproto.Name), make(chan struct{}, decodesAtOnce)}
}

// Unmarshal decodes a request. Errors: it has too many Nodes or fields, or is no message.
// A client receives all of them with the code Internal, which gRPC gives to them.
func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	message, ok := into.(proto.Message)
	if !ok {
		return fmt.Errorf("expected a message to decode into, got a %T; this is a defect of the fleet", into)
	}
	c.free <- struct{}{}
	defer func() { <-c.free }()
	raw := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer raw.Free()
	fields := maxFields
	if err := scan(raw.ReadOnlyData(), message.ProtoReflect().Descriptor(), &fields); err != nil {
		return err
	}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw.ReadOnlyData(), message); err != nil {
		return fmt.Errorf("expected a %s: %w", message.ProtoReflect().Descriptor().FullName(), err)
	}
	switch request := message.(type) {
	case *externalgrpc.NodeGroupDeleteNodesRequest:
		for _, node := range request.GetNodes() {
			shrink(node)
		}
	case *externalgrpc.NodeGroupForNodeRequest:
		shrink(request.GetNode())
	}
	return nil
}

// scan checks the bounds of an encoded message, and allocates nothing. It subtracts the number of
// its fields. The messages of the protocol do not contain themselves, so its depth is bounded.
func scan(data []byte, of protoreflect.MessageDescriptor, fields *int) error {
	elements := 0
	for len(data) > 0 {
		if *fields--; *fields < 0 {
			return fmt.Errorf("expected at most %d fields, labels and annotations of Nodes included, got more; send several calls", maxFields)
		}
		number, kind, n := protowire.ConsumeField(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		value := data[:n]
		data = data[n:]
		field := of.Fields().ByNumber(number)
		if kind != protowire.BytesType || field == nil || field.Message() == nil {
			continue
		}
		if field.IsList() {
			if elements++; elements > groups.MostNodes {
				return fmt.Errorf("expected at most %d Nodes in a call, got more; send several calls", groups.MostNodes)
			}
		}
		_, _, n = protowire.ConsumeTag(value)
		nested, _ := protowire.ConsumeBytes(value[n:])
		if err := scan(nested, field.Message(), fields); err != nil {
			return err
		}
	}
	return nil
}

// shrink removes what no answer depends on: a call may wait.
func shrink(node *externalgrpc.ExternalGrpcNode) {
	if node == nil {
		return
	}
	bound, ok := node.GetAnnotations()[v1alpha1.AnnotationMachine]
	if node.Labels, node.Annotations = nil, nil; ok {
		node.Annotations = map[string]string{v1alpha1.AnnotationMachine: bound}
	}
}
