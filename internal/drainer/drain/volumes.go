package drain

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// volume is attached to Nodes. Its key is the name of its PersistentVolume.
type volume struct {
	key string
	// known reports whether its detachment can be observed: the cluster knows its CSI driver, or the
	// cloud's driver knows the volume.
	known bool
	// recreated reports whether it will be attached to another Node.
	recreated bool
}

// ClaimsOf returns the claims of a pod, including those of its generic ephemeral volumes.
func ClaimsOf(pod *corev1.Pod) []types.NamespacedName {
	var claims []types.NamespacedName
	for _, v := range pod.Spec.Volumes {
		if name := claimName(pod, v); name != "" {
			claims = append(claims, types.NamespacedName{Namespace: pod.Namespace, Name: name})
		}
	}
	return claims
}

func claimName(pod *corev1.Pod, v corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// volumesOf returns the volumes of a pod that are attached to its Node. A pod that has ended uses
// none any more.
func volumesOf(f Facts, pod *corev1.Pod) []volume {
	if hasEnded(pod) {
		return nil
	}
	var found []volume
	for _, v := range pod.Spec.Volumes {
		claim := f.Volumes.Claims[types.NamespacedName{Namespace: pod.Namespace, Name: claimName(pod, v)}]
		if claim == nil || claim.Spec.VolumeName == "" {
			continue
		}
		known, attachable := attachability(f, claim.Spec.VolumeName)
		if attachable {
			recreated := v.PersistentVolumeClaim != nil && claim.DeletionTimestamp == nil && isRecreated(pod)
			found = append(found, volume{key: claim.Spec.VolumeName, known: known, recreated: recreated})
		}
	}
	return found
}

// attachability reports whether a volume is attached to Nodes at all, and whether its detachment
// can be observed.
func attachability(f Facts, key string) (known, attachable bool) {
	pv := f.Volumes.PVs[key]
	switch {
	case f.Volumes.IDs[key] != "":
		return true, true
	case pv == nil:
		return false, true
	case pv.Spec.CSI != nil:
		csi := f.Volumes.CSIDrivers[pv.Spec.CSI.Driver]
		return csi != nil, csi == nil || csi.Spec.AttachRequired == nil || *csi.Spec.AttachRequired
	}
	s := pv.Spec.PersistentVolumeSource
	isMounted := s.HostPath != nil || s.Local != nil || s.NFS != nil || s.CephFS != nil || s.Glusterfs != nil || s.Quobyte != nil ||
		s.AzureFile != nil
	return false, !isMounted
}

// IsInline reports whether a pod's volume is attached to its Node without a PersistentVolume. There
// are no other kinds: inline volumes of CSI drivers are not attached.
func IsInline(v corev1.Volume) bool {
	s := v.VolumeSource
	return s.AWSElasticBlockStore != nil || s.GCEPersistentDisk != nil || s.AzureDisk != nil || s.Cinder != nil ||
		s.VsphereVolume != nil || s.PortworxVolume != nil
}

// inlineUsers returns the pods that may use the attachments of inline volumes. Which of them uses
// which is not recorded.
func inlineUsers(f Facts) []*corev1.Pod {
	var users []*corev1.Pod
	for _, pod := range f.Pods {
		if !hasEnded(pod) && slices.ContainsFunc(pod.Spec.Volumes, IsInline) {
			users = append(users, pod)
		}
	}
	return users
}

// attachmentKey names the volume of an attachment.
func attachmentKey(a *storagev1.VolumeAttachment) string {
	if a.Spec.Source.PersistentVolumeName != nil {
		return *a.Spec.Source.PersistentVolumeName
	}
	return "attachment/" + a.Name // of an inline volume of a pod, which has no PersistentVolume
}

// isAttached reports whether the volume is attached to the Node, or being attached or detached.
func isAttached(f Facts, key string) bool {
	for _, a := range f.Volumes.Attachments {
		if a.Spec.NodeName == f.Node.Name && attachmentKey(a) == key {
			return true
		}
	}
	pv, id := f.Volumes.PVs[key], f.Volumes.IDs[key]
	for _, a := range f.Node.Status.VolumesAttached {
		name := string(a.Name)
		if pv != nil && pv.Spec.CSI != nil && name == "kubernetes.io/csi/"+pv.Spec.CSI.Driver+"^"+pv.Spec.CSI.VolumeHandle {
			return true
		}
		if id != "" && endsWith(name, id) {
			return true
		}
	}
	return false
}

// endsWith reports whether the last part of a volume's name is the cloud's ID. The part before it
// depends on the plugin.
func endsWith(name, id string) bool {
	before, found := strings.CutSuffix(name, id)
	return found && (before == "" || strings.ContainsAny(before[len(before)-1:], "/^: "))
}

// isElsewhere reports whether the volume is attached to another Node.
func isElsewhere(f Facts, key string) bool {
	for _, a := range f.Volumes.Attachments {
		if a.Spec.NodeName != f.Node.Name && attachmentKey(a) == key && a.Status.Attached && a.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// traffic is the movement of the volumes of a Node.
type traffic struct {
	users  map[string][]*corev1.Pod // of each volume
	moving map[string]bool          // whether each volume that moves is known
	// detaching are those of them that no pod uses any more and that are still attached.
	detaching []string
	stuck     map[string]time.Time // volumes that no pod uses and that do not detach; since when they should be detached
	memory    map[string]VolumeMemory
	next      time.Time // when this may be different, with nothing else happening
}

// follow returns the movement of the volumes, and what to remember of it. isGoing reports which
// pods are leaving.
func follow(f Facts, isGoing func(*corev1.Pod) bool) traffic {
	t := traffic{
		users: map[string][]*corev1.Pod{}, moving: map[string]bool{}, stuck: map[string]time.Time{}, memory: map[string]VolumeMemory{},
	}
	for _, pod := range f.Pods {
		for _, v := range volumesOf(f, pod) {
			t.users[v.key] = append(t.users[v.key], pod)
			m := t.memory[v.key]
			m.Recreated = m.Recreated || v.recreated && !stays(pod)
			t.memory[v.key] = m
		}
	}
	if users := inlineUsers(f); len(users) > 0 {
		for _, a := range f.Volumes.Attachments {
			if key := attachmentKey(a); a.Spec.NodeName == f.Node.Name && a.Spec.Source.PersistentVolumeName == nil {
				t.users[key], t.memory[key] = users, VolumeMemory{}
			}
		}
	}
	for key, users := range t.users {
		if allGoing(users, isGoing) {
			t.moving[key], _ = attachability(f, key)
		}
	}
	for _, a := range f.Volumes.Attachments {
		if a.Spec.NodeName == f.Node.Name {
			t.idle(f, attachmentKey(a))
		}
	}
	for key := range f.Memory.Volumes {
		t.idle(f, key)
	}
	return t
}

func allGoing(pods []*corev1.Pod, isGoing func(*corev1.Pod) bool) bool {
	for _, pod := range pods {
		if !isGoing(pod) {
			return false
		}
	}
	return true
}

// idle handles a volume that no pod of the Node uses: it is detached, and then attached to another
// Node.
func (t *traffic) idle(f Facts, key string) {
	if _, done := t.memory[key]; done { // also if it is in use
		return
	}
	m, now := f.Memory.Volumes[key], f.Now
	known, _ := attachability(f, key)
	switch {
	case isAttached(f, key):
		if m.IdleSince.IsZero() {
			m.IdleSince = now
		}
		m.DetachedSince = time.Time{}
		if until := m.IdleSince.Add(f.Settings.DetachTimeout); now.Before(until) {
			t.moving[key], t.next = known, earliest(t.next, until)
			t.detaching = append(t.detaching, key)
		} else {
			t.stuck[key] = until
		}
	case !m.Recreated || isElsewhere(f, key):
		return // no further change is expected
	default:
		if m.DetachedSince.IsZero() {
			m.DetachedSince = now
		}
		until := m.DetachedSince.Add(f.Settings.ReattachTimeout)
		if !now.Before(until) {
			return
		}
		t.moving[key], t.next = known, earliest(t.next, until)
	}
	t.memory[key] = m
}
