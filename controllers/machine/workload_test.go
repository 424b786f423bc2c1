package machine

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

const (
	// moves is how long kubelet, attacher and scheduler take for each of their steps.
	moves = time.Second
	// expires is when a disruption that was taken, and not used, is returned.
	expires = 2 * time.Minute
	// elsewhere is the Node that pods go to.
	elsewhere = "other"
)

// workload contains what runs on the machine's Node, with those in the target cluster who serve it:
// kubelet, scheduler, attacher and the controller of budgets.
type workload struct {
	*bench

	isKubeletDead bool   // it unmounts nothing any more
	blockedPod    string // a pod that may not be evicted, guarded by the bench's mu
}

// works puts on the Node: two pods of which one at a time may go; one that two budgets guard; one
// with a volume of a CSI driver, and one with a volume that only the cloud's driver knows, both
// created again elsewhere; and one that stays.
func (b *bench) works() *workload {
	b.Helper()
	w := &workload{bench: b}
	b.cloud.Ends = func(*fakecloud.Resource) {
		if left := w.left(); len(left) > 0 {
			b.Errorf("the VM is deleted while its Node has %v; the machine reports %q", left, b.operation())
		}
	}
	apiserver.Follow(b.target, "volumeattachments", w.attachmentChanged)
	b.target.Lose(func(r apiserver.Request) error {
		if r.Verb == "patch" && r.Resource == "poddisruptionbudgets" {
			w.budgetWritten(r.Name)
		}
		return nil
	})
	b.ends = w.podEnds
	for _, name := range []string{"web", "one", "two"} {
		app := map[string]string{"web": "web", "one": "twice", "two": "twice"}[name]
		apiserver.Add(b.target, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name), Generation: 1},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			Status: policyv1.PodDisruptionBudgetStatus{
				ObservedGeneration: 1, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2,
			},
		})
	}
	b.mu.Lock()
	b.refusal = w.refuses
	b.mu.Unlock()
	b.pod("web-1", labelled("web"))
	b.pod("web-2", labelled("web"))
	b.pod("twice", labelled("twice"))
	b.pod("proxy", owned("DaemonSet"))
	apiserver.Add(b.target, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.test"}})
	w.volume("db", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.test", VolumeHandle: "db"}})
	w.volume("old", corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-old"}})
	w.attach("db", "m")
	b.changeNode(func(n *corev1.Node) {
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/csi.test^db"}, {Name: "kubernetes.io/aws-ebs/vol-old"}}
	})
	b.pass(time.Second)
	return w
}

func owned(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: new(true)}} }
}

// volume creates a volume, its claim and the pod that uses it, all of one name.
func (w *workload) volume(name string, source corev1.PersistentVolumeSource) {
	w.Helper()
	apiserver.Add(w.target, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
	})
	apiserver.Add(w.target, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name},
	})
	w.pod(name, owned("StatefulSet"), func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}
	})
}

// attach has a volume attached to a Node.
func (w *workload) attach(volume, node string) {
	w.Helper()
	apiserver.Add(w.target, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume + "-on-" + node, Finalizers: []string{"external-attacher/csi-test"}},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	})
}

// detach detaches a volume from the Node; if a controller creates its pod anew, it is then attached
// to another Node.
func (w *workload) detach(volume string) {
	attachment := volume + "-on-m"
	isAttached := w.target.Get("volumeattachments", "", attachment) != nil
	w.target.Remove("volumeattachments", "", attachment)
	w.changeNode(func(n *corev1.Node) {
		n.Status.VolumesAttached = slices.DeleteFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
			return strings.HasSuffix(string(a.Name), volume)
		})
	})
	if isAttached {
		time.AfterFunc(moves, func() { w.attach(volume, elsewhere) })
	}
}

// attachmentChanged is the attacher: a volume whose attachment is being deleted is detached.
func (w *workload) attachmentChanged(a *storagev1.VolumeAttachment, gone bool) {
	if !gone && a.DeletionTimestamp != nil {
		time.AfterFunc(moves, func() { w.detach(*a.Spec.Source.PersistentVolumeName) })
	}
}

// podEnds has the volume of a pod that has ended detached, and its budgets know of it.
func (w *workload) podEnds(p *corev1.Pod) {
	if len(p.Spec.Volumes) > 0 && !w.isKubeletDead {
		time.AfterFunc(moves, func() { w.detach(p.Name) })
	}
	time.AfterFunc(10*moves, func() { w.replenish(p.Labels["app"]) }) // another one is ready by then
}

// refuses returns the answer of the eviction API for a pod.
func (w *workload) refuses(pod string) error {
	w.mu.Lock()
	isHeld := w.blockedPod == pod
	w.mu.Unlock()
	switch {
	case isHeld:
		return apierrors.NewTooManyRequests("it is held", 0)
	case !strings.HasPrefix(pod, "web"):
		return nil
	}
	allowed := false
	w.write("web", func(b *policyv1.PodDisruptionBudget) {
		allowed, b.Status.DisruptionsAllowed = b.Status.DisruptionsAllowed > 0, 0
	})
	if !allowed {
		return apierrors.NewTooManyRequests("its budget does not allow it", 0)
	}
	return nil
}

// write writes a budget as its controller does.
func (w *workload) write(name string, change func(*policyv1.PodDisruptionBudget)) {
	apiserver.Change(w.target, "poddisruptionbudgets", "a", name, func(b *policyv1.PodDisruptionBudget) {
		change(b)
		b.Status.ObservedGeneration = b.Generation
	})
}

// budgetWritten simulates the controller of budgets after a write of others: one that is marked
// is counted soon, and what was taken and not used is returned after some time.
func (w *workload) budgetWritten(name string) {
	time.AfterFunc(moves, func() { w.write(name, func(*policyv1.PodDisruptionBudget) {}) })
	time.AfterFunc(expires, func() { w.replenish("twice") })
}

// replenish has the budgets of an app allow the next disruption.
func (w *workload) replenish(app string) {
	for _, name := range []string{"web", "one", "two"} {
		w.write(name, func(b *policyv1.PodDisruptionBudget) {
			if b.Spec.Selector.MatchLabels["app"] == app && b.Status.DisruptionsAllowed == 0 {
				b.Status.DisruptionsAllowed, b.Status.DisruptedPods = 1, nil
			}
		})
	}
}

// left returns what still has to leave the Node before its VM is deleted.
func (w *workload) left() (left []string) {
	for _, p := range apiserver.ReadAll[corev1.Pod](w.target, "pods") {
		if p.Spec.NodeName == "m" && p.Name != "proxy" {
			left = append(left, "pod "+p.Name)
		}
	}
	for _, a := range apiserver.ReadAll[storagev1.VolumeAttachment](w.target, "volumeattachments") {
		if a.Spec.NodeName == "m" {
			left = append(left, "attachment "+a.Name)
		}
	}
	// Otherwise volumes without an attachment are not detached.
	if node := apiserver.Read[corev1.Node](w.target, "nodes", "", "m"); node != nil && !w.isKubeletDead {
		for _, v := range node.Status.VolumesAttached {
			left = append(left, "volume "+string(v.Name))
		}
	}
	return left
}
