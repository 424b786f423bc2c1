package drain

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The target cluster has another clock than the control cluster, by ten minutes each way: each time
// on its objects counts by the latter.
func TestClockOfTheTargetClusterMovesNoDeadline(t *testing.T) {
	for _, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			on := func(at time.Duration) metav1.Time { return metav1.NewTime(born.Add(at + ahead)) } // as the target cluster writes it
			facts := func(now time.Duration) Facts {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: corev1.NodeSpec{Unschedulable: true}}
				order := Order{Since: born, Timeout: time.Hour, EvictTime: time.Hour}
				return Facts{
					Now: born.Add(now), Ahead: ahead, Node: node, Order: order, Sight: Watched, Settings: Settings{DetachTimeout: 2 * time.Minute},
					FreeDetaches: 10,
				}
			}
			t.Run("a Node that is not ready", func(t *testing.T) {
				for now, want := range map[time.Duration]bool{12*time.Minute + 59*time.Second: false, 13 * time.Minute: true} {
					f := facts(now)
					f.Node.Status.Conditions = []corev1.NodeCondition{
						{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: on(8 * time.Minute)},
					}
					if is, _ := forced(f); (is != nil) != want {
						t.Errorf("after %s: forced %t, want %t", now, is != nil, want)
					}
				}
			})
			t.Run("a pod that does not end", func(t *testing.T) {
				for now, want := range map[time.Duration]int{time.Minute + lateEnd - time.Second: 0, time.Minute + lateEnd: 1} {
					f, ends := facts(now), on(time.Minute)
					f.Pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "p", DeletionTimestamp: &ends}}}
					if got := len(Decide(f).Progress.Late); got != want {
						t.Errorf("after %s: %d pods are late, want %d", now, got, want)
					}
				}
			})
			t.Run("a pod that is created faster than it is deleted", func(t *testing.T) {
				f := facts(time.Hour + forceTime)
				f.Pods = []*corev1.Pod{
					{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "p", CreationTimestamp: on(time.Hour + time.Second)}},
				}
				if v := Decide(f); v.Do == Remove {
					t.Errorf("the drain deletes it without end: %+v", v)
				}
			})
			t.Run("an attachment that does not end", func(t *testing.T) {
				ends := on(time.Hour)
				a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", DeletionTimestamp: &ends}}
				if until, _ := detachAt(facts(time.Hour+time.Minute), a, born.Add(2*time.Hour)); !until.Equal(born.Add(time.Hour + 2*time.Minute)) {
					t.Errorf("awaited until %s", until.Sub(born))
				}
			})
		})
	}
}

// The clock of a kubelet is wrong by ten minutes. What changes while the drain looks has changed
// between two looks.
func TestClockOfAKubeletForcesNoDrain(t *testing.T) {
	const became = 20 * time.Minute
	for _, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			f := Facts{
				Node: &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, Order: Order{Since: born, Timeout: 2 * time.Hour}, Sight: Awaited,
				Pods: []*corev1.Pod{{}},
			}
			var since time.Duration
			for now := time.Duration(0); now < time.Hour; now += 10 * time.Second {
				f.Now = born.Add(now)
				ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(born)}
				if now >= became {
					ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(born.Add(became+ahead))
				}
				f.Node.Status.Conditions = []corev1.NodeCondition{ready}
				v := Decide(f)
				if f.Memory = v.Memory; v.Cause != "" {
					since = now
					break
				}
			}
			if since < became+unhealthyTime-10*time.Second || since > became+unhealthyTime {
				t.Errorf("the drain is forced %s after the Node became not ready", since-became)
			}
		})
	}
}
