package handback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// longestTarget is how long the target cluster of a namespace may take: its API server may not
// answer.
const longestTarget = 2 * time.Minute

// nodesOf returns the Nodes of a target cluster: those of machines of a namespace, or with "" those
// that have the label of a slot.
func nodesOf(cluster metadata.Interface, namespace string) objects {
	nodes := cluster.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	if namespace == "" {
		return objects{list: nodes, write: nodes, isNode: true, selector: v1alpha1.LabelSlot}
	}
	return objects{list: nodes, write: nodes, isNode: true, isOurs: func(node metav1.Object) bool {
		ref, bound := v1alpha1.MachineOf(node)
		return bound && ref.Namespace == namespace // other namespaces may have the same cluster
	}}
}

// namespacesOf returns the namespaces to leave whose own target clusters may have Nodes of
// machines.
func namespacesOf(ctx context.Context, cfg Config) ([]string, error) {
	if cfg.OpenTarget == nil {
		return nil, nil
	}
	if cfg.Namespace != "" {
		return []string{cfg.Namespace}, nil
	}
	found := map[string]bool{}
	machines := cfg.Metadata.Resource(v1alpha1.SchemeGroupVersion.WithResource("machines"))
	err := decode.EachObject(ctx, "Machines", metav1.ListOptions{Limit: page}, machines.List, func(m *metav1.PartialObjectMetadata) {
		found[m.Namespace] = true
	})
	return slices.Sorted(maps.Keys(found)), err
}

// cleanTargets cleans the Nodes of the target clusters of namespaces, and returns their number.
// Errors: those of the clusters, of which one keeps no other from being cleaned.
func cleanTargets(ctx context.Context, cfg Config, namespaces []string) (cleaned int, err error) {
	var mu sync.Mutex
	var errs []error
	var running sync.WaitGroup
	turns := make(chan struct{}, parallel)
	for _, namespace := range namespaces {
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			n, err := cleanTarget(ctx, cfg, namespace)
			mu.Lock()
			defer mu.Unlock()
			cleaned += n
			if err != nil {
				errs = append(errs, fmt.Errorf("the Nodes of namespace %s keep annotations of the fleet, which have no effect: %w", namespace, err))
			}
		})
	}
	running.Wait()
	return cleaned, errors.Join(errs...)
}

// cleanTarget cleans the Nodes of the target cluster of a namespace.
func cleanTarget(ctx context.Context, cfg Config, namespace string) (cleaned int, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestTarget)
	defer cancel()
	cluster, release, err := cfg.OpenTarget(ctx, namespace)
	if err != nil {
		return 0, err
	}
	defer release()
	return clean(ctx, nodesOf(cluster, namespace))
}
