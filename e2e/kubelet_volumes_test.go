//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// volumeParallelism is the default of --drain-volume-parallelism.
const volumeParallelism = 4

// databases creates a StatefulSet that starts and ends its pods in parallel, so that it does not
// cause them to move one after the other. They run on any open Node.
func (s *space) databases(name string, replicas int32, change ...func(*appsv1.StatefulSet)) {
	s.Helper()
	set := harness.StatefulSet(s.name, name, replicas)
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	set.Spec.Template.Spec.NodeSelector = map[string]string{openTo: s.name}
	for _, f := range change {
		f(set)
	}
	_, err := s.lab.Target.AppsV1().StatefulSets(s.name).Create(s.Context(), set, metav1.CreateOptions{})
	s.must(err)
}

// volumes returns the names of the PersistentVolumes of all pods, by pod.
func (s *space) volumes() map[string]string {
	s.Helper()
	claims, err := s.lab.Target.CoreV1().PersistentVolumeClaims(s.name).List(s.Context(), metav1.ListOptions{})
	s.must(err)
	found := map[string]string{}
	for _, c := range claims.Items {
		found[strings.TrimPrefix(c.Name, "data-")] = c.Spec.VolumeName
	}
	return found
}

// moves contains what a recording shows of volumes that move from a Node to others: from the
// eviction of their pods until they are attached elsewhere.
type moves struct {
	// order of the pods.
	order []string
	// most that moved at a time.
	most int
	now  map[string]bool
}

// watchMoves reads from a recording how the volumes of pods move from a Node.
func watchMoves(film *recording, from string, volumes map[string]string) (moves, error) {
	seen := moves{now: map[string]bool{}}
	moments, err := film.play()
	for _, m := range moments {
		if p := m.pod(); p != nil && p.Spec.NodeName == from && p.DeletionTimestamp != nil && !slices.Contains(seen.order, p.Name) {
			seen.order = append(seen.order, p.Name)
			seen.now[volumes[p.Name]] = true
			seen.most = max(seen.most, len(seen.now))
		}
		if a := m.attachment(); a != nil && a.Spec.NodeName != from && a.Status.Attached && a.Spec.Source.PersistentVolumeName != nil {
			delete(seen.now, *a.Spec.Source.PersistentVolumeName)
		}
	}
	return seen, err
}

// move waits until the volumes of all pods have moved from a Node.
func (s *space) move(film *recording, from string, volumes map[string]string) (seen moves) {
	s.Helper()
	s.eventually("all volumes have moved", func(context.Context) (err error) {
		if seen, err = watchMoves(film, from, volumes); err == nil && (len(seen.order) != len(volumes) || len(seen.now) > 0) {
			err = fmt.Errorf("begun: %v, moving: %v", seen.order, slices.Sorted(maps.Keys(seen.now)))
		}
		return err
	})
	return seen
}

// TestRealKubeletVolumes drains a Node with a real kubelet and pods with volumes of a driver of the
// cluster. They move to another Node, some at a time, with their data. That Node is then deleted by
// force.
func TestRealKubeletVolumes(t *testing.T) {
	t.Parallel()
	if !harness.KubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	s := newSpace(t, shared(t), "kubelet-volumes", realKubelet)
	s.workload()
	machines := s.stand(2)
	from, to := machines[0], machines[1]
	vms := s.joined()
	s.open(from)
	important := priorityClass(s, 1000)
	s.databases("archive", 4)
	s.databases("queue", 2, func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.PriorityClassName = important })
	s.ready("archive", 4)
	s.ready("queue", 2)
	volumes := s.volumes()
	film := s.record()

	s.open(to)
	s.remove("machines", from)
	seen := s.move(film, from, volumes)
	if seen.most < 2 || seen.most > volumeParallelism {
		s.Errorf("%d volumes moved at a time, want up to %d; they began in the order %v", seen.most, volumeParallelism, seen.order)
	}
	if !strings.HasPrefix(seen.order[0], "queue") || !strings.HasPrefix(seen.order[1], "queue") {
		s.Errorf("volumes began to move in the order %v, want those of high priority first", seen.order)
	}
	s.emits(from, v1alpha1.EventDrained)
	s.ready("archive", 4)
	s.ready("queue", 2)
	for pod := range volumes {
		checkContent(s, pod, from, to)
	}
	neverForced(s, film, from)

	s.patch("machines", to, `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	s.remove("machines", to)
	s.gone()
	s.emits(to, v1alpha1.EventDrainForced)
	free(s, slices.Collect(maps.Values(vms)))
}

// checkContent checks that a pod has in its volume what was written there on each of these Nodes.
func checkContent(s *space, pod string, nodes ...string) {
	s.Helper()
	var want strings.Builder
	for _, node := range nodes {
		fmt.Fprintf(&want, "%s on %s\n", pod, node)
	}
	s.eventually("pod "+pod+" logs the content of its volume", func(ctx context.Context) error {
		log, err := s.lab.Target.CoreV1().Pods(s.name).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && string(log) != want.String() {
			err = fmt.Errorf("it logs %q, want %q", log, want.String())
		}
		return err
	})
}

// free waits until no volume is attached to one of these VMs any more.
func free(s *space, vms []string) {
	s.Helper()
	s.eventually("all volumes are free", func(ctx context.Context) error {
		var wrong deviations
		all, err := s.lab.Cloud.Volumes(ctx)
		for _, v := range all {
			wrong.unless(!slices.Contains(vms, v.AttachedTo), "volume %s is attached to VM %s", v.ID, v.AttachedTo)
		}
		return errors.Join(err, wrong.err())
	})
}

// priorityClass creates a PriorityClass, and returns its name.
func priorityClass(s *space, value int32) string {
	s.Helper()
	classes := s.lab.Target.SchedulingV1().PriorityClasses()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", s.name, value)}, Value: value}
	_, err := classes.Create(s.Context(), class, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		err := classes.Delete(context.WithoutCancel(s.Context()), class.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			s.Error(err)
		}
	})
	return class.Name
}

// neverForced checks that no pod of a Node was deleted without grace.
func neverForced(s *space, film *recording, node string) {
	s.Helper()
	moments, err := film.play()
	s.must(err)
	requested := map[types.UID]bool{}
	for _, m := range moments {
		p := m.pod()
		if p == nil || p.Spec.NodeName != node || p.DeletionTimestamp == nil || requested[p.UID] {
			continue
		}
		requested[p.UID] = true
		if *p.DeletionGracePeriodSeconds == 0 {
			s.Errorf("pod %s was deleted without grace", p.Name)
		}
	}
}
