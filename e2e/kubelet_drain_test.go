//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// TestRealKubeletDrain drains a Node with a real kubelet, whose pods have PodDisruptionBudgets: they move to another one step by
// step.
func TestRealKubeletDrain(t *testing.T) {
	t.Parallel()
	if !harness.KubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	s := newSpace(t, shared(t), "kubelet-drain", realKubelet)
	s.workload()
	machines := s.stand(2)
	from, to := machines[0], machines[1]
	s.joined()
	s.open(from)
	apps := map[string]int32{"plain": 1, "both": 2, "web": 3, "vital": 1} // their order by name differs from that by priority
	priorities := map[string]string{"web": s.priority(1000), "vital": s.priority(2000)}
	for app, replicas := range apps {
		s.replicated(app, replicas, priorities[app])
	}
	for app, replicas := range apps {
		s.ready(app, int(replicas))
	}
	s.budget("web", "web", 2, 3)
	s.budget("one", "both", 1, 2)
	s.budget("two", "both", 1, 2)
	film := s.record()

	// No other Node can run a pod yet, so that each PodDisruptionBudget allows one eviction.
	s.remove("machines", from)
	s.ready("web", 2)
	s.ready("both", 1)
	both, err := s.podsOf(s.Context(), "both")
	s.must(err)
	s.describes(from, fmt.Sprintf("Draining Node %s: 3 pods left; ", from))
	s.describes(from, fmt.Sprintf(" held by PodDisruptionBudget %s/web; ", s.name))
	s.describes(from, fmt.Sprintf("; %s/%s held by PodDisruptionBudgets %s/one and %s/two; ", s.name, both[0].Name, s.name, s.name))

	s.open(to)
	s.lost(from)
	s.emits(from, v1alpha1.EventDrained)
	for app, replicas := range apps {
		s.ready(app, int(replicas))
	}
	s.inTurns(film, from)
	s.neverForced(film, from)
	s.patch("machines", to, `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	s.remove("machines", to)
	s.gone()
}

// inTurns checks that in a recording of a drain the PodDisruptionBudgets of apps were respected at any time, the first pods of all
// apps were evicted by priority, and the others when their PodDisruptionBudget allowed it.
func (s *space) inTurns(film *recording, from string) {
	s.Helper()
	atLeast := map[string]int{"web": 2, "both": 1}
	moments, err := film.play()
	s.must(err)
	pods := map[types.UID]*corev1.Pod{}
	var went, first []*corev1.Pod
	for _, m := range moments {
		pod := m.pod()
		if pod == nil {
			continue
		}
		app, before := pod.Labels["app"], pods[pod.UID]
		isSame := func(p *corev1.Pod) bool { return p.Labels["app"] == app }
		if before != nil && before.DeletionTimestamp == nil && pod.DeletionTimestamp != nil && pod.Spec.NodeName == from {
			if !slices.ContainsFunc(first, isSame) {
				first = append(first, pod)
			}
			went = append(went, pod)
		}
		pods[pod.UID] = pod
		if m.gone {
			delete(pods, pod.UID)
		}
		ready := 0
		for _, p := range pods {
			if isSame(p) && isReady(p) {
				ready++
			}
		}
		if ready < atLeast[app] && !m.listed {
			s.Errorf("at revision %d %d pods of %s were ready, and its PodDisruptionBudget requires %d", m.revision, ready, app, atLeast[app])
		}
	}
	isByPriority := slices.IsSortedFunc(first, func(a, b *corev1.Pod) int { return cmp.Compare(*b.Spec.Priority, *a.Spec.Priority) })
	if len(went) != 7 || !isByPriority {
		var names []string
		for _, p := range went {
			names = append(names, p.Name)
		}
		s.Errorf("want all 7 pods evicted, and the first ones by priority; the order is %s", strings.Join(names, ", "))
	}
}
