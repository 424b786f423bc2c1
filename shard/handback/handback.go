package handback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

const (
	// page is the number of objects in one page of a list, and parallel the number of concurrent
	// writes.
	page, parallel = 1000, 32
	// rounds is the number of attempts for objects that have changed meanwhile.
	rounds = 5
)

// Config is the configuration of Leave. All fields but Namespace and Target are required.
type Config struct {
	// Client and Metadata are connections to the control cluster, Target to the target cluster; nil if
	// there is none.
	Client           kubernetes.Interface
	Metadata, Target metadata.Interface
	// Fleet is the fleet's name, FleetNamespace where its Leases are, and Identity its holderIdentity
	// on the Leases of Machine Controller Manager.
	Fleet, FleetNamespace, Identity string
	// Namespace is the only namespace to leave; "" means all.
	Namespace string
	Clock     clock.Clock
	// OnWait is called with the time that Leave waits for sessions that may live.
	OnWait func(time.Duration)
}

// Report is the result of Leave.
type Report struct {
	// Objects is the number of objects with labels or annotations of the fleet, and Leases that of
	// released Leases.
	Objects, Leases int
}

// LivingError reports that the fleet has not been stopped.
type LivingError struct {
	// Sessions that live, by the names of their Leases.
	Sessions []string
}

// Error returns the sessions and what to do.
func (e *LivingError) Error() string {
	return fmt.Sprintf(
		"expected the fleet to be stopped, but these sessions renew their Leases: %s; scale the fleet to 0 replicas and try again",
		strings.Join(e.Sessions, ", "),
	)
}

// Validate returns an error that names the fields that are missing.
func (c Config) Validate() error { return required.Fields(c, "Namespace", "Target") }

// Leave gives the machines back. Errors: fields that are missing, *LivingError while a session
// lives, and those of the API servers.
func Leave(ctx context.Context, cfg Config) (report Report, err error) {
	if err := cfg.Validate(); err != nil {
		return report, err
	}
	if err := endSessions(ctx, cfg); err != nil {
		return report, err
	}
	kinds := []schema.GroupVersionResource{
		v1alpha1.SchemeGroupVersion.WithResource("machinedeployments"),
		v1alpha1.SchemeGroupVersion.WithResource("machinesets"),
		v1alpha1.SchemeGroupVersion.WithResource("machines"),
		v1alpha1.SchemeGroupVersion.WithResource("machineclasses"),
	}
	for _, kind := range kinds {
		n, err := clean(ctx, cfg.Metadata.Resource(kind).Namespace(cfg.Namespace), cfg.Metadata.Resource(kind), false)
		if report.Objects += n; err != nil {
			return report, fmt.Errorf("remove the fleet's labels and annotations from %s: %w", kind.Resource, err)
		}
	}
	if cfg.Namespace == "" && cfg.Target != nil { // a Node has no reference to the namespace of its machine
		nodes := cfg.Target.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
		n, err := clean(ctx, nodes, nodes, true)
		if report.Objects += n; err != nil {
			return report, fmt.Errorf("remove the fleet's label from nodes: %w", err)
		}
	}
	report.Leases, err = releaseLeases(ctx, cfg)
	return report, err
}

