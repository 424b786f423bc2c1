package simkubelet

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// updates returns settings for updates that take 10 s, with components that take 5 s.
func updates(result cloudapi.UpdateResult) cloudapi.InPlaceUpdates {
	return cloudapi.InPlaceUpdates{
		Result: result, Time: cloudapi.Duration(10 * time.Second), ComponentsTime: cloudapi.Duration(5 * time.Second),
	}
}

func (c *cluster) setUpdates(u cloudapi.InPlaceUpdates) {
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()
	c.cloud.updates = u
}

// says makes the fleet set the stage of the update of Node a.
func (c *cluster) says(reason string, change ...func(*corev1.Node)) {
	c.t.Helper()
	node := c.node("a")
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeInPlaceUpdate
	})
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
		Type: v1alpha1.NodeInPlaceUpdate, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Now(),
	})
	for _, f := range change {
		f(node)
	}
	if _, err := c.client.CoreV1().Nodes().Update(c.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// expect checks readiness and result of Node a after a time.
func (c *cluster) expect(after time.Duration, want corev1.ConditionStatus, result string) {
	c.t.Helper()
	c.pass(after)
	if node := c.node("a"); ready(node) != want || node.Labels[v1alpha1.LabelUpdateResult] != result {
		c.t.Errorf("Ready is %s, the result %q; want %s and %q", ready(node), node.Labels[v1alpha1.LabelUpdateResult], want, result)
	}
}

func withoutResult(n *corev1.Node) {
	delete(n.Labels, v1alpha1.LabelUpdateResult)
}

func TestAgentUpdatesNode(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(""))
		c.host.PowerOn(aVM())
		synctest.Wait()
		for _, reason := range []string{
			v1alpha1.NodeReasonCandidateForUpdate, v1alpha1.NodeReasonSelectedForUpdate, v1alpha1.NodeReasonDrainSuccessful,
		} {
			c.says(reason)
			c.expect(time.Minute, corev1.ConditionTrue, "")
		}
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.expect(9*time.Second, corev1.ConditionFalse, "")
		c.expect(2*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
		c.writes()
		c.pass(20 * time.Second)
		if counts := c.writes(); counts["patch nodes"] > 0 || counts["patch nodes/status"] > 0 {
			t.Errorf("%v after the result was reported", counts)
		}
		awaits := func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "his", Effect: corev1.TaintEffectNoSchedule}, {
				Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule,
			}}
		}
		c.says(v1alpha1.NodeReasonUpdateSuccessful, withoutResult, awaits)
		c.pass(4 * time.Second)
		if taints := c.node("a").Spec.Taints; len(taints) != 2 {
			t.Errorf("taints %v before the components have started", taints)
		}
		c.pass(2 * time.Second)
		if taints := c.node("a").Spec.Taints; len(taints) != 1 || taints[0].Key != "his" {
			t.Errorf("taints %v, want his only", taints)
		}

		// The next update starts from the beginning.
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.expect(9*time.Second, corev1.ConditionFalse, "")
		c.expect(2*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}

func TestAgentFails(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(cloudapi.UpdateFailed))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.expect(11*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultFailed)
		if why := c.node("a").Annotations[v1alpha1.AnnotationUpdateFailedReason]; why == "" {
			t.Error("the agent does not say why")
		}
		c.setUpdates(updates(cloudapi.UpdateSuccessful)) // and the update is retried
		c.pass(time.Second)
		c.says(v1alpha1.NodeReasonReadyForUpdate, withoutResult)
		c.expect(11*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}

func TestAgentDoesNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(cloudapi.UpdateNever))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.expect(time.Hour, corev1.ConditionTrue, "")
		c.setUpdates(updates(cloudapi.UpdateSuccessful))
		c.expect(5*time.Second, corev1.ConditionFalse, "")
		c.expect(10*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}

// An annotation of the Node overrides the settings.
func TestAgentOfOneNodeFails(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(cloudapi.UpdateSuccessful))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.says(v1alpha1.NodeReasonReadyForUpdate, func(n *corev1.Node) {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, cloudapi.AnnotationUpdateResult, string(cloudapi.UpdateFailed))
		})
		c.expect(11*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultFailed)
	})
}

func TestSuspendedVMIsNotUpdated(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(""))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.host.SetHealth("i-1", guest.Frozen)
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.expect(time.Minute, corev1.ConditionTrue, "")
		c.host.SetHealth("i-1", guest.NotReady)
		c.expect(time.Minute, corev1.ConditionFalse, "")
		c.host.SetHealth("i-1", guest.Healthy)
		c.expect(2*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}

// A failed request to the API server delays the result, and does not lose it.
func TestResultIsReportedAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(""))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.pass(9 * time.Second)
		c.failNext("patch nodes", errors.New("no answer"))
		c.expect(3*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}
