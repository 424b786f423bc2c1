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
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// volumeParallelism is the default of --drain-volume-parallelism.
const volumeParallelism = 4

// databases makes a StatefulSet whose pods come and go at the same time, so that it is not the StatefulSet that lets them
// move one after the other. They run on any open Node.
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

// moves is what a recording shows of volumes that move from a Node to others: from the time that their pods are asked to
// end until they are attached elsewhere.
type moves struct {
	// order in which they began.
	order []string
	// most that moved at a time.
	most int
	done map[string]bool
}

// watchMoves reads from a recording how the volumes of pods move from a Node. Errors: what must never happen.
func watchMoves(film *recording, from string, volumes map[string]string) (moves, error) {
	seen := moves{done: map[string]bool{}}
	pods := map[string]string{} // by volume
	for pod, volume := range volumes {
		pods[volume] = pod
	}
	moving, detached := map[string]bool{}, map[string]bool{}
	moments, err := film.play()
	for _, m := range moments {
		if p := m.pod(); p != nil && p.Spec.NodeName == from && p.DeletionTimestamp != nil && !slices.Contains(seen.order, p.Name) {
			seen.order = append(seen.order, p.Name)
			moving[p.Name] = true
			seen.most = max(seen.most, len(moving))
		}
		a := m.attachment()
		if a == nil || a.Spec.Source.PersistentVolumeName == nil || pods[*a.Spec.Source.PersistentVolumeName] == "" {
			continue
		}
		switch pod := pods[*a.Spec.Source.PersistentVolumeName]; {
		case a.Spec.NodeName == from && !slices.Contains(seen.order, pod) && (m.gone || a.DeletionTimestamp != nil):
			err = errors.Join(err, fmt.Errorf("the volume of %s was detached before its pod was asked to go", pod))
		case a.Spec.NodeName == from:
			detached[pod] = m.gone
		case a.Status.Attached && !detached[pod]:
			err = errors.Join(err, fmt.Errorf("the volume of %s was attached to %s, and not detached", pod, a.Spec.NodeName))
		case a.Status.Attached && !m.gone:
			delete(moving, pod)
			seen.done[pod] = true
		}
	}
	return seen, err
}

// move waits until the volumes of all pods have moved from a Node.
func (s *space) move(film *recording, from string, volumes map[string]string) (seen moves) {
	s.Helper()
	s.eventually("all volumes have moved", func(context.Context) (err error) {
		if seen, err = watchMoves(film, from, volumes); err == nil && len(seen.done) != len(volumes) {
			err = fmt.Errorf("begun: %v, done: %v", seen.order, slices.Sorted(maps.Keys(seen.done)))
		}
		return err
	})
	return seen
}

