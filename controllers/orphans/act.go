package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/orphans/decide"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/deletion/receipt"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/telemetry"
)

// act records the suspicions of all scopes, and deletes what is confirmed, within the limits.
func (s *sweep) act(ctx context.Context) error {
	stopped := s.stopped()
	if stopped != "" {
		s.holdAll(stopped)
	}
	errs := []error{s.reserve(ctx)}
	for _, sc := range s.scopes {
		approved := sc.isApproved() && stopped == ""
		if err := s.record(ctx, sc, approved); err != nil {
			errs = append(errs, err)
			continue
		}
		sc.recorded = true
		toDelete := sc.suspectsThat(decide.Delete)
		if held := sc.suspectsThat(decide.Hold); approved {
			klog.FromContext(ctx).Info("Deleting orphans with an approval", telemetry.KeyMachineClass, klog.KObj(sc.class), "orphans", len(held))
			toDelete = append(toDelete, held...)
		} else {
			s.reportHeld(ctx, sc, held, stopped)
		}
		errs = append(errs, s.delete(ctx, sc, toDelete, approved))
	}
	return errors.Join(errs...)
}

// stopped returns why nothing may be deleted at all, regardless of what was approved; "" if
// deletions may begin.
func (s *sweep) stopped() string {
	if why, held := s.cfg.Held(s.namespace); held {
		return "deletions are held: " + cmp.Or(why, "it is not known yet whether an annotation holds them")
	}
	if s.cfg.DryRun {
		return "dry run (--safety-dry-run)"
	}
	return ""
}

// holdAll holds all orphans that are confirmed.
func (s *sweep) holdAll(why string) {
	for _, sc := range s.scopes {
		for key, verdict := range sc.verdicts {
			if verdict.Do == decide.Delete {
				sc.verdicts[key] = decide.Verdict{Do: decide.Hold, Why: why}
			}
		}
	}
}

// unapproved returns the namespace's confirmed orphans that need no approval.
func (s *sweep) unapproved() (wanted []decide.Suspect) {
	for _, sc := range s.scopes {
		for _, suspect := range sc.suspectsThat(decide.Delete) {
			if !sc.before.Suspects[suspect.Key()].Approved {
				wanted = append(wanted, suspect)
			}
		}
	}
	return wanted
}

// hold holds an orphan.
func (s *sweep) hold(suspect decide.Suspect, why string) {
	for _, sc := range s.scopes {
		if _, has := sc.verdicts[suspect.Key()]; has {
			sc.verdicts[suspect.Key()] = decide.Verdict{Do: decide.Hold, Why: why}
		}
	}
}

// notReserved is why orphans are held whose deletion could not be reserved because of an error.
const notReserved = "the deletion could not be reserved"

// reserve reserves the deletion of the namespace's confirmed orphans that need no approval. Where
// that is not possible they are held, except those that were reserved before.
func (s *sweep) reserve(ctx context.Context) error {
	wanted := s.unapproved()
	if len(wanted) == 0 {
		return nil
	}
	var unread []decide.Suspect
	for _, sc := range s.scopes {
		unread = append(unread, sc.unread...)
	}
	before, why, err := s.ledger.reserve(ctx, s.namespace, wanted, unread, s.cfg.Limit)
	if err != nil {
		why = notReserved
	}
	if why != "" {
		for _, suspect := range wanted {
			if !before[suspect.Key()] {
				s.hold(suspect, why)
			}
		}
	}
	return errors.Join(err, s.reserveOfBudget(ctx))
}

// reserveOfBudget reserves of the deletion budget what is left to be deleted, after the limit for
// orphans: what that holds must not use up the budget, which machines share. What the budget does
// not allow is held, and reserved by a later sweep.
func (s *sweep) reserveOfBudget(ctx context.Context) error {
	if s.cfg.Budget == nil {
		return nil
	}
	wanted := s.unapproved()
	keys := make([]string, len(wanted))
	for i, suspect := range wanted {
		keys[i] = string(suspect.Key())
	}
	grant, err := s.cfg.Budget.Reserve(ctx, s.namespace, keys)
	why := grant.Exhausted()
	if err != nil {
		why = notReserved
	}
	for _, suspect := range wanted {
		if !grant.Reserved[string(suspect.Key())] {
			s.hold(suspect, why)
		}
	}
	return err
}

// mostNamed is how many orphans an Event names.
const mostNamed = 5

