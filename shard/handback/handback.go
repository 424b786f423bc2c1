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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
)

const (
	// page is the number of objects in one page of a list, and parallel the number of concurrent
	// writes.
	page, parallel = 1000, 32
	// rounds is the number of attempts for objects that have changed meanwhile.
	rounds = 5
)

// Config is the configuration of Leave. All fields but Namespace, Target and OpenTarget are
// required.
type Config struct {
	// Client and Metadata are connections to the control cluster, Target to the target cluster; nil if
	// there is none.
	Client           kubeclient.Interface
	Metadata, Target metadata.Interface
	// OpenTarget connects to the target cluster of a namespace that has its own, until release is
	// called; nil where all namespaces have the same, or none.
	OpenTarget func(ctx context.Context, namespace string) (nodes metadata.Interface, release func(), err error)
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
		"expected the fleet to be stopped, but these sessions renew their Leases: %s; scale the fleet to 0 replicas and try again, "+
			"or have no fleet select the namespace that is to be left",
		strings.Join(e.Sessions, ", "),
	)
}

// Validate returns an error that names the fields that are missing.
func (c Config) Validate() error { return required.Fields(c, "Namespace", "Target", "OpenTarget") }

// Leave gives the machines back. Errors: fields that are missing, *LivingError while a session
// lives that serves what is left, and those of the API servers. A target cluster of one namespace
// that cannot be connected to holds nothing up.
func Leave(ctx context.Context, cfg Config) (report Report, err error) {
	if err := cfg.Validate(); err != nil {
		return report, err
	}
	held, err := holds(ctx, cfg)
	if err == nil && held {
		err = endSessions(ctx, cfg)
	}
	if err != nil {
		return report, err
	}
	namespaces, err := namespacesOf(ctx, cfg)
	if err != nil {
		return report, err
	}
	kinds := []schema.GroupVersionResource{
		v1alpha1.SchemeGroupVersion.WithResource("machinedeployments"),
		v1alpha1.SchemeGroupVersion.WithResource("machinesets"),
		v1alpha1.SchemeGroupVersion.WithResource("machines"),
		v1alpha1.SchemeGroupVersion.WithResource("machineclasses"),
	}
	for _, kind := range kinds {
		n, err := clean(ctx, objects{list: cfg.Metadata.Resource(kind).Namespace(cfg.Namespace), write: cfg.Metadata.Resource(kind)})
		if report.Objects += n; err != nil {
			return report, fmt.Errorf("remove the fleet's labels and annotations from %s: %w", kind.Resource, err)
		}
	}
	if cfg.Namespace == "" && cfg.Target != nil { // a Node has no reference to the namespace of its machine
		n, err := clean(ctx, nodesOf(cfg.Target, ""))
		if report.Objects += n; err != nil {
			return report, fmt.Errorf("remove the fleet's label from nodes: %w", err)
		}
	}
	n, failed := cleanTargets(ctx, cfg, namespaces)
	report.Objects += n
	report.Leases, err = releaseLeases(ctx, cfg)
	return report, errors.Join(err, failed)
}

// holds reports whether the fleet may act in what is left: in all namespaces, or in one if it holds
// a Lease of Machine Controller Manager there.
func holds(ctx context.Context, cfg Config) (bool, error) {
	if cfg.Namespace == "" {
		return true, nil
	}
	for _, name := range leasesOfMCM() {
		lease, err := cfg.Client.CoordinationV1().Leases(cfg.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return true, nil // the fleet may be about to create it
		case err != nil:
			return false, fmt.Errorf("read Lease %s/%s: %w", cfg.Namespace, name, err)
		case lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == cfg.Identity:
			return true, nil
		}
	}
	return false, nil
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

// objects are those of a kind.
type objects struct {
	list     metadata.ResourceInterface
	write    metadata.Getter
	isNode   bool
	selector string                   // of labels
	isOurs   func(metav1.Object) bool // nil if all are
}

// clean removes the fleet's labels and annotations from objects, and returns their number.
func clean(ctx context.Context, of objects) (cleaned int, err error) {
	for range rounds {
		unclean, err := of.listUnclean(ctx)
		if err != nil || len(unclean) == 0 {
			return cleaned, err
		}
		done, err := of.cleanAll(ctx, unclean)
		if cleaned += done; err != nil {
			return cleaned, err
		}
	}
	return cleaned,
		fmt.Errorf("expected objects to be unchanged while they are written, but another client changed some at each of %d attempts; try again",
			rounds)
}

// listUnclean lists the objects with labels or annotations of the fleet.
func (o objects) listUnclean(ctx context.Context) (found []metav1.PartialObjectMetadata, err error) {
	options := metav1.ListOptions{Limit: page, LabelSelector: o.selector}
	err = decode.UntilPage(ctx, "objects of the fleet", options, o.list.List,
		func(part *metav1.PartialObjectMetadataList, _ []*decode.Failure) bool {
			for i := range part.Items {
				if cleaningPatch(&part.Items[i]) != nil && (o.isOurs == nil || o.isOurs(&part.Items[i])) {
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

func (o objects) cleanAll(ctx context.Context, all []metav1.PartialObjectMetadata) (done int, err error) {
	var mu sync.Mutex
	var errs []error
	var running sync.WaitGroup
	turns := make(chan struct{}, parallel)
	for i := range all {
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			err := o.cleanOne(ctx, &all[i])
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				done++
			case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err): // these are tried again in the next round
				errs = append(errs, fmt.Errorf("%s/%s: %w", all[i].Namespace, all[i].Name, err))
			}
		})
	}
	running.Wait()
	if len(errs) > 1 {
		return done, fmt.Errorf("%w (and %d more like it)", errs[0], len(errs)-1)
	}
	return done, errors.Join(errs...)
}

func (o objects) cleanOne(ctx context.Context, one *metav1.PartialObjectMetadata) error {
	metadata := cleaningPatch(one)
	metadata["uid"] = one.UID
	if !o.isNode { // a Node has many writers
		metadata["resourceVersion"] = one.ResourceVersion
	}
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode the patch: %w", err)
	}
	_, err = o.write.Namespace(one.Namespace).Patch(ctx, one.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

// leasesOfMCM returns the names of the Leases of Machine Controller Manager in each namespace.
func leasesOfMCM() []string { return []string{v1alpha1.LeaseManager, v1alpha1.LeaseMachineController} }

// releaseLeases releases the Leases of Machine Controller Manager that the fleet holds.
func releaseLeases(ctx context.Context, cfg Config) (released int, err error) {
	var all []coordinationv1.Lease
	for _, name := range leasesOfMCM() { // the fleet itself may list these only
		list, err := cfg.Client.CoordinationV1().Leases(cfg.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
		})
		if err != nil {
			return 0, fmt.Errorf("list Leases %s: %w", name, err)
		}
		all = append(all, list.Items...)
	}
	for _, lease := range all {
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder != cfg.Identity {
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
