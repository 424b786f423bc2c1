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
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
	"github.com/machine-controller-fleet/machine-controller-fleet/lab/cloudsim/guest"
)

// updates are those that take 10 s, and whose components take 5 s.
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

// says has the fleet say how far Node a is with its update.
func (c *cluster) says(reason string, change ...func(*corev1.Node)) {
	c.t.Helper()
	node := c.node("a")
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.NodeInPlaceUpdate })
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

// hears checks what Node a says after a time.
func (c *cluster) hears(after time.Duration, want corev1.ConditionStatus, result string) {
	c.t.Helper()
	c.pass(after)
	if node := c.node("a"); ready(node) != want || node.Labels[v1alpha1.LabelUpdateResult] != result {
		c.t.Errorf("Ready is %s, the result %q; want %s and %q", ready(node), node.Labels[v1alpha1.LabelUpdateResult], want, result)
	}
}

func withoutResult(n *corev1.Node) {
	delete(n.Labels, v1alpha1.LabelUpdateResult)
}

func TestTheAgentUpdatesANode(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(""))
		c.host.PowerOn(aVM())
		synctest.Wait()
		for _, reason := range []string{v1alpha1.NodeReasonCandidateForUpdate, v1alpha1.NodeReasonSelectedForUpdate, v1alpha1.NodeReasonDrainSuccessful} {
			c.says(reason)
			c.hears(time.Minute, corev1.ConditionTrue, "")
		}
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.hears(9*time.Second, corev1.ConditionFalse, "")
		c.hears(2*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
		c.writes()
		c.pass(20 * time.Second)
		if counts := c.writes(); counts["patch nodes"] > 0 || counts["patch nodes/status"] > 0 {
			t.Errorf("%v after the result was told", counts)
		}
		awaits := func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "his", Effect: corev1.TaintEffectNoSchedule}, {Key: v1alpha1.TaintCriticalComponentsNotReady, Effect: corev1.TaintEffectNoSchedule}}
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

		// The next one begins anew.
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.hears(9*time.Second, corev1.ConditionFalse, "")
		c.hears(2*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}

func TestTheAgentFails(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(cloudapi.UpdateFailed))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.hears(11*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultFailed)
		if why := c.node("a").Annotations[v1alpha1.AnnotationUpdateFailedReason]; why == "" {
			t.Error("the agent does not say why")
		}
		c.setUpdates(updates(cloudapi.UpdateSuccessful)) // and it is tried again
		c.pass(time.Second)
		c.says(v1alpha1.NodeReasonReadyForUpdate, withoutResult)
		c.hears(11*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}

func TestTheAgentDoesNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(cloudapi.UpdateNever))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.hears(time.Hour, corev1.ConditionTrue, "")
		c.setUpdates(updates(cloudapi.UpdateSuccessful))
		c.hears(5*time.Second, corev1.ConditionFalse, "")
		c.hears(10*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}

// What a Node says itself goes before the settings.
func TestTheAgentOfOneNodeFails(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(cloudapi.UpdateSuccessful))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.says(v1alpha1.NodeReasonReadyForUpdate, func(n *corev1.Node) {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, cloudapi.AnnotationUpdateResult, string(cloudapi.UpdateFailed))
		})
		c.hears(11*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultFailed)
	})
}

func TestAVMThatStandsStillIsNotUpdated(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(""))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.host.SetHealth("i-1", guest.Frozen)
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.hears(time.Minute, corev1.ConditionTrue, "")
		c.host.SetHealth("i-1", guest.NotReady)
		c.hears(time.Minute, corev1.ConditionFalse, "")
		c.host.SetHealth("i-1", guest.Healthy)
		c.hears(2*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}

// That the API server does not answer once delays the result and loses it not.
func TestResultIsReportedAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.setUpdates(updates(""))
		c.host.PowerOn(aVM())
		synctest.Wait()
		c.says(v1alpha1.NodeReasonReadyForUpdate)
		c.pass(9 * time.Second)
		c.failNext("patch nodes", errors.New("no answer"))
		c.hears(3*time.Second, corev1.ConditionTrue, v1alpha1.UpdateResultSuccessful)
	})
}
