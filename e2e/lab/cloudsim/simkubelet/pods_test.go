package simkubelet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// aPod is bound to the Node of aVM.
func aPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "uid-p"},
		Spec: corev1.PodSpec{
			NodeName:       "a",
			InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
			Containers:     []corev1.Container{{Name: "main", Image: "app"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func (c *cluster) addPod(pod *corev1.Pod) {
	c.t.Helper()
	if _, err := c.client.CoreV1().Pods(pod.Namespace).Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// pod returns the pod, or nil when it was deleted.
func (c *cluster) pod() *corev1.Pod {
	c.t.Helper()
	pod, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), "p", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// deletePod does what the API server does for a graceful deletion: it records it.
func (c *cluster) deletePod(grace int64) {
	c.t.Helper()
	pod := c.pod()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(time.Duration(grace)*time.Second))), &grace
	if _, err := c.client.CoreV1().Pods("default").Update(c.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func TestPodStarts(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.addPod(aPod())
		if c.pod().Status.Phase != corev1.PodPending {
			t.Error("the pod runs without a VM")
		}
		c.host.PowerOn(aVM())
		synctest.Wait()
		status := c.pod().Status
		if status.Phase != corev1.PodRunning || !runs(c.pod()) || status.HostIP != "10.64.0.2" || status.PodIP == "" ||
			status.PodIP == status.HostIP {
			t.Errorf("status %+v", status)
		}
		if s := status.ContainerStatuses; len(s) != 1 || s[0].State.Running == nil || !s[0].Ready {
			t.Errorf("containers %+v", s)
		}
		if s := status.InitContainerStatuses; len(s) != 2 || s[0].State.Terminated == nil || s[1].State.Running == nil {
			t.Errorf("init containers %+v", s)
		}
		if n := c.writes()["patch pods/status"]; n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	})
}

func TestPodsOfOtherNodesAreNotChanged(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.host.PowerOn(aVM())
		c.addPod(aPod(func(p *corev1.Pod) { p.Spec.NodeName = "elsewhere" }))
		c.pass(time.Minute)
		if c.pod().Status.Phase != corev1.PodPending {
			t.Error("a pod of another Node runs")
		}
	})
}

func TestPodEnds(t *testing.T) {
	for name, c := range map[string]struct {
		setting time.Duration
		own     string
		grace   int64
		ends    time.Duration // 0 is never
	}{
		"as set":                    {setting: 10 * time.Second, grace: 30, ends: 10 * time.Second},
		"at once":                   {setting: 0, grace: 30, ends: time.Millisecond},
		"not after its grace":       {setting: time.Hour, grace: 5, ends: 5 * time.Second},
		"never":                     {setting: -1, grace: 5},
		"as its annotation says":    {setting: -1, own: "7s", grace: 30, ends: 7 * time.Second},
		"never, says an annotation": {setting: 1, own: "-1s", grace: 5},
		"as set, not as nonsense":   {setting: 10 * time.Second, own: "soon", grace: 30, ends: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(cl *cluster) {
				cl.cloud.termination = c.setting
				cl.host.PowerOn(aVM())
				cl.addPod(aPod(func(p *corev1.Pod) {
					if c.own != "" {
						p.Annotations = map[string]string{cloudapi.AnnotationPodTermination: c.own}
					}
				}))
				cl.deletePod(c.grace)
				if c.ends > time.Millisecond {
					cl.pass(c.ends - time.Millisecond)
					if cl.pod() == nil {
						t.Fatal("it has ended too early")
					}
				}
				cl.pass(time.Millisecond)
				if gone := cl.pod() == nil; gone != (c.ends > 0) {
					t.Errorf("it has ended: %t, want %t", gone, c.ends > 0)
				}
				if c.ends == 0 {
					cl.pass(time.Hour)
					if cl.pod() == nil {
						t.Error("it has ended after an hour")
					}
					cl.cloud.mu.Lock()
					cl.cloud.termination = 0
					cl.cloud.mu.Unlock()
					cl.pass(recheck)
					if gone := cl.pod() == nil; gone != (c.own == "") {
						t.Errorf("after the setting was changed it has ended: %t, want %t", gone, c.own == "")
					}
				}
			})
		})
	}
}

// The pods of a suspended VM neither start nor end before it continues.
func TestPodsOfAFrozenVM(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.host.SetHealth("i-1", guest.Frozen)
		c.addPod(aPod())
		c.pass(time.Minute)
		if runs(c.pod()) {
			t.Error("a pod has started on a frozen VM")
		}
		c.host.SetHealth("i-1", guest.Healthy)
		synctest.Wait()
		if !runs(c.pod()) {
			t.Error("the pod has not started after the VM went on")
		}
		c.host.SetHealth("i-1", guest.Frozen)
		c.deletePod(5)
		c.pass(time.Minute)
		if c.pod() == nil {
			t.Error("a pod has ended on a frozen VM")
		}
		c.host.SetHealth("i-1", guest.Healthy)
		c.pass(5 * time.Second)
		if c.pod() != nil {
			t.Error("the pod has not ended after the VM went on")
		}
	})
}

func TestPodWriteIsRetried(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.host.PowerOn(aVM())
		c.failNext("patch pods", apierrors.NewTooManyRequestsError("busy"))
		c.addPod(aPod())
		if runs(c.pod()) {
			t.Error("the first write did not fail")
		}
		c.pass(2 * firstRetry)
		if !runs(c.pod()) {
			t.Error("the pod has not started")
		}
	})
}

func TestVolumesInUse(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: cloudapi.CSIDriver, VolumeHandle: "vol-1"},
		},
	}}
	withClaim := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
		}}}
	}
	want := []corev1.UniqueVolumeName{"kubernetes.io/csi/csi.simulated.cloud^vol-1"}
	for name, end := range map[string]func(c *cluster){
		"the pod ends": func(c *cluster) {
			c.deletePod(30)
			c.pass(time.Minute)
		},
		"the pod is removed by force": func(c *cluster) {
			if err := c.client.CoreV1().Pods("default").Delete(c.t.Context(), "p", metav1.DeleteOptions{}); err != nil {
				c.t.Fatal(err)
			}
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.host.PowerOn(aVM())
				c.addPod(aPod(withClaim))
				if diff := cmp.Diff(want, c.node("a").Status.VolumesInUse); diff != "" {
					t.Errorf("while the pod starts (-want +got):\n%s", diff)
				}
				c.pass(time.Minute)
				if runs(c.pod()) {
					t.Error("the pod runs without its volume")
				}
				node := c.node("a")
				node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: want[0]}}
				if _, err := c.client.CoreV1().Nodes().UpdateStatus(c.t.Context(), node, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				c.pass(awaitVolumes)
				if !runs(c.pod()) {
					t.Error("the pod does not run with its volume")
				}
				end(c)
				if inUse := c.node("a").Status.VolumesInUse; len(inUse) > 0 {
					t.Errorf("afterwards: %v", inUse)
				}
			}, claim, volume)
		})
	}
}
