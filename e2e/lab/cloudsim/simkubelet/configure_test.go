package simkubelet

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
)

// annotate sets an annotation of Node a, as a controller does.
func (c *cluster) annotate(key, value string) {
	c.t.Helper()
	node := c.node("a")
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
	if _, err := c.client.CoreV1().Nodes().Update(c.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.pass(time.Second)
}

// reports checks the annotations of Node a, and that its readiness is as expected.
func (c *cluster) reports(shown corev1.ConditionStatus, want map[string]string) {
	c.t.Helper()
	node := c.node("a")
	if diff := cmp.Diff(want, daemonAnnotations(node.Annotations)); diff != "" {
		c.t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if is := ready(node); is != shown {
		c.t.Errorf("Ready is %s, want %s", is, shown)
	}
}

func TestDaemonUpdatesNode(t *testing.T) {
	prefix := v1alpha1.DaemonPrefix
	inCluster(t, func(c *cluster) {
		c.host.cfg.Daemons, c.cloud.reboot = true, 10*time.Second
		c.host.PowerOn(aVM())
		c.pass(time.Second)
		c.reports(corev1.ConditionTrue, map[string]string{prefix.State(): "done"})
		c.writes()
		c.annotate(prefix.DesiredConfig(), "x")
		waits := map[string]string{prefix.DesiredConfig(): "x", prefix.State(): "working", prefix.DesiredDrain(): "drain-x"}
		c.reports(corev1.ConditionTrue, waits)
		c.pass(time.Minute)
		c.reports(corev1.ConditionTrue, waits)

		c.failNext("patch nodes", errors.New("no answer"))
		c.annotate(prefix.LastAppliedDrain(), "drain-x")
		c.pass(2 * time.Second)
		waits[prefix.LastAppliedDrain()] = "drain-x"
		c.reports(corev1.ConditionFalse, waits)
		c.pass(10 * time.Second)
		c.reports(corev1.ConditionTrue, map[string]string{
			prefix.DesiredConfig(): "x", prefix.CurrentConfig(): "x", prefix.State(): "working", prefix.DesiredDrain(): "uncordon-x",
			prefix.LastAppliedDrain(): "drain-x",
		})
		c.annotate(prefix.LastAppliedDrain(), "uncordon-x")
		done := map[string]string{
			prefix.DesiredConfig(): "x", prefix.CurrentConfig(): "x", prefix.State(): "done", prefix.DesiredDrain(): "uncordon-x",
			prefix.LastAppliedDrain(): "uncordon-x",
		}
		c.reports(corev1.ConditionTrue, done)
		// working, drain, applying, verifying, rebooting, verifying, uncordon, done, and one that has
		// failed.
		if n := c.writes()["patch nodes"]; n != 9 {
			t.Errorf("the daemon has written %d times, want 9", n)
		}
		c.pass(time.Hour)
		c.reports(corev1.ConditionTrue, done)
		if n := c.writes()["patch nodes"]; n != 0 {
			t.Errorf("the daemon has written %d times at rest", n)
		}
	})
}
