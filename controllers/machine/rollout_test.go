package machine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// rolledBench is a machine that runs, of a set.
type rolledBench struct{ *bench }

func onRolledBench(t *testing.T, test func(b rolledBench)) {
	t.Helper()
	onBench(t, func(b *bench) {
		set := apiserver.Add(b.server, &v1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "set"}})
		b.create(func(m *v1alpha1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
		})
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.pass(time.Minute)
		test(rolledBench{b})
	})
}

// setRollout sets what the Nodes of the set's machines are to carry, and returns the resulting
// requests for Nodes.
func (b rolledBench) setRollout(preferNoSchedule, rolling string) (requests []string) {
	b.Helper()
	b.target.Forget()
	b.annotateSet(preferNoSchedule, rolling)
	b.pass(time.Hour)
	for _, r := range b.target.Requests() {
		if r.Resource == "nodes" {
			requests = append(requests, r.Verb)
		}
	}
	return requests
}

func (b rolledBench) annotateSet(preferNoSchedule, rolling string) {
	b.Helper()
	annotation := func(value string) string {
		if value == "" {
			return "null"
		}
		return fmt.Sprintf("%q", value)
	}
	b.server.Merge("machinesets", "n", "set",
		fmt.Sprintf(`{"metadata":{"annotations":{%q:%s,%q:%s}}}`, v1alpha1.AnnotationPreferNoSchedule, annotation(preferNoSchedule),
			v1alpha1.AnnotationRolling, annotation(rolling)))
}

// carries returns the marks of a rollout on the Node.
func (b rolledBench) carries() string {
	b.Helper()
	node := b.node()
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == v1alpha1.TaintPreferNoSchedule && t.Effect == corev1.TaintEffectPreferNoSchedule
	})
	return fmt.Sprintf("tainted %v, kept %q, by us %q", tainted,
		node.Annotations[v1alpha1.AnnotationScaleDownDisabled], node.Annotations[v1alpha1.AnnotationScaleDownDisabledByUs])
}

// TestNodesOfARolloutAreWrittenOnlyWhereTheyChange: one patch for each step, and not a single read.
func TestNodesOfARolloutAreWrittenOnlyWhereTheyChange(t *testing.T) {
	const yes, no = v1alpha1.RollingTrue, v1alpha1.RollingFalse
	onRolledBench(t, func(b rolledBench) {
		for _, step := range []struct {
			tainted, rolling string
			writes           int
			want             string
		}{
			{"", "", 0, `tainted false, kept "", by us ""`},
			{v1alpha1.PreferNoScheduleTrue, yes, 1, `tainted true, kept "true", by us "true"`},
			{v1alpha1.PreferNoScheduleTrue, yes, 0, `tainted true, kept "true", by us "true"`},
			{"", yes, 1, `tainted false, kept "true", by us "true"`}, // it is the new one again
			{"", no, 1, `tainted false, kept "", by us ""`},
			{"", no, 0, `tainted false, kept "", by us ""`},
		} {
			requests := b.setRollout(step.tainted, step.rolling)
			if want := slices.Repeat([]string{"patch"}, step.writes); !slices.Equal(requests, want) || b.carries() != step.want {
				t.Errorf("set tainted %q and rolling %q: requests %v and the Node %s; want %v, %s",
					step.tainted, step.rolling, requests, b.carries(), want, step.want)
			}
		}
	})
}

// TestARolloutMayEndWhileItsSetIsNotShown has the set in another slot when it becomes the new one
// again.
func TestARolloutMayEndWhileItsSetIsNotShown(t *testing.T) {
	onRolledBench(t, func(b rolledBench) {
		b.setRollout(v1alpha1.PreferNoScheduleTrue, "")
		view := b.process.cfg.View
		b.server.ShowIn(objectcache.NewView())
		view.Sets.Delete(types.NamespacedName{Namespace: "n", Name: "set"}, "")
		b.annotateSet("", "")
		b.pass(time.Hour)
		b.server.ShowIn(view)
		b.pass(time.Hour)
		if got, want := b.carries(), `tainted false, kept "", by us ""`; got != want {
			t.Errorf("the Node is %s, want %s", got, want)
		}
	})
}

// TestUsersAutoscalerAnnotationIsKept also when a rollout has ended.
func TestUsersAutoscalerAnnotationIsKept(t *testing.T) {
	onRolledBench(t, func(b rolledBench) {
		b.annotateNode(v1alpha1.AnnotationScaleDownDisabled, "true")
		for _, rolling := range []string{v1alpha1.RollingTrue, v1alpha1.RollingFalse} {
			if requests := b.setRollout("", rolling); len(requests) > 0 || b.carries() != `tainted false, kept "true", by us ""` {
				t.Errorf("rolling %s: requests %v, and the Node %s", rolling, requests, b.carries())
			}
		}
	})
}
