package replica

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// controlClusterTimeout bounds one read of the Namespace.
	controlClusterTimeout = 10 * time.Second
	// A read that has failed is repeated soon, since VMs that are created meanwhile are never
	// swept, and then after twice as long each time, up to controlClusterRetry: access that is
	// granted later needs no restart.
	firstControlClusterRetry = time.Second
	controlClusterRetry      = 30 * time.Second
)

// controlCluster reads the ID of the control cluster: the UID of its Namespace kube-system, which
// is as old as the cluster and never deleted. VMs carry it as a tag, so that the sweeps of two
// fleets in one account do not confuse their VMs.
type controlCluster struct {
	namespaces corev1client.NamespaceInterface
	clock      clock.Clock
	id         atomic.Pointer[string]
}

// ID returns the ID; "" while it is not known.
func (c *controlCluster) ID() string {
	if id := c.id.Load(); id != nil {
		return *id
	}
	return ""
}

// Run reads the ID until it is known, or ctx ends. A replica works without it; only what is created
// meanwhile is never swept.
func (c *controlCluster) Run(ctx context.Context) {
	reported := false
	for retry := firstControlClusterRetry; ; retry = min(2*retry, controlClusterRetry) {
		id, err := c.read(ctx)
		if err == nil {
			c.id.Store(&id)
			klog.FromContext(ctx).Info("Identified the control cluster", "namespace", metav1.NamespaceSystem, "uid", id)
			return
		}
		if ctx.Err() == nil && !reported {
			reported = true
			klog.FromContext(ctx).Error(err,
				"Failed to identify the control cluster; retrying. No orphaned VM is deleted until then, and VMs that are created until then never are",
				"namespace", metav1.NamespaceSystem, "retryEvery", controlClusterRetry)
		}
		timer := c.clock.NewTimer(retry)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (c *controlCluster) read(ctx context.Context) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, controlClusterTimeout)
	defer cancel()
	namespace, err := c.namespaces.Get(bounded, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read Namespace %s (the chart grants the right to get it): %w", metav1.NamespaceSystem, err)
	}
	if namespace.UID == "" {
		return "", fmt.Errorf("read Namespace %s: expected a UID, got none", metav1.NamespaceSystem)
	}
	return string(namespace.UID), nil
}