// TestRealKubeletVolumes drains a Node with a real kubelet and pods with volumes of a driver that the cluster knows. They
// move to another Node, some at a time. That one is then deleted by force.
func TestRealKubeletVolumes(t *testing.T) {
	t.Parallel()
	if !kubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	s := newSpace(t, shared(t), "kubelet-volumes", realKubelet)
	s.workload()
	machines := s.stand(2)
	from, to := machines[0], machines[1]
	vms := s.joined()
	s.open(from)
	important := s.priority(1000)
	s.databases("archive", 4)
	s.databases("queue", 2, func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.PriorityClassName = important })
	s.ready("archive", 4)
	s.ready("queue", 2)
	volumes := s.volumes()
	film := s.record()

	s.open(to)
	s.remove("machines", from)
	seen := s.move(film, from, volumes)
	if seen.most != volumeParallelism {
		s.Errorf("%d volumes moved at a time, want %d; they began in the order %v", seen.most, volumeParallelism, seen.order)
	}
	if len(seen.order) != 6 || !strings.HasPrefix(seen.order[0], "queue") || !strings.HasPrefix(seen.order[1], "queue") {
		s.Errorf("volumes began to move in the order %v, want those of high priority first", seen.order)
	}
	s.tells(from, v1alpha1.EventDrained)
	s.ready("archive", 4)
	s.ready("queue", 2)
	for pod := range volumes {
		s.remembers(pod, from, to)
	}
	s.neverForced(film, from)

	s.eventually("the first machine is gone", func(ctx context.Context) error {
		left, err := s.machines(ctx, "")
		if err == nil && len(left) != 1 {
			err = fmt.Errorf("there are %d", len(left))
		}
		return err
	})
	s.patch("machines", to, `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	s.remove("machines", to)
	s.gone()
	s.tells(to, v1alpha1.EventDrainForced)
	s.free(slices.Collect(maps.Values(vms)))
}

// remembers makes sure that a pod has in its volume what was written there on each of these Nodes.
func (s *space) remembers(pod string, nodes ...string) {
	s.Helper()
	var want strings.Builder
	for _, node := range nodes {
		fmt.Fprintf(&want, "%s on %s\n", pod, node)
	}
	s.eventually("pod "+pod+" says what is in its volume", func(ctx context.Context) error {
		log, err := s.lab.Target.CoreV1().Pods(s.name).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && string(log) != want.String() {
			err = fmt.Errorf("it says %q, want %q", log, want.String())
		}
		return err
	})
}

// neverForced makes sure that no pod of a Node was deleted without grace.
func (s *space) neverForced(film *recording, node string) {
	s.Helper()
	moments, err := film.play()
	s.must(err)
	asked := map[types.UID]bool{}
	for _, m := range moments {
		p := m.pod()
		if p == nil || p.Spec.NodeName != node || p.DeletionTimestamp == nil || asked[p.UID] {
			continue
		}
		asked[p.UID] = true
		if *p.DeletionGracePeriodSeconds == 0 {
			s.Errorf("pod %s was deleted without grace", p.Name)
		}
	}
}

// free makes sure that no volume is attached to one of these VMs any more.
func (s *space) free(vms []string) {
	s.Helper()
	s.eventually("all volumes are free", func(ctx context.Context) error {
		var wrong complaints
		all, err := s.lab.Cloud.Volumes(ctx)
		for _, v := range all {
			wrong.unless(!slices.Contains(vms, v.AttachedTo), "volume %s is attached to VM %s", v.ID, v.AttachedTo)
		}
		return errors.Join(err, wrong.err())
	})
}

// TestVolumesOfAnUnknownDriver drains a Node with pods whose volumes are of a driver that neither the cluster nor the cloud
// knows: they move one by one. The Nodes are simulated, because a kubelet could not mount them.
func TestVolumesOfAnUnknownDriver(t *testing.T) {
	t.Parallel()
	const driver, replicas = "unknown.example.com", 3
	s := newSpace(t, shared(t), "unknown-volumes", "")
	s.workload()
	machines := s.stand(2)
	s.attacher(driver)
	for i := range replicas {
		s.volumeOf(driver, fmt.Sprintf("data-db-%d", i))
	}
	s.open(machines[0])
	s.databases("db", replicas, func(set *appsv1.StatefulSet) {
		set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = new("") // of those that are there already
	})
	s.ready("db", replicas)
	volumes := s.volumes()
	s.eventually("all volumes are attached", func(ctx context.Context) error {
		all, err := s.lab.Target.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		attached := 0
		for _, a := range all.Items {
			if a.Spec.Attacher == driver && a.Status.Attached {
				attached++
			}
		}
		if attached != replicas {
			return fmt.Errorf("%d are", attached)
		}
		return nil
	})
	film := s.record()

	s.open(machines[1])
	s.remove("machines", machines[0])
	if seen := s.move(film, machines[0], volumes); seen.most != 1 {
		s.Errorf("%d volumes moved at a time, want one after the other; they began in the order %v", seen.most, seen.order)
	}
	s.tells(machines[0], v1alpha1.EventDrained)
	s.patch("machines", machines[1], `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	s.remove("machines", machines[1])
	s.gone()
}

// volumeOf makes a volume of a driver for a claim of the test.
func (s *space) volumeOf(driver, claim string) {
	s.Helper()
	volumes := s.lab.Target.CoreV1().PersistentVolumes()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.name + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: s.name, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: s.name + "-" + claim},
			},
		},
	}
	_, err := volumes.Create(s.Context(), pv, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		if err := volumes.Delete(context.WithoutCancel(s.Context()), pv.Name, metav1.DeleteOptions{}); err != nil {
			s.Error(err)
		}
	})
}

// attacher says of each VolumeAttachment of a driver that the volume is attached, until the test ends.
func (s *space) attacher(driver string) {
	s.Helper()
	attachments := s.lab.Target.StorageV1().VolumeAttachments()
	list, err := attachments.List(s.Context(), metav1.ListOptions{})
	s.must(err)
	w, err := harness.Watch(s.Context(), list.ResourceVersion, attachments.Watch)
	s.must(err)
	done := make(chan error, 1)
	go func() {
		var failed error
		for e := range w.ResultChan() {
			a, _ := e.Object.(*storagev1.VolumeAttachment)
			if a == nil || a.Spec.Attacher != driver || a.Status.Attached || a.DeletionTimestamp != nil {
				continue
			}
			_, err := attachments.Patch(s.Context(), a.Name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
			if s.Context().Err() == nil && !apierrors.IsNotFound(err) {
				failed = errors.Join(failed, err)
			}
		}
		done <- failed
	}()
	s.Cleanup(func() {
		if err := <-done; err != nil {
			s.Error(err)
		}
	})
}
