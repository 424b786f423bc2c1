package replica

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

const (
	bootTime = 8 * time.Second // of a VM, until it is a Node
	stopTime = 2 * time.Second // of a VM, from its deletion to its end
)

// toCloud is the way of a call of the process to the cloud.
func (p *process) toCloud(ctx context.Context, call fakecloud.Call, send func() error) error {
	if call.Op == driver.OpScope {
		return send()
	}
	q := request{replica: p.replica, place: atCloud, kind: gets, method: string(call.Op)}
	if call.Machine != nil {
		q.path = call.Machine.Namespace + "/" + call.Machine.Name
	}
	if call.Op == driver.OpCreate || call.Op == driver.OpDelete || call.Op == driver.OpInitialize {
		p.called(ctx, p, call.Op, call.Target)
		q.kind = writes
	}
	if call.Op == driver.OpSweep {
		p.oracle.swept(call.Resource)
		q.kind = writes
	}
	unanswered := func(err error) error {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return &driver.Error{Code: driver.DeadlineExceeded, Op: call.Op, Err: err}
		}
		return &driver.Error{Code: driver.Unavailable, Op: call.Op, Err: err}
	}
	p.awaitRunning()
	defer p.awaitRunning()
	if err := p.network.travel(ctx, p.dead, q, there); err != nil {
		return unanswered(err)
	}
	failure := send()
	if p.network.loses(q) {
		return unanswered(errBroken)
	}
	if err := p.network.travel(ctx, p.dead, q, back); err != nil {
		return unanswered(err)
	}
	return failure
}

// boot makes VMs join as Nodes when their boot time is over.
func (t *trial) boot() {
	t.cloud.Change(func(all []*fakecloud.Resource) {
		for _, v := range all {
			if !v.Joined && v.Live() && !time.Now().Before(v.Boots) {
				v.Joined = t.join(t.targetOf(v.Namespace), v.ID, v.NodeName)
			}
		}
	})
}

// deleteLeftNodes deletes the Nodes of VMs that have ended and belonged to no Machine, as a cloud
// controller manager does: the sweep of orphans does not. Until then no other VM can join by their
// name.
func (t *trial) deleteLeftNodes() {
	t.cloud.Change(func(all []*fakecloud.Resource) {
		for _, v := range all {
			if v.Live() {
				continue
			}
			node, stored := t.target.Get("nodes", "", v.NodeName), t.control.Get("machines", v.Namespace, v.Machine)
			if node != nil && providerIDOf(node) == v.ID && (stored == nil || stored.GetUID() != v.MachineUID) {
				t.target.Delete("nodes", "", v.NodeName)
			}
		}
	})
}

// targetOf returns the target cluster of a namespace.
func (t *trial) targetOf(namespace string) *apiserver.Server {
	if own := t.ownTargets[namespace]; own != nil {
		return own
	}
	return t.target
}

// join creates a Node, unless one was restored: the kubelet uses the Node of its name. It reports
// whether that is the Node of this VM.
func (t *trial) join(cluster *apiserver.Server, providerID, name string) (isOwn bool) {
	if stored := cluster.Get("nodes", "", name); stored != nil {
		return providerIDOf(stored) == providerID
	}
	at := time.Now().UTC().Format(time.RFC3339)
	condition := func(kind, status string) any {
		return map[string]any{"type": kind, "status": status, "lastHeartbeatTime": at, "lastTransitionTime": at}
	}
	t.put(cluster, "nodes", map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}, "spec": map[string]any{"providerID": providerID},
		"status": map[string]any{"conditions": []any{
			condition("Ready", "True"), condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False"),
		}},
	})
	return true
}

// providerIDOf returns the provider ID of a Node or a Machine.
func providerIDOf(obj *apiserver.Object) string {
	id, _, _ := unstructured.NestedString(obj.Object, "spec", "providerID")
	return id
}
