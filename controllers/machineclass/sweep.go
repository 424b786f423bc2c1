package machineclass

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// sweepGather is how long slots that are opened are collected for one sweep.
	sweepGather = time.Second
	// sweepPause is the least time between two sweeps, each of which lists the names of all Secrets.
	sweepPause = time.Minute
	// sweepEvery is how long a Secret may wait of which no event has told that no class names it any more.
	sweepEvery = time.Hour
)

// Opened has the Secrets looked at that carry our finalizer, soon: while the slots that have come here were elsewhere, or
// nowhere, a class may have stopped to name one of theirs. It returns at once.
func (c *Controller) Opened() {
	select {
	case c.opened <- struct{}{}:
	default:
	}
}

// runSweeps sweeps when slots were opened, and from time to time, until ctx ends.
func (c *Controller) runSweeps(ctx context.Context) {
	var last time.Time
	for {
		c.wait(ctx, sweepEvery, c.opened)
		c.wait(ctx, max(sweepGather, sweepPause-c.cfg.Clock.Since(last)), nil)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-c.opened: // this sweep is for them too
		default:
		}
		last = c.cfg.Clock.Now()
		if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Secrets that no class names may keep our finalizer for a while")
			c.Opened()
		}
	}
}

// wait waits for a time, for news, or for the end of ctx.
func (c *Controller) wait(ctx context.Context, d time.Duration, news <-chan struct{}) {
	timer := c.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-news:
	case <-timer.C():
	}
}

// sweep has every Secret looked at that carries our finalizer; the gate lets those in whose slot is held.
func (c *Controller) sweep(ctx context.Context) error {
	secrets := c.cfg.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(c.cfg.Namespace)
	options := metav1.ListOptions{Limit: 500}
	for {
		list, err := secrets.List(ctx, options)
		if err != nil {
			return fmt.Errorf("look for Secrets that no class names any more: %w", err)
		}
		for i := range list.Items {
			if slices.Contains(list.Items[i].Finalizers, v1alpha1.SecretFinalizerName) {
				c.secrets.Enqueue(types.NamespacedName{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}
