package drainer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

// What an API server sends of volumes and pods, and drains do not need, is not kept: 390,000 terms
// have 780 kB, and take 18 MB.
func TestWhatDrainsKeepIsSmall(t *testing.T) {
	const n = 100_000
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, n)}},
		MountOptions: make([]string, n),
	}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, n)}}
	for range 250 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v"})
	}
	for name, size := range map[string]int64{"volume": objectcache.SizeOf(trimVolume(volume)), "pod": objectcache.SizeOf(Trim(pod))} {
		if size > 4<<10 {
			t.Errorf("a %s takes %d bytes, want some kB", name, size)
		}
	}
}

// The objects of all drains of the cluster of a namespace have one bound, and those of the control
// cluster none.
func TestOnlyClustersOfNamespacesAreBounded(t *testing.T) {
	if memoryOf(&target.Cluster{}) != nil || memoryOf(&target.Cluster{Name: "n"}) == nil {
		t.Error("want a bound for the cluster of a namespace only")
	}
}
