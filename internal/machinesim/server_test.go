package machinesim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
)

// object is an object as the API server stores it.
type object[T any] interface {
	metav1.Object
	DeepCopy() T
}

// store keeps the objects of one kind, with their history: a cache shows any state since the last
// that it showed.
type store[T object[T]] struct {
	versions *int
	report   func(format string, args ...any)
	history  []map[string]T
}

func newStore[T object[T]](w *world) *store[T] {
	return &store[T]{versions: &w.versions, report: w.note, history: []map[string]T{{}}}
}

func (s *store[T]) now() map[string]T { return s.history[len(s.history)-1] }

func (s *store[T]) change(f func(all map[string]T)) {
	next := maps.Clone(s.now())
	f(next)
	s.history = append(s.history, next)
}

// about describes an object for the history.
func about(obj any) string {
	switch o := obj.(type) {
	case *v1alpha1.Machine:
		return fmt.Sprintf("of %s, %s since %s, deleted %v, priority %q, marked %q",
			setOf(o), o.Status.CurrentStatus.Phase, o.Status.CurrentStatus.LastUpdateTime.Sub(start),
			o.DeletionTimestamp != nil, o.Annotations[v1alpha1.AnnotationPriority], o.Annotations[v1alpha1.AnnotationMarkedForDeletionTime])
	case *v1alpha1.MachineDeployment:
		return fmt.Sprintf("replicas %d, disruptions %q, named %q, selecting %s", o.Spec.Replicas, o.Annotations[v1alpha1.AnnotationDisruptions],
			o.Annotations[v1alpha1.AnnotationTriggerDeletion], o.Annotations[v1alpha1.AnnotationSelecting])
	case *v1alpha1.MachineSet:
		return fmt.Sprintf("size %d, scaled %q, scale-up disabled %q, intents %s",
			o.Spec.Replicas, o.Annotations[v1alpha1.AnnotationLastReplicaChangeByScaler],
			o.Labels[v1alpha1.LabelScaleUpDisabled], o.Annotations[v1alpha1.AnnotationIntents])
	case *corev1.Node:
		return fmt.Sprintf("%s, candidate %q, selected %q, %s, to %s", machinefacts.InPlaceStage(o), o.Labels[v1alpha1.LabelCandidateForUpdate],
			o.Labels[v1alpha1.LabelSelectedForUpdate], o.Labels[v1alpha1.LabelUpdateResult], o.Annotations[v1alpha1.AnnotationUpdateTo])
	}
	return ""
}

// create stores an object, unless there is one of its name.
func (s *store[T]) create(obj T) bool {
	if _, exists := s.now()[obj.GetName()]; exists {
		return false
	}
	*s.versions++
	obj.SetResourceVersion(fmt.Sprint(*s.versions))
	s.report("%s is created", obj.GetName())
	s.change(func(all map[string]T) { all[obj.GetName()] = obj })
	return true
}

// update stores a new version of an object, if it was created from the current one. It returns the
// stored version.
func (s *store[T]) update(desired T) (stored T, ok bool) {
	is, exists := s.now()[desired.GetName()]
	if !exists || is.GetUID() != desired.GetUID() || is.GetResourceVersion() != desired.GetResourceVersion() {
		return stored, false
	}
	desired = desired.DeepCopy()
	*s.versions++
	desired.SetResourceVersion(fmt.Sprint(*s.versions))
	s.report("%s: %s", desired.GetName(), about(desired))
	s.change(func(all map[string]T) {
		if desired.GetDeletionTimestamp() != nil && len(desired.GetFinalizers()) == 0 {
			delete(all, desired.GetName())
		} else {
			all[desired.GetName()] = desired
		}
	})
	return desired, true
}

// delete marks an object for deletion, if it has not changed since it was read.
func (s *store[T]) delete(seen T, now time.Time) bool {
	if seen.GetDeletionTimestamp() != nil {
		return false
	}
	desired := seen.DeepCopy()
	desired.SetDeletionTimestamp(&metav1.Time{Time: now})
	_, ok := s.update(desired)
	return ok
}

// sorted returns objects by name, so that nothing depends on the order of a map.
func sorted[T object[T]](all map[string]T) []T {
	return slices.SortedFunc(maps.Values(all), func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// vm is a VM at the cloud.
type vm struct {
	machine string // name of it, and of its Node
	node    *corev1.Node
	boots   time.Time
}

// boot creates Nodes of VMs that were created a while ago, and sets the conditions of each Node.
func (w *world) boot() {
	for _, uid := range slices.Sorted(maps.Keys(w.vms)) {
		v := w.vms[uid]
		if v.node == nil && !w.now.Before(v.boots) {
			v.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: v.machine, UID: types.UID("node-" + v.machine), Labels: map[string]string{corev1.LabelTopologyZone: zone},
			}, Spec: corev1.NodeSpec{ProviderID: "cloud:///" + string(uid)}}
			v.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		if v.node == nil {
			continue
		}
		status := corev1.ConditionTrue
		if w.sick[v.machine] {
			status = corev1.ConditionUnknown
		}
		if v.node.Status.Conditions[0].Status != status {
			v.node = v.node.DeepCopy()
			v.node.Status.Conditions[0].Status = status
		}
	}
}

// vmOf returns the VM of a machine, nil if there is none.
func (w *world) vmOf(m *v1alpha1.Machine) *vm { return w.vms[m.UID] }
