package drainer

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/drainer/drain"
)

// meta returns the metadata that drains need.
func meta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
	}
}

// Trim returns what drains need of a pod.
func Trim(p *corev1.Pod) *corev1.Pod {
	small := &corev1.Pod{ObjectMeta: meta(p.ObjectMeta)}
	small.Labels, small.OwnerReferences = p.Labels, p.OwnerReferences
	if mirror, is := p.Annotations[corev1.MirrorPodAnnotationKey]; is {
		small.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirror}
	}
	small.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Priority: p.Spec.Priority}
	for _, v := range p.Spec.Volumes {
		if claim := v.PersistentVolumeClaim; claim != nil {
			small.Spec.Volumes = append(small.Spec.Volumes, corev1.Volume{
				Name: v.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim},
			})
			continue
		}
		if drain.IsInline(v) {
			small.Spec.Volumes = append(small.Spec.Volumes, v)
		}
		if v.Ephemeral != nil {
			v.Ephemeral = &corev1.EphemeralVolumeSource{}
			small.Spec.Volumes = append(small.Spec.Volumes, v)
		}
	}
	small.Status.Phase = p.Status.Phase
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			small.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return small
}

func trimBudget(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	status := b.Status
	status.Conditions = nil
	return &policyv1.PodDisruptionBudget{ObjectMeta: meta(b.ObjectMeta), Spec: b.Spec, Status: status}
}

func trimClaim(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: meta(c.ObjectMeta), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: c.Spec.VolumeName},
	}
}

func trimVolume(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	spec := v.Spec
	spec.NodeAffinity, spec.MountOptions = nil, nil
	return &corev1.PersistentVolume{ObjectMeta: meta(v.ObjectMeta), Spec: spec}
}

func trimAttachment(a *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	source := storagev1.VolumeAttachmentSource{PersistentVolumeName: a.Spec.Source.PersistentVolumeName}
	return &storagev1.VolumeAttachment{
		ObjectMeta: meta(a.ObjectMeta), Status: storagev1.VolumeAttachmentStatus{Attached: a.Status.Attached},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: a.Spec.Attacher, NodeName: a.Spec.NodeName, Source: source},
	}
}

func trimDriver(d *storagev1.CSIDriver) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: meta(d.ObjectMeta), Spec: storagev1.CSIDriverSpec{AttachRequired: d.Spec.AttachRequired}}
}
