package namespaceswitch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
	"github.com/machine-controller-fleet/machine-controller-fleet/shard/namespaceswitch/policy"
)

const (
	// workers is how many namespaces are reported on at the same time.
	workers = 8
	// recheck is the time until a namespace is observed again: no event reports that a target cluster
	// has not answered for long enough, or that another manager is dead.
	recheck = 10 * time.Second
)

// reasonUnowned is that of pods whose namespace no replica serves.
const reasonUnowned = "NoReplica"

// report reports on the pods of a namespace whose slot this replica holds.
func (s *Switches) report(ctx context.Context, namespace string) (runner.Result, error) {
	w := s.observe(namespace)
	if !w.On {
		return runner.Result{}, nil
	}
	w.Unselected = !s.cfg.Selected(namespace)
	w.Service = s.cfg.Service(namespace)
	return runner.Result{RequeueAfter: recheck}, s.write(ctx, policy.Decide(w))
}

// ReportUnowned reports on the pods of namespaces whose slots have no holder. The leader calls it.
// Errors: those of the requests.
func (s *Switches) ReportUnowned(ctx context.Context, slots []int) error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, d := range s.deployments.All() {
		if !slices.Contains(slots, s.cfg.SlotOf(d.Namespace)) || !s.cfg.Selected(d.Namespace) {
			continue
		}
		w := s.observe(d.Namespace)
		w.Service = policy.Service{Reason: reasonUnowned, Message: "No replica of the fleet has served the namespace for 30 s"}
		errs = append(errs, s.write(ctx, policy.Decide(w)))
	}
	return errors.Join(errs...)
}

func (s *Switches) observe(namespace string) policy.World {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, on := s.on[namespace]
	return policy.World{Now: s.cfg.Clock.Now(), On: on, Last: last, Pods: s.pods.In(namespace)}
}

// write writes the status of pods, each if it is still as it was read. Errors: those of the
// requests.
func (s *Switches) write(ctx context.Context, reports []policy.Report) error {
	var errs []error
	for _, r := range reports {
		change, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": r.Pod.UID, "resourceVersion": r.Pod.ResourceVersion},
			"status":   corev1.PodStatus{Phase: corev1.PodRunning, Conditions: r.Conditions},
		})
		if err == nil {
			_, err = s.cfg.Client.Pods(r.Pod.Namespace).Patch(ctx, r.Pod.Name, types.StrategicMergePatchType, change,
				metav1.PatchOptions{}, "status")
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("report on pod %s/%s: %w", r.Pod.Namespace, r.Pod.Name, err))
		}
	}
	return errors.Join(errs...)
}