// reportHeld reports the orphans of a scope that are not deleted without an approval; stopped is
// why an approval has no effect.
func (s *sweep) reportHeld(ctx context.Context, sc *scope, held []decide.Suspect, stopped string) {
	if len(held) == 0 {
		return
	}
	var named, reasons []string
	for i, suspect := range held {
		if i < mostNamed {
			named = append(named, fmt.Sprintf("%s %s of Machine %s", suspect.Kind, suspect.ID, suspect.Machine))
		}
		if why := sc.verdicts[suspect.Key()].Why; !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	if len(held) > mostNamed {
		named = append(named, "and others")
	}
	digest := decide.Digest(held)
	approval := fmt.Sprintf("To delete exactly these, annotate MachineClass %s with %s=%s",
		klog.KObj(sc.class), v1alpha1.AnnotationDeleteOrphans, digest)
	switch {
	case stopped != "":
		approval = "Until that ends nothing is deleted, also with an approval"
	case len(sc.unread) > 0:
		approval = fmt.Sprintf("%d other suspects of the account were not checked in time; these can be approved when a sweep has checked all",
			len(sc.unread))
	}
	text := fmt.Sprintf("Held %d orphans: %s. %s. They are %s", len(held), strings.Join(reasons, "; "), approval, strings.Join(named, ", "))
	telemetry.EmitUnlogged(s.cfg.Events, sc.class, v1alpha1.EventOrphansHeld, text)
	klog.FromContext(ctx).Error(nil, "Held orphans", telemetry.KeyMachineClass, klog.KObj(sc.class), "orphans", len(held), "digest",
		digest, "message", text)
}

// delete deletes confirmed orphans of a scope. An orphan that is found again later has no second
// receipt and Event: which receipts there are is recorded on the class. A reservation does not show
// that, because the deletion may have been refused or held since.
func (s *sweep) delete(ctx context.Context, sc *scope, toDelete []decide.Suspect, approved bool) error {
	if len(toDelete) == 0 {
		return nil
	}
	if served, err := s.cfg.Served(ctx, s.namespace); err != nil || !served {
		return err // another manager has the namespace now
	}
	var errs []error
	outcomes := map[decide.Key]receipt.Outcome{}
	for _, suspect := range toDelete {
		if s.stopped() != "" {
			break // the next sweep reports it
		}
		if s.isOver() {
			s.beginWith(sc)
			errs = append(errs, fmt.Errorf("delete orphans of MachineClass %s: expected the end within %s, got none; later sweeps delete the others",
				sc.class.Name, longestRest))
			break
		}
		entry, why := sc.before.Suspects[suspect.Key()], sc.verdicts[suspect.Key()].Why
		if approved || entry.Approved {
			why += "; approved"
		}
		outcome, err := s.cfg.Deletions.Delete(ctx, s.cfg.Events, deletionOf(suspect.Resource, why, entry.Recorded),
			func(ctx context.Context) error {
				_, err := sc.sweeper.DeleteResource(ctx, driver.DeleteResourceRequest{ScopeRequest: sc.request, Resource: suspect.Resource})
				return err
			})
		if outcome != entry.Recorded {
			outcomes[suspect.Key()] = outcome
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("delete %s %s: %w", suspect.Kind, suspect.ID, err))
			continue
		}
		if entry.Recorded != receipt.Accepted {
			s.metrics.deleted(suspect.Kind)
			machine := &corev1.ObjectReference{
				APIVersion: v1alpha1.SchemeGroupVersion.String(),
				Kind:       "Machine",
				Namespace:  suspect.Namespace,
				Name:       suspect.Machine,
				UID:        suspect.MachineUID,
			}
			telemetry.EmitAction(s.cfg.Events, sc.class, machine, v1alpha1.EventOrphanDeleted, "Delete"+string(suspect.Kind),
				fmt.Sprintf("Deleted %s %s of Machine %s (UID %s): %s", suspect.Kind, suspect.ID, suspect.Machine, suspect.MachineUID, why))
		}
	}
	return errors.Join(append(errs, s.recordOutcomes(ctx, sc, outcomes))...)
}

// deletionOf returns the deletion of a resource, for its receipt. It has its own Event, on the
// MachineClass.
func deletionOf(r driver.Resource, why string, recorded receipt.Outcome) deletion.Deletion {
	object := receipt.Object{
		Kind: receipt.Kind(r.Kind), Namespace: r.Namespace, Machine: r.Machine, MachineUID: r.MachineUID, Node: r.NodeName,
	}
	if r.Kind == driver.ResourceVM {
		object.ProviderID = r.ID
	} else {
		object.Name = r.ID
	}
	return deletion.Deletion{Object: object, Reason: receipt.Because(receipt.Orphaned, why), Recorded: recorded}
}
