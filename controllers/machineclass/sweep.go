package machineclass

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

const (
	// sweepGather is how long opened slots are collected for one sweep.
	sweepGather = time.Second
	// sweepPause is the minimum time between two sweeps, each of which lists the names of all Secrets.
	// Namespaces whose Secrets could not be listed are swept again after it, and then after twice the
	// time: the cause may last, such as a right that is missing.
	sweepPause = time.Minute
	// sweepEvery is how long the release of a Secret may be delayed if no event has reported that no
	// class names it any more.
	sweepEvery = time.Hour
)

// Opened enqueues the Secrets that carry our finalizer, soon: while the opened slots had another
// holder, or none, a class may have ceased to name one of their Secrets. It returns at once.
func (c *Controller) Opened() {
	select {
	case c.opened <- struct{}{}:
	default:
	}
}

// runSweeps sweeps after slots were opened, and periodically, until ctx ends.
func (c *Controller) runSweeps(ctx context.Context) {
	var last, lastOfAll time.Time
	var failed []string
	next := sweepEvery
	for {
		opened := c.wait(ctx, next, c.opened)
		c.wait(ctx, max(sweepGather, sweepPause-c.cfg.Clock.Since(last)), nil)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-c.opened: // this sweep covers them, too
			opened = true
		default:
		}
		last = c.cfg.Clock.Now()
		namespaces := failed
		if opened || len(failed) == 0 || last.Sub(lastOfAll) >= sweepEvery {
			namespaces, lastOfAll = c.served(), last
		}
		var err error
		if failed, err = c.sweep(ctx, namespaces); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to sweep Secrets that no class names; retrying")
		}
		switch {
		case len(failed) == 0:
			next = sweepEvery
		case opened || next == sweepEvery:
			next = sweepPause
		default:
			next = min(2*next, sweepEvery)
		}
	}
}

// wait waits for a time, for a signal, which it reports, or for the end of ctx.
func (c *Controller) wait(ctx context.Context, d time.Duration, news <-chan struct{}) bool {
	timer := c.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-news:
		return true
	case <-timer.C():
	}
	return false
}

// served returns the namespaces to sweep; "" stands for all.
func (c *Controller) served() []string {
	if c.cfg.Namespaces != nil {
		return c.cfg.Namespaces()
	}
	return []string{c.cfg.Namespace}
}

// sweep enqueues every Secret of namespaces that carries our finalizer; the gate admits those whose
// slot is held. It returns the namespaces whose Secrets could not be listed. Errors: why.
func (c *Controller) sweep(ctx context.Context, namespaces []string) (failed []string, err error) {
	var errs []error
	for _, namespace := range namespaces {
		secrets := c.cfg.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace)
		err := decode.EachObject(ctx, "Secrets with our finalizer", metav1.ListOptions{}, secrets.List,
			func(found *metav1.PartialObjectMetadata) {
				if slices.Contains(found.Finalizers, v1alpha1.SecretFinalizerName) {
					c.secrets.Enqueue(types.NamespacedName{Namespace: found.Namespace, Name: found.Name})
				}
			})
		if err != nil {
			failed, errs = append(failed, namespace), append(errs, err)
		}
	}
	return failed, errors.Join(errs...)
}
