//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// TestVolumesOfAnUnknownDriver drains a Node with pods whose volumes are of a driver that neither the cluster nor the cloud has:
// they move one by one. The Nodes are simulated, because a kubelet could not mount them.
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
		set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = new("") // of existing ones
	})
	s.ready("db", replicas)
	volumes := s.volumes()
	s.eventually("all volumes are attached", func(ctx context.Context) error {
		all, err := s.lab.Target.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		attached := slices.DeleteFunc(all.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.Attacher != driver || !a.Status.Attached })
		if len(attached) != replicas {
			return fmt.Errorf("%d are", len(attached))
		}
		return nil
	})
	film := s.record()

	s.open(machines[1])
	s.remove("machines", machines[0])
	if seen := s.move(film, machines[0], volumes); seen.most != 1 {
		s.Errorf("%d volumes moved at a time, want one after the other; they began in the order %v", seen.most, seen.order)
	}
	s.emits(machines[0], v1alpha1.EventDrained)
	s.patch("machines", machines[1], `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	s.remove("machines", machines[1])
	s.gone()
}

// volumeOf creates a volume of a driver for a claim of the test.
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

// attacher sets the status of each VolumeAttachment of a driver to attached, until the test ends.
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
