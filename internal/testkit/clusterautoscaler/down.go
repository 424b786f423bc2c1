package clusterautoscaler

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
)

// keptNode is the annotation of a Node that must not be deleted.
const keptNode = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

// deleteLate deletes instances that have not registered in time, down to the minimum of their
// group. Upstream tries the rest in the next loop.
func (a *Autoscaler) deleteLate(ctx context.Context, groups []*group) {
	for _, g := range groups {
		most := max(min(len(g.late), int(g.size-g.GetMinSize())), 0)
		if most == 0 {
			continue
		}
		if err := a.deleteNodes(ctx, g, invented(g.late[:most])); err != nil {
			return
		}
	}
}

// deleteFailed deletes the instances that have errors, regardless of the minimum of their group.
func (a *Autoscaler) deleteFailed(ctx context.Context, groups []*group) {
	for _, g := range groups {
		var failed []string
		for _, instance := range g.instances {
			if hasFailed(instance) {
				failed = append(failed, instance.GetId())
			}
		}
		if len(failed) > 0 {
			_ = a.deleteNodes(ctx, g, invented(failed)) // upstream logs it, and tries again in the next loop
		}
	}
}

// invented returns the Nodes that stand for instances.
func invented(ids []string) (nodes []*externalgrpc.ExternalGrpcNode) {
	for _, id := range ids {
		nodes = append(nodes, &externalgrpc.ExternalGrpcNode{Name: id, ProviderID: id})
	}
	return nodes
}

// scaleDown deletes Nodes that were without pods for long enough.
func (a *Autoscaler) scaleDown(ctx context.Context, groups []*group, used map[string]bool) error {
	now, budget := a.Now(), mostDeletions
	unneeded := a.unneeded
	a.unneeded = map[string]time.Time{}
	for _, g := range groups {
		for _, node := range g.nodes {
			if used[node.Name] || a.deleting[node.Name] || node.Annotations[keptNode] == "true" {
				continue
			}
			a.unneeded[node.Name] = now
			if since, known := unneeded[node.Name]; known {
				a.unneeded[node.Name] = since
			}
		}
	}
	if now.Before(a.grown.Add(a.AfterAdd)) || now.Before(a.refused.Add(a.AfterFailure)) {
		return nil
	}
	for _, g := range groups {
		if err := a.shrink(ctx, g, &budget); err != nil {
			return err
		}
	}
	return nil
}

// shrink deletes Nodes of a group.
func (a *Autoscaler) shrink(ctx context.Context, g *group, budget *int) error {
	id, wait := g.GetId(), a.Unneeded
	options, err := send(ctx, a, "NodeGroupGetOptions", id, a.Fleet.NodeGroupGetOptions, &externalgrpc.NodeGroupAutoscalingOptionsRequest{
		Id: id, Defaults: &externalgrpc.NodeGroupAutoscalingOptions{ScaleDownUnneededDuration: durationpb.New(wait)},
	})
	switch {
	case err == nil:
		wait = options.GetNodeGroupAutoscalingOptions().GetScaleDownUnneededDuration().AsDuration()
	case status.Code(err) != codes.Unimplemented:
		return err
	}
	var nodes []*externalgrpc.ExternalGrpcNode
	for _, node := range g.nodes {
		since, unneeded := a.unneeded[node.Name]
		if unneeded && a.Now().Sub(since) >= wait && len(nodes) < min(*budget, int(g.size-g.GetMinSize())) {
			nodes = append(nodes, described(node))
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	*budget -= len(nodes)
	for _, node := range nodes {
		a.Cluster.Taint(node.GetName(), true)
		a.deleting[node.GetName()] = true
	}
	if err := a.deleteNodes(ctx, g, nodes); err != nil {
		a.refused = a.Now()
		for _, node := range nodes {
			a.Cluster.Taint(node.GetName(), false)
			delete(a.deleting, node.GetName())
		}
	}
	return nil
}
