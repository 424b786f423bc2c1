package clusterautoscaler

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/autoscaler/externalgrpc"
)

// noteFailures ends scale-ups that have succeeded, and does not scale groups up in which one has
// failed, or instances have new errors.
func (a *Autoscaler) noteFailures(groups []*group) {
	for _, g := range groups {
		id := g.GetId()
		if r, waits := a.requests[id]; waits {
			switch {
			case g.upcoming(a.deleting) == 0:
				delete(a.requests, id)
			case a.Now().Sub(r.at) > a.Provision:
				a.backOff(id)
			}
		}
		fails := false
		for _, instance := range g.instances {
			if hasFailed(instance) && !a.failed[instance.GetId()] {
				a.failed[instance.GetId()], fails = true, true
			}
		}
		if fails {
			a.backOff(id)
		}
	}
}

func hasFailed(instance *externalgrpc.Instance) bool {
	return instance.GetStatus().GetInstanceState() == externalgrpc.InstanceStatus_instanceCreating &&
		instance.GetStatus().GetErrorInfo().GetErrorCode() != ""
}

// fixSizes lowers sizes that were larger than the number of Nodes for long.
func (a *Autoscaler) fixSizes(ctx context.Context, groups []*group) (fixed bool, err error) {
	for _, g := range groups {
		id, nodes := g.GetId(), int32(len(g.nodes))
		if nodes <= g.size && nodes >= g.size-int32(len(g.late))-a.requests[id].increase {
			delete(a.mismatches, id)
			continue
		}
		last := a.mismatches[id]
		if last.since.IsZero() || last.nodes != nodes || last.size != g.size {
			a.mismatches[id] = mismatch{nodes, g.size, a.Now()}
			continue
		}
		if delta := nodes - g.size; delta < 0 && a.Now().Sub(last.since) > a.Provision {
			_, err := send(ctx, a, "NodeGroupDecreaseTargetSize", id, a.Fleet.NodeGroupDecreaseTargetSize,
				&externalgrpc.NodeGroupDecreaseTargetSizeRequest{Id: id, Delta: delta})
			if err != nil {
				return fixed, err
			}
			fixed = true
		}
	}
	return fixed, nil
}

// scaleUp increases the size of a group for pods that no Node is there for, or upcoming. used are
// the Nodes that pods will be bound to.
func (a *Autoscaler) scaleUp(ctx context.Context, groups []*group) (used map[string]bool, grown bool, err error) {
	used, left := a.place(groups)
	var best *group
	var helped int32
	for _, g := range groups {
		if a.IsBackedOff(g.GetId()) || g.template == nil || g.size >= g.GetMaxSize() {
			continue
		}
		n := int32(0)
		for _, pod := range left {
			if pod.Fits(g.template) {
				n++
			}
		}
		if n > helped {
			best, helped = g, n
		}
	}
	if best == nil {
		return used, false, nil
	}
	id := best.GetId()
	size, err := send(ctx, a, "NodeGroupTargetSize", id, a.Fleet.NodeGroupTargetSize, &externalgrpc.NodeGroupTargetSizeRequest{Id: id})
	if err != nil {
		return used, false, err
	}
	delta := min(helped, best.GetMaxSize()-size.GetTargetSize())
	if delta <= 0 {
		return used, false, nil
	}
	_, err = send(ctx, a, "NodeGroupIncreaseSize", id, a.Fleet.NodeGroupIncreaseSize,
		&externalgrpc.NodeGroupIncreaseSizeRequest{Id: id, Delta: delta})
	delete(a.cached, id)
	if err != nil {
		a.backOff(id)
		return used, false, err
	}
	a.requests[id] = request{a.requests[id].increase + delta, a.Now()}
	a.grown = a.Now()
	return used, true, nil
}

// place returns the Nodes that pending pods will be bound to, and the pods for which none is there,
// or upcoming.
func (a *Autoscaler) place(groups []*group) (used map[string]bool, left []Pod) {
	pods, places := a.Cluster.Pods(), a.Cluster.Nodes()
	used = map[string]bool{}
	for _, pod := range pods {
		used[pod.Node] = pod.Node != ""
	}
	var taken []bool
	for _, node := range places {
		taken = append(taken, used[node.Name] || a.deleting[node.Name] || !isReady(node))
	}
	for _, g := range groups {
		for range g.upcoming(a.deleting) {
			if g.template != nil {
				places, taken = append(places, &corev1.Node{ObjectMeta: g.template.ObjectMeta}), append(taken, false)
				places[len(places)-1].Name = ""
			}
		}
	}
	for _, pod := range pods {
		if pod.Node != "" {
			continue
		}
		found := false
		for i, node := range places {
			if found = !taken[i] && pod.Fits(node); found {
				taken[i], used[node.Name] = true, true
				break
			}
		}
		if !found {
			left = append(left, pod)
		}
	}
	return used, left
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
