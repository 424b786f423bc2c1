package machine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

var (
	budgets     = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	attachments = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattachments"}
)

const (
	// moves is how long kubelet, attacher and scheduler take for each of their steps.
	moves = time.Second
	// expires is when a disruption that was taken, and not used, is returned.
	expires = 2 * time.Minute
	// elsewhere is the Node that pods go to.
	elsewhere = "other"
)

// workload is what runs on the machine's Node, with those in the target cluster who serve it: kubelet, scheduler, attacher
// and the controller of budgets.
type workload struct {
	*bench

	isKubeletDead bool   // it unmounts nothing any more
	blockedPod    string // a pod that may not be evicted, guarded by the bench's mu
}

// works puts on the Node: two pods of which one at a time may go; one that two budgets guard; one with a volume of a CSI
// driver, and one with a volume that only the cloud's driver knows, both made anew elsewhere; and one that stays.
func (b *bench) works() *workload {
	b.Helper()
	w := &workload{bench: b}
	b.cloud.deletes = func() {
		if left := w.left(); len(left) > 0 {
			b.Errorf("the VM is deleted while its Node has %v; the machine reports %q", left, b.operation())
		}
	}
	react(b.target, "delete", "pods", w.deletePod)
	react(b.target, "delete", "volumeattachments", w.deleteAttachment)
	react(b.target, "patch", "poddisruptionbudgets", w.budgetWritten)
	b.ends = w.podEnds
	for _, name := range []string{"web", "one", "two"} {
		app := map[string]string{"web": "web", "one": "twice", "two": "twice"}[name]
		b.must(b.tracker.Add(&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a", UID: types.UID(name), Generation: 1, ResourceVersion: "0"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			Status: policyv1.PodDisruptionBudgetStatus{
				ObservedGeneration: 1, DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1, ExpectedPods: 2,
			},
		}))
	}
	b.mu.Lock()
	b.refusal = w.refuses
	b.mu.Unlock()
	b.pod("web-1", labelled("web"))
	b.pod("web-2", labelled("web"))
	b.pod("twice", labelled("twice"))
	b.pod("proxy", owned("DaemonSet"))
	b.must(b.tracker.Add(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.test"}}))
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

// volume makes a volume, its claim and the pod that uses it, all of one name.
func (w *workload) volume(name string, source corev1.PersistentVolumeSource) {
	w.Helper()
	w.must(w.tracker.Add(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
	}))
	w.must(w.tracker.Add(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "a"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name},
	}))
	w.pod(name, owned("StatefulSet"), func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}
	})
}

// attach has a volume attached to a Node.
func (w *workload) attach(volume, node string) {
	w.Helper()
	w.must(w.tracker.Add(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volume + "-on-" + node},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}))
}

// detach detaches a volume from the Node; if a controller creates its pod anew, it is then attached to another Node.
func (w *workload) detach(volume string) {
	w.changeNode(func(n *corev1.Node) {
		n.Status.VolumesAttached = slices.DeleteFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
			return strings.HasSuffix(string(a.Name), volume)
		})
	})
	if w.tracker.Delete(attachments, "", volume+"-on-m") == nil {
		time.AfterFunc(moves, func() { w.attach(volume, elsewhere) })
	}
}

// deletePod is what an API server does for pods that are deleted: without grace they go at once.
func (w *workload) deletePod(action clienttesting.Action) (bool, runtime.Object, error) {
	deletion, _ := action.(clienttesting.DeleteAction)
	found, err := w.tracker.Get(pods, action.GetNamespace(), deletion.GetName())
	if err != nil {
		return true, nil, err
	}
	p, _ := found.(*corev1.Pod)
	if uid := deletion.GetDeleteOptions().Preconditions.UID; *uid != p.UID {
		return true, nil, apierrors.NewConflict(corev1.Resource("pods"), p.Name, fmt.Errorf("it is %s, and not %s", p.UID, *uid))
	}
	if seconds := deletion.GetDeleteOptions().GracePeriodSeconds; seconds != nil && *seconds == 0 {
		w.dropPod(p)
		return true, nil, nil
	}
	return true, nil, w.endPod(p)
}

