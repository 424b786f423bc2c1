package simkubelet

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// recheck is how soon a change of the time that pods take to end takes effect.
const recheck = time.Second

// awaitVolumes is how often a pod that waits for its volumes is checked.
const awaitVolumes = 500 * time.Millisecond

// stepPod does what is due for a pod, if its Node's VM can: a pod of a suspended VM is not changed,
// and is stepped again when the VM continues.
func (h *Host) stepPod(ctx context.Context, key string) time.Duration {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	wait, err := h.workOnPod(bounded, key)
	switch {
	case err == nil:
		return wait
	case apierrors.IsNotFound(err), ctx.Err() != nil:
		return guest.Never
	default:
		h.cfg.Log.Warn("Simulated kubelet failed to update a pod; trying again", "pod", key, "err", err)
		return firstRetry
	}
}

func (h *Host) workOnPod(ctx context.Context, key string) (time.Duration, error) {
	obj, exists, err := h.bound.GetIndexer().GetByKey(key)
	if err != nil {
		return guest.Never, fmt.Errorf("look for the pod: %w", err)
	}
	if !exists {
		return guest.Never, h.unmountDeleted(ctx, key)
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return guest.Never, nil
	}
	v := h.kubeletOf(pod)
	switch {
	case v == nil, runs(pod) && pod.DeletionTimestamp == nil:
		return guest.Never, nil
	case pod.DeletionTimestamp == nil:
		return h.startPod(ctx, v, pod)
	}
	if wait := h.untilEnd(pod); wait > 0 {
		return wait, nil
	}
	return guest.Never, h.endPod(ctx, v, pod)
}

// kubeletOf returns the VM whose kubelet runs a pod, if it is healthy.
func (h *Host) kubeletOf(pod *corev1.Pod) *vm {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.byName[pod.Spec.NodeName]
	if v == nil || v.nodeUID == "" || v.gone || v.health == guest.Frozen {
		return nil
	}
	if v.health == guest.NotReady && pod.DeletionTimestamp == nil {
		return nil // Its container runtime is down.
	}
	return v
}

// runs reports whether there is nothing to start: the pod is Running and Ready, or has ended.
func runs(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.Status.Phase == corev1.PodRunning
		}
	}
	return false
}

// startPod makes a pod Running and Ready by one write, once its volumes are attached; until then it
// returns when to check again.
func (h *Host) startPod(ctx context.Context, v *vm, pod *corev1.Pod) (time.Duration, error) {
	if attached, err := h.mount(ctx, v, pod); !attached || err != nil {
		return awaitVolumes, err
	}
	patch, err := statusPatch(runningStatus(pod, v.IP, metav1.NewTime(h.cfg.Clock.Now())))
	if err != nil {
		return guest.Never, err
	}
	_, err = h.cfg.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return guest.Never, fmt.Errorf("start pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return guest.Never, nil
}

// untilEnd returns for how long not to change a pod that is being deleted, and 0 when it has ended.
func (h *Host) untilEnd(pod *corev1.Pod) time.Duration {
	takes := time.Duration(h.cloud.Settings().PodTerminationTime)
	if text, set := pod.Annotations[cloudapi.AnnotationPodTermination]; set {
		if own, err := time.ParseDuration(text); err == nil {
			takes = own
		}
	}
	now := h.cfg.Clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, seen := h.ending[pod.UID]; !seen {
		h.ending[pod.UID] = now
	}
	if takes < 0 {
		return recheck
	}
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
	return min(recheck, max(0, h.ending[pod.UID].Add(min(takes, grace)).Sub(now)))
}

// endPod removes a pod whose containers have ended.
func (h *Host) endPod(ctx context.Context, v *vm, pod *corev1.Pod) error {
	if err := h.unmount(ctx, v, cache.MetaObjectToName(pod).String()); err != nil {
		return err
	}
	err := h.cfg.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("end pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// runningStatus is the status of a pod all of whose containers run.
func runningStatus(pod *corev1.Pod, hostIP string, now metav1.Time) corev1.PodStatus {
	ip := hostIP
	if !pod.Spec.HostNetwork {
		ip = podIP(pod.UID)
	}
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, HostIP: hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}},
		PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, runningContainer(pod, c, now))
	}
	for _, c := range pod.Spec.InitContainers {
		running := runningContainer(pod, c, now)
		if ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
			running.Started = new(false)
			running.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: now, FinishedAt: now, ContainerID: running.ContainerID,
			}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, running)
	}
	return status
}

func runningContainer(pod *corev1.Pod, c corev1.Container, now metav1.Time) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: "simulated://" + c.Image, ContainerID: "simulated://" + string(pod.UID) + "/" + c.Name,
		Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}
}

// podIP is an address in 10.128.0.0/9 that is derived from the UID, so that it need not be stored.
// Two of ten thousand pods may share one; nothing listens on it.
func podIP(uid types.UID) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	n := h.Sum32()
	return netip.AddrFrom4([4]byte{10, 128 | byte(n>>16), byte(n >> 8), byte(n)}).String()
}
