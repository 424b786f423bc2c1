package simkubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
)

const (
	// firstRetry, doubled up to lastRetry, is the time between attempts to join, until retryFor.
	firstRetry = time.Second
	lastRetry  = 10 * time.Second
	retryFor   = 15 * time.Minute
)

// join makes the VM a Node, or writes to its console why it has not joined yet.
func (h *Host) join(ctx context.Context, v *vm, health guest.Health) time.Duration {
	now := h.cfg.Clock.Now()
	if v.since.IsZero() {
		v.since = now
	}
	if v.BootstrapToken == "" && !v.Resumed {
		h.cloud.Console(v.ID, "no bootstrap token in the user data: it will never join")
		return guest.Never
	}
	line, err := h.tryJoin(ctx, v, health)
	if err == nil {
		v.renewAt = now.Add(spread(v.ID, leaseInterval))
		v.reportAt = now.Add(spread(v.ID, reportInterval))
		h.hasJoined(v, line)
		return guest.Never
	}
	if ctx.Err() != nil {
		return guest.Never
	}
	if now.Sub(v.since) > retryFor {
		h.cloud.Console(v.ID, "stopped trying to join")
		return guest.Never
	}
	if message := err.Error(); message != v.lastFailure {
		v.lastFailure = message
		h.cloud.Console(v.ID, message)
	}
	v.attempts++
	return min(lastRetry, firstRetry<<min(v.attempts-1, 10))
}

// tryJoin makes one attempt, and returns the line about its success.
func (h *Host) tryJoin(ctx context.Context, v *vm, health guest.Health) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if v.Resumed {
		// The cloud may have been killed after the Node was created. A second proof would fail: the token
		// has been deleted.
		node, err := h.cfg.Client.CoreV1().Nodes().Get(ctx, v.Name, metav1.GetOptions{})
		switch {
		case err == nil && node.Spec.ProviderID == v.ProviderID:
			h.setNode(v, node)
			return "continues as Node " + v.Name, h.createLease(ctx, v)
		case err != nil && !apierrors.IsNotFound(err):
			return "", fmt.Errorf("look for Node %s: %w", v.Name, err)
		}
		v.Resumed = false
	}
	if !v.proved {
		if err := h.cfg.Prove(ctx, v.BootstrapToken); err != nil {
			return "", fmt.Errorf("the bootstrap token is not valid: %w", err)
		}
		v.proved = true
	}
	line, err := h.register(ctx, v, health)
	if err != nil {
		return "", err
	}
	return line, h.createLease(ctx, v)
}

// register creates the VM's Node, or takes over the one of that name.
func (h *Host) register(ctx context.Context, v *vm, health guest.Health) (string, error) {
	version, err := h.serverVersion()
	if err != nil {
		return "", err
	}
	nodes := h.cfg.Client.CoreV1().Nodes()
	wanted := newNode(v.VM, health, version, h.cfg.Clock.Now())
	node, err := nodes.Create(ctx, wanted, metav1.CreateOptions{})
	if err == nil {
		h.setNode(v, node)
		return "joined as Node " + v.Name, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("register Node %s: %w", v.Name, err)
	}
	if node, err = nodes.Get(ctx, v.Name, metav1.GetOptions{}); err != nil {
		return "", fmt.Errorf("look at the Node %s that exists already: %w", v.Name, err)
	}
	return h.takeOver(ctx, v, wanted, node)
}

// takeOver does what a kubelet does with a Node that exists already: it updates the well-known
// labels and the status, and leaves the rest, including the provider ID, unchanged.
func (h *Host) takeOver(ctx context.Context, v *vm, wanted, node *corev1.Node) (string, error) {
	nodes := h.cfg.Client.CoreV1().Nodes()
	patch, err := labelPatch(wanted)
	if err != nil {
		return "", err
	}
	if _, err = nodes.Patch(ctx, v.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return "", fmt.Errorf("update the labels of Node %s: %w", v.Name, err)
	}
	if patch, err = statusPatch(wanted.Status); err != nil {
		return "", err
	}
	if _, err = nodes.Patch(ctx, v.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return "", fmt.Errorf("update the status of Node %s: %w", v.Name, err)
	}
	h.setNode(v, node)
	if node.Spec.ProviderID != v.ProviderID {
		return fmt.Sprintf("joined as Node %s, which exists already with provider ID %q: it keeps that", v.Name, node.Spec.ProviderID), nil
	}
	return "joined as Node " + v.Name + ", which exists already", nil
}