// deleteAttachment is what API server and attacher do.
func (w *workload) deleteAttachment(action clienttesting.Action) (bool, runtime.Object, error) {
	deletion, _ := action.(clienttesting.DeleteAction)
	found, err := w.tracker.Get(attachments, "", deletion.GetName())
	if err != nil {
		return true, nil, err
	}
	a, _ := found.(*storagev1.VolumeAttachment)
	if a = a.DeepCopy(); a.DeletionTimestamp != nil {
		return true, nil, nil
	}
	a.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	time.AfterFunc(moves, func() { w.detach(*a.Spec.Source.PersistentVolumeName) })
	return true, nil, w.tracker.Update(attachments, a, "")
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
	b := w.budget("web")
	if b.Status.DisruptionsAllowed == 0 {
		return apierrors.NewTooManyRequests("its budget does not allow it", 0)
	}
	b.Status.DisruptionsAllowed = 0
	return w.write(b)
}

func (w *workload) budget(name string) *policyv1.PodDisruptionBudget {
	found, err := w.tracker.Get(budgets, "a", name)
	w.must(err)
	b, _ := found.(*policyv1.PodDisruptionBudget)
	return b.DeepCopy()
}

// write writes a budget as its controller does. Who remembers the version before sees that it is another.
func (w *workload) write(b *policyv1.PodDisruptionBudget) error {
	version, err := strconv.Atoi(b.ResourceVersion)
	w.must(err)
	b.ResourceVersion, b.Status.ObservedGeneration = strconv.Itoa(version+1), b.Generation
	return w.tracker.Update(budgets, b, "a")
}

// budgetWritten is what the controller of budgets does about what others write: one that is marked is counted soon, and what
// was taken and not used is returned after some time.
func (w *workload) budgetWritten(action clienttesting.Action) (bool, runtime.Object, error) {
	patch, _ := action.(clienttesting.PatchAction)
	time.AfterFunc(moves, func() {
		if b := w.budget(patch.GetName()); b.Status.ObservedGeneration < b.Generation {
			w.must(w.write(b))
		}
	})
	time.AfterFunc(expires, func() { w.replenish("twice") })
	return false, nil, nil
}

// replenish has the budgets of an app allow the next disruption.
func (w *workload) replenish(app string) {
	for _, name := range []string{"web", "one", "two"} {
		b := w.budget(name)
		if b.Spec.Selector.MatchLabels["app"] == app && b.Status.DisruptionsAllowed == 0 {
			b.Status.DisruptionsAllowed, b.Status.DisruptedPods = 1, nil
			w.must(w.write(b))
		}
	}
}

// left returns what still has to leave the Node before its VM is deleted.
func (w *workload) left() (left []string) {
	w.Helper()
	listed, err := w.tracker.List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), "")
	w.must(err)
	all, _ := listed.(*corev1.PodList)
	for _, p := range all.Items {
		if p.Spec.NodeName == "m" && p.Name != "proxy" {
			left = append(left, "pod "+p.Name)
		}
	}
	listed, err = w.tracker.List(attachments, storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), "")
	w.must(err)
	attached, _ := listed.(*storagev1.VolumeAttachmentList)
	for _, a := range attached.Items {
		if a.Spec.NodeName == "m" {
			left = append(left, "attachment "+a.Name)
		}
	}
	if found, err := w.tracker.Get(nodes, "", "m"); err == nil && !w.isKubeletDead { // otherwise volumes without an attachment are not detached
		node, _ := found.(*corev1.Node)
		for _, v := range node.Status.VolumesAttached {
			left = append(left, "volume "+string(v.Name))
		}
	}
	return left
}
