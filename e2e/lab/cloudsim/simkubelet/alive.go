package simkubelet

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
)

// leaseDuration is the duration that kubelets write by default.
const leaseDuration = 40 * time.Second

// keepAlive renews the VM's Lease, reports its Node's status, updates it in place and configures
// it, each when it is due.
func (h *Host) keepAlive(ctx context.Context, v *vm, health guest.Health) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	now := h.cfg.Clock.Now()
	if v.renewAt.IsZero() { // It had joined before this process started.
		v.renewAt = now.Add(spread(v.ID, resumeWithin))
		v.reportAt = now.Add(spread(v.ID, reportInterval))
	}
	shown, isUpdated, again := h.updateInPlace(v, v.rebooting(health, now), now)
	err := h.report(ctx, v, shown, now)
	if err == nil && isUpdated {
		err = h.reportUpdate(ctx, v)
	}
	components, config := guest.Never, guest.Never
	if err == nil {
		components, err = h.startComponents(ctx, v, shown, now)
	}
	if err == nil {
		config, err = h.configure(ctx, v, now)
	}
	if err != nil {
		if ctx.Err() == nil {
			h.cfg.Log.Warn("Simulated kubelet failed to report; trying again", "node", v.Name, "err", err)
		}
		return firstRetry
	}
	if v, _ := h.working(v.ID, true); v == nil {
		return guest.Never
	}
	next := max(0, min(v.renewAt.Sub(now), v.reportAt.Sub(now)))
	for _, wait := range []time.Duration{again, components, config} {
		if wait != guest.Never {
			next = min(next, wait)
		}
	}
	return next
}

// report sends the reports that are due.
func (h *Host) report(ctx context.Context, v *vm, health guest.Health, now time.Time) error {
	if known, err := h.findNode(ctx, v); err != nil || !known {
		return err
	}
	if !v.renewAt.After(now) {
		if err := h.renewLease(ctx, v, now); err != nil {
			return err
		}
		v.renewAt = now.Add(leaseInterval)
	}
	differs := h.differs(v, health)
	if differs || !v.reportAt.After(now) {
		var changed time.Time
		if differs {
			changed = now
		}
		if err := h.reportStatus(ctx, v, conditions(health, now, changed)); err != nil {
			return err
		}
		v.reportAt = now.Add(reportInterval)
	}
	return nil
}

// findNode finds the Node that the VM reports for. It returns false when it no longer exists.
func (h *Host) findNode(ctx context.Context, v *vm) (bool, error) {
	h.mu.Lock()
	uid := v.nodeUID
	h.mu.Unlock()
	if uid != "" {
		return true, nil
	}
	if node := h.seen(v); node != nil {
		h.setNode(v, node)
		return true, nil
	}
	// A Node that the watch has not shown may exist.
	node, err := h.cfg.Client.CoreV1().Nodes().Get(ctx, v.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		h.lostNode(v)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for Node %s: %w", v.Name, err)
	}
	h.setNode(v, node)
	return true, nil
}

// seen returns the VM's Node from the watch, trimmed, or nil.
func (h *Host) seen(v *vm) *corev1.Node {
	obj, exists, err := h.nodes.GetStore().GetByKey(v.Name)
	if err != nil || !exists {
		return nil
	}
	node, _ := obj.(*corev1.Node)
	return node
}

// differs reports whether the API server shows another readiness than the VM has: another client
// wrote it, as the node lifecycle controller does without reports.
func (h *Host) differs(v *vm, health guest.Health) bool {
	node := h.seen(v)
	return node != nil && ready(node) != readiness(health)
}

func (h *Host) reportStatus(ctx context.Context, v *vm, all []corev1.NodeCondition) error {
	patches := make([]map[string]any, len(all))
	for i, c := range all {
		patches[i] = map[string]any{
			"type": c.Type, "status": c.Status, "reason": c.Reason, "message": c.Message, "lastHeartbeatTime": c.LastHeartbeatTime,
		}
		if !c.LastTransitionTime.IsZero() {
			patches[i]["lastTransitionTime"] = c.LastTransitionTime
		}
	}
	patch, err := statusPatch(map[string]any{"conditions": patches})
	if err != nil {
		return err
	}
	_, err = h.cfg.Client.CoreV1().Nodes().Patch(ctx, v.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		h.lostNode(v)
		return nil
	}
	if err != nil {
		return fmt.Errorf("report the status of Node %s: %w", v.Name, err)
	}
	return nil
}

// createLease creates the VM's Lease. One that exists already is renewed.
func (h *Host) createLease(ctx context.Context, v *vm) error {
	now := h.cfg.Clock.Now()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: v.Name, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: v.Name, UID: v.nodeUID}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(v.Name),
			LeaseDurationSeconds: new(int32(leaseDuration.Seconds())),
			RenewTime:            new(metav1.NewMicroTime(now)),
		},
	}
	created, err := h.cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return h.renewLease(ctx, v, now)
	}
	if err != nil {
		return fmt.Errorf("create the Lease of Node %s: %w", v.Name, err)
	}
	v.lease = trimLease(created)
	return nil
}

// renewLease renews the VM's Lease by one write: the last answer has the resourceVersion for the
// next write.
func (h *Host) renewLease(ctx context.Context, v *vm, now time.Time) error {
	leases := h.cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	for range 3 {
		if v.lease == nil {
			lease, err := leases.Get(ctx, v.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return h.recreateLease(ctx, v)
			}
			if err != nil {
				return fmt.Errorf("read the Lease of Node %s: %w", v.Name, err)
			}
			v.lease = trimLease(lease)
		}
		v.lease.Spec.RenewTime = new(metav1.NewMicroTime(now))
		lease, err := leases.Update(ctx, v.lease, metav1.UpdateOptions{})
		if err == nil {
			v.lease = trimLease(lease)
			return nil
		}
		v.lease = nil
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("renew the Lease of Node %s: %w", v.Name, err)
		}
	}
	return fmt.Errorf("renew the Lease of Node %s: another client writes it all the time", v.Name)
}

// recreateLease creates a Lease again that another client deleted, unless its Node was deleted,
// too.
func (h *Host) recreateLease(ctx context.Context, v *vm) error {
	node, err := h.cfg.Client.CoreV1().Nodes().Get(ctx, v.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && node.UID != v.nodeUID:
		h.lostNode(v)
		return nil
	case err != nil:
		return fmt.Errorf("look for Node %s: %w", v.Name, err)
	}
	return h.createLease(ctx, v)
}

// trimLease keeps the needed fields of an answer: there are thousands.
func trimLease(lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease.ManagedFields = nil
	return lease
}
