package simkubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// volumes are those that a VM's pods use, as in status.volumesInUse of its Node: the attach/detach
// controller detaches none of them.
type volumes struct {
	mu     sync.Mutex // held while the Node is written, so that an older list does not overwrite a newer one
	byPod  map[string][]corev1.UniqueVolumeName
	posted []corev1.UniqueVolumeName
}

// uses reports whether the pod uses any.
func (vs *volumes) uses(pod *corev1.Pod) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return len(vs.byPod[cache.MetaObjectToName(pod).String()]) > 0
}

// mount records the volumes of a pod that starts, and reports whether all of them are attached to
// its Node.
func (h *Host) mount(ctx context.Context, v *vm, pod *corev1.Pod) (attached bool, err error) {
	var inUse []corev1.UniqueVolumeName
	for _, volume := range pod.Spec.Volumes {
		name, err := h.volumeOfClaim(ctx, pod.Namespace, volume.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return false, err
		}
		if name != "" {
			inUse = append(inUse, name)
		}
	}
	if len(inUse) == 0 {
		return true, nil
	}
	if err := h.use(ctx, v, cache.MetaObjectToName(pod).String(), inUse); err != nil {
		return false, err
	}
	node, err := h.cfg.Client.CoreV1().Nodes().Get(ctx, v.Name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("look for attached volumes of Node %s: %w", v.Name, err)
	}
	for _, name := range inUse {
		if !slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == name }) {
			return false, nil
		}
	}
	return true, nil
}

// use records that a pod uses volumes.
func (h *Host) use(ctx context.Context, v *vm, pod string, inUse []corev1.UniqueVolumeName) error {
	v.volumes.mu.Lock()
	defer v.volumes.mu.Unlock()
	if v.volumes.byPod == nil {
		v.volumes.byPod = map[string][]corev1.UniqueVolumeName{}
	}
	v.volumes.byPod[pod] = inUse
	return h.postVolumes(ctx, v)
}

// unmount forgets the volumes of a pod that has ended.
func (h *Host) unmount(ctx context.Context, v *vm, pod string) error {
	v.volumes.mu.Lock()
	defer v.volumes.mu.Unlock()
	if len(v.volumes.byPod[pod]) == 0 {
		return nil
	}
	delete(v.volumes.byPod, pod)
	return h.postVolumes(ctx, v)
}

// unmountDeleted forgets the volumes of a pod that was removed without waiting for its end.
func (h *Host) unmountDeleted(ctx context.Context, pod string) error {
	h.mu.Lock()
	vms := slices.Collect(maps.Values(h.byID))
	h.mu.Unlock()
	for _, v := range vms {
		if err := h.unmount(ctx, v, pod); err != nil {
			return err
		}
	}
	return nil
}

// postVolumes writes the list to the Node, if it has changed. v.volumes.mu is held.
func (h *Host) postVolumes(ctx context.Context, v *vm) error {
	all := []corev1.UniqueVolumeName{} // Not nil, which would not be part of the patch.
	for _, names := range v.volumes.byPod {
		all = append(all, names...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if slices.Equal(all, v.volumes.posted) {
		return nil
	}
	patch, err := statusPatch(map[string]any{"volumesInUse": all})
	if err != nil {
		return err
	}
	_, err = h.cfg.Client.CoreV1().Nodes().Patch(ctx, v.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("report the volumes in use of Node %s: %w", v.Name, err)
	}
	v.volumes.posted = all
	return nil
}

// volumeOfClaim returns the name of a claim's volume in a Node's status; "" for volumes that are
// not of this cloud, and need not be attached.
func (h *Host) volumeOfClaim(ctx context.Context, namespace, claim string) (corev1.UniqueVolumeName, error) {
	core := h.cfg.Client.CoreV1()
	pvc, err := core.PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read claim %s/%s: %w", namespace, claim, err)
	}
	pv, err := core.PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the volume of claim %s/%s: %w", namespace, claim, err)
	}
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != cloudapi.CSIDriver {
		return "", nil
	}
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + pv.Spec.CSI.Driver + "^" + pv.Spec.CSI.VolumeHandle), nil
}
