package drainer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// remove removes pods and attachments, and records the API server's answer for each in the memory
// of the facts. Errors: those of note.
func (d *Drain) remove(ctx context.Context, task Task, facts *drain.Facts, v drain.Verdict) error {
	attempts := maps.Clone(facts.Memory.Attempts)
	if attempts == nil {
		attempts = map[types.UID]drain.Attempt{}
	}
	r := removal{Drain: d, task: task, facts: facts, attempts: attempts}
	defer func() {
		facts.Memory.Attempts = attempts
		d.memory = facts.Memory
		if v.Cause == "" && !r.forced.IsNone() {
			task.Warn(ctx, drain.EvictionTimedOut(task.Node.Name, task.Order, r.forced))
		}
	}()
	d.removed = true
	if hasRoom, err := r.pods(ctx, v.Pods); err != nil || !hasRoom {
		return err // without room, other drains were faster; the next decision is about what is left
	}
	return r.attachments(ctx, v.Attachments)
}

// removal is the requests of one pass.
type removal struct {
	*Drain

	task     Task
	facts    *drain.Facts
	attempts map[types.UID]drain.Attempt
	forced   drain.Forced // what was deleted without grace
}

// pods removes pods until no more volumes may begin to move.
func (r *removal) pods(ctx context.Context, pods []drain.Removal) (hasRoom bool, err error) {
	for _, p := range pods {
		if p.Moves > 0 && !r.reserve(p.Moves) {
			return false, nil
		}
		removed := removePod(ctx, r.task.Cluster, p, r.of.cfg.Clock.Now())
		if err := r.note(ctx, p.Pod.UID, p.How, removed); err != nil {
			return false, err
		}
		if p.How == drain.Delete && removed == nil {
			r.forced, r.facts.Memory.Forced = r.forced.With(p.Pod), r.facts.Memory.Forced.With(p.Pod)
		}
	}
	return true, nil
}

// attachments deletes attachments until no more volumes may begin to move.
func (r *removal) attachments(ctx context.Context, attachments []*storagev1.VolumeAttachment) error {
	for _, a := range attachments {
		if !r.reserve(1) {
			return nil
		}
		if err := r.note(ctx, a.UID, drain.Delete, deleteAttachment(ctx, r.task.Cluster.Client, a)); err != nil {
			return err
		}
	}
	return nil
}

// reserve reports whether so many more volumes may begin to move.
func (r *removal) reserve(moves int) bool {
	return r.of.detaches.reserve(r.task.Cluster, r.errand, r.task.Owner.Namespace, moves)
}

// note records the answer to a request. Errors: the ownership or ctx has ended, or the request has
// to wait and was not sent.
func (r *removal) note(ctx context.Context, uid types.UID, how drain.How, err error) error {
	if err != nil && (ctx.Err() != nil || runner.NotOurs(err) || runner.Waits(err)) {
		return err
	}
	r.attempts[uid] = attempt(r.attempts[uid], r.facts.Now, how, err)
	return nil
}

// requestRecounts has the disruption controller recount PodDisruptionBudgets, by an
// observedGeneration of 0. Errors: those of note.
func (d *Drain) requestRecounts(ctx context.Context, client kubeclient.Interface, facts *drain.Facts, v drain.Verdict) error {
	for _, b := range v.Budgets {
		err := patchBudget(ctx, client, b, map[string]any{"observedGeneration": 0})
		if err != nil && (ctx.Err() != nil || runner.NotOurs(err) || runner.Waits(err)) {
			d.memory.Recounts = nil // some were not requested
			return err
		}
		switch {
		case err == nil, apierrors.IsNotFound(err):
		case apierrors.IsConflict(err):
			facts.Memory = facts.Memory.RequestFailed(b.UID, "")
		default:
			facts.Memory = facts.Memory.RequestFailed(b.UID, err.Error())
		}
	}
	d.memory = facts.Memory
	return nil
}

// patchBudget changes the status of a PodDisruptionBudget, if it still has the version that was
// read.
func patchBudget(ctx context.Context, client kubeclient.Interface, b *policyv1.PodDisruptionBudget, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": b.UID, "resourceVersion": b.ResourceVersion}, "status": status,
	})
	if err != nil {
		return fmt.Errorf("encode the status of PodDisruptionBudget %s/%s: %w", b.Namespace, b.Name, err)
	}
	_, err = client.PolicyV1().PodDisruptionBudgets(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the status of PodDisruptionBudget %s/%s: %w", b.Namespace, b.Name, err)
	}
	return nil
}

// attempt returns the result of a request to remove an object; before is that of the request before
// it. An object that does not exist any more counts as removed, and all other errors are refusals.
// A conflict, too: it may be that of a webhook. If another object has the name now, the watch shows
// it.
func attempt(before drain.Attempt, now time.Time, how drain.How, err error) drain.Attempt {
	switch {
	case err == nil:
		return drain.Accepted(before, now, how, "")
	case apierrors.IsNotFound(err):
		return drain.Accepted(before, now, how, err.Error())
	}
	isFull := apierrors.IsTooManyRequests(err) || how == drain.Take && apierrors.IsConflict(err)
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return drain.Refused(now, how, isFull, time.Duration(seconds)*time.Second, cmp.Or(err.Error(), withoutReason(err)))
}

// withoutReason describes an answer of the API server that gives no reason.
func withoutReason(err error) string {
	status := apierrors.APIStatus(nil)
	if errors.As(err, &status) {
		return fmt.Sprintf("the API server has answered with the status %d", status.Status().Code)
	}
	return "the request has failed"
}

func removePod(ctx context.Context, cluster *target.Cluster, r drain.Removal, now time.Time) error {
	switch r.How {
	case drain.Evict:
		return cluster.Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: r.Pod.Name, Namespace: r.Pod.Namespace},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.Pod.UID}},
		})
	case drain.Take:
		return takeDisruptions(ctx, cluster.Client, r, now)
	case drain.Delete:
		return cluster.Client.CoreV1().Pods(r.Pod.Namespace).Delete(ctx, r.Pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &r.Pod.UID},
		})
	}
	return fmt.Errorf("drain.Decide named a way to remove pods that the drainer does not know: %s", r.How)
}

// takeDisruptions does for several PodDisruptionBudgets what the eviction API does for one: it
// takes a disruption from each, and deletes the pod. If it fails before the deletion, the
// disruptions that it has taken remain reserved for the pod until they expire, as those of the
// eviction API do; the next attempt starts their time anew.
func takeDisruptions(ctx context.Context, client kubeclient.Interface, r drain.Removal, now time.Time) error {
	for _, b := range r.Budgets {
		allowed := b.Status.DisruptionsAllowed
		if _, taken := b.Status.DisruptedPods[r.Pod.Name]; !taken {
			allowed--
		}
		err := patchBudget(ctx, client, b, map[string]any{
			"disruptionsAllowed": allowed, "disruptedPods": map[string]any{r.Pod.Name: metav1.NewTime(now)},
		})
		if err != nil && !apierrors.IsNotFound(err) { // one that does not exist any more limits nothing
			return fmt.Errorf("take a disruption: %w", err)
		}
	}
	// With resourceVersion: a pod that was not ready may have become ready since, and its removal is
	// then decided anew.
	return client.CoreV1().Pods(r.Pod.Namespace).Delete(ctx, r.Pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &r.Pod.UID, ResourceVersion: &r.Pod.ResourceVersion},
	})
}

func deleteAttachment(ctx context.Context, client kubeclient.Interface, a *storagev1.VolumeAttachment) error {
	return client.StorageV1().VolumeAttachments().Delete(ctx, a.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.UID}})
}