// endSessions ensures that no session of the fleet lives: it clears the holder of dead sessions'
// Leases, as another session would.
func endSessions(ctx context.Context, cfg Config) error {
	leases := cfg.Client.CoordinationV1().Leases(cfg.FleetNamespace)
	selector := labels.Set{v1alpha1.LabelFleet: cfg.Fleet, v1alpha1.LabelLease: v1alpha1.LeaseOfSession}.String()
	listHeld := func() (held []coordinationv1.Lease, err error) {
		list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, fmt.Errorf("list session Leases of fleet %s in namespace %s: %w", cfg.Fleet, cfg.FleetNamespace, err)
		}
		for _, lease := range list.Items {
			if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
				held = append(held, lease)
			}
		}
		return held, nil
	}
	before, err := listHeld()
	if err != nil || len(before) == 0 {
		return err
	}
	wait, err := takeOver(ctx, leases, cfg.Fleet, before)
	if err != nil {
		return err
	}
	cfg.OnWait(wait)
	select {
	case <-cfg.Clock.After(wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	var living []string
	for _, lease := range before {
		none := ""
		lease.Spec.HolderIdentity = &none
		_, err := leases.Update(ctx, &lease, metav1.UpdateOptions{}) // fails if the Lease has changed since before the wait
		switch {
		case apierrors.IsConflict(err):
			living = append(living, lease.Name)
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("clear the holder of session Lease %s, which is not renewed: %w", lease.Name, err)
		}
	}
	if living == nil {
		return nil
	}
	after, err := listHeld() // Leases that were cleared meanwhile have changed, too
	if err != nil || len(after) == 0 {
		return err
	}
	return &LivingError{Sessions: living}
}

// clean removes the fleet's labels and annotations from all objects of a kind, and returns their
// number. Of a Node only the label is removed.
func clean(ctx context.Context, list metadata.ResourceInterface, write metadata.Getter, isNode bool) (cleaned int, err error) {
	for range rounds {
		unclean, err := listUnclean(ctx, list, isNode)
		if err != nil || len(unclean) == 0 {
			return cleaned, err
		}
		done, err := cleanAll(ctx, unclean, write, isNode)
		if cleaned += done; err != nil {
			return cleaned, err
		}
	}
	return cleaned,
		fmt.Errorf("expected objects to be unchanged while they are written, but another client changed some at each of %d attempts; try again",
			rounds)
}

// listUnclean lists the objects with labels or annotations of the fleet.
func listUnclean(ctx context.Context, list metadata.ResourceInterface, isNode bool) (found []metav1.PartialObjectMetadata, err error) {
	options := metav1.ListOptions{Limit: page}
	if isNode {
		options.LabelSelector = v1alpha1.LabelSlot
	}
	err = decode.UntilPage(ctx, "objects of the fleet", options, list.List,
		func(part *metav1.PartialObjectMetadataList, _ []*decode.Failure) bool {
			for i := range part.Items {
				if cleaningPatch(&part.Items[i]) != nil {
					found = append(found, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
						Namespace: part.Items[i].Namespace, Name: part.Items[i].Name, UID: part.Items[i].UID,
						ResourceVersion: part.Items[i].ResourceVersion, Labels: part.Items[i].Labels, Annotations: part.Items[i].Annotations,
					}})
				}
			}
			return false
		})
	return found, err
}

// cleaningPatch returns the metadata patch that removes the fleet's labels and annotations; nil if
// there are none.
func cleaningPatch(o metav1.Object) map[string]any {
	patch := map[string]any{}
	for field, values := range map[string]map[string]string{"labels": o.GetLabels(), "annotations": o.GetAnnotations()} {
		removed := map[string]any{}
		for key := range values {
			if strings.HasPrefix(key, v1alpha1.FleetDomain) {
				removed[key] = nil
			}
		}
		if len(removed) > 0 {
			patch[field] = removed
		}
	}
	if len(patch) == 0 {
		return nil
	}
	return patch
}

func cleanAll(ctx context.Context, objects []metav1.PartialObjectMetadata, write metadata.Getter, isNode bool) (done int, err error) {
	var mu sync.Mutex
	var errs []error
	var running sync.WaitGroup
	turns := make(chan struct{}, parallel)
	for i := range objects {
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			err := cleanOne(ctx, &objects[i], write, isNode)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				done++
			case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err): // these are tried again in the next round
				errs = append(errs, fmt.Errorf("%s/%s: %w", objects[i].Namespace, objects[i].Name, err))
			}
		})
	}
	running.Wait()
	if len(errs) > 1 {
		return done, fmt.Errorf("%w (and %d more like it)", errs[0], len(errs)-1)
	}
	return done, errors.Join(errs...)
}

func cleanOne(ctx context.Context, o *metav1.PartialObjectMetadata, write metadata.Getter, isNode bool) error {
	metadata := cleaningPatch(o)
	metadata["uid"] = o.UID
	if !isNode { // a Node has many writers
		metadata["resourceVersion"] = o.ResourceVersion
	}
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	_, err = write.Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// releaseLeases releases the Leases of Machine Controller Manager that the fleet holds.
func releaseLeases(ctx context.Context, cfg Config) (released int, err error) {
	list, err := cfg.Client.CoordinationV1().Leases(cfg.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list Leases: %w", err)
	}
	for _, lease := range list.Items {
		ofMCM := lease.Name == v1alpha1.LeaseManager || lease.Name == v1alpha1.LeaseMachineController
		if holder := lease.Spec.HolderIdentity; !ofMCM || holder == nil || *holder != cfg.Identity {
			continue
		}
		none, second := "", int32(1)
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &none, &second
		if _, err := cfg.Client.CoordinationV1().Leases(lease.Namespace).Update(ctx, &lease, metav1.UpdateOptions{}); err != nil {
			return released, fmt.Errorf("release Lease %s/%s: %w", lease.Namespace, lease.Name, err)
		}
		released++
	}
	return released, nil
}
