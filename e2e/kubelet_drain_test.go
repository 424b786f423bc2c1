//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestRealKubeletDrain drains a Node with a real kubelet, whose pods are guarded by budgets: by and by they go to another.
func TestRealKubeletDrain(t *testing.T) {
	t.Parallel()
	if !kubeletsWork(t) {
		t.Skip("the lab boots simulated Nodes only")
	}
	s := newSpace(t, shared(t), "kubelet-drain", realKubelet)
	s.workload()
	machines := s.stand(2)
	from, to := machines[0], machines[1]
	s.joined()
	s.open(from)
	apps := map[string]int32{"plain": 1, "both": 2, "web": 3, "vital": 1} // by name they come in another order than by priority
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

	// Nowhere else can a pod run yet, so that each budget lets one go.
	s.remove("machines", from)
	s.ready("web", 2)
	s.ready("both", 1)
	both, err := s.podsOf(s.Context(), "both")
	s.must(err)
	s.says(from, fmt.Sprintf("Draining Node %s: 3 pods left; ", from))
	s.says(from, fmt.Sprintf(" held by PodDisruptionBudget %s/web; ", s.name))
	s.says(from, fmt.Sprintf("; %s/%s held by PodDisruptionBudgets %s/one and %s/two; ", s.name, both[0].Name, s.name, s.name))

	s.open(to)
	s.lost(from)
	s.emits(from, v1alpha1.EventDrained)
	for app, replicas := range apps {
		s.ready(app, int(replicas))
	}
	s.inTurns(film, from, apps)
	s.neverForced(film, from)
	s.patch("machines", to, `{"metadata":{"labels":{"force-deletion":"true"}}}`)
	s.remove("machines", to)
	s.gone()
}

// inTurns makes sure of what a recording shows of a drain: that the budgets of apps were kept at any time, that the first
// pods of all apps went by priority, and that the others went when their budget allowed it.
func (s *space) inTurns(film *recording, from string, apps map[string]int32) {
	s.Helper()
	const soon = time.Minute // on a busy machine, too; who does not hear of a budget waits for two
	atLeast := map[string]int{"web": 2, "both": 1}
	moments, err := film.play()
	s.must(err)
	pods := map[types.UID]*corev1.Pod{}
	complete := map[string]time.Time{} // since when all pods of an app are ready
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
			} else if since, known := complete[app]; known && m.heard.Sub(since) > soon {
				s.Errorf("pod %s went %s after all of its app were ready", pod.Name, m.heard.Sub(since))
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
			s.Errorf("at revision %d %d pods of %s were ready, and its budget wants %d", m.revision, ready, app, atLeast[app])
		}
		if ready < int(apps[app]) {
			delete(complete, app)
		} else if _, known := complete[app]; !known {
			complete[app] = m.heard
		}
	}
	isByPriority := slices.IsSortedFunc(first, func(a, b *corev1.Pod) int { return cmp.Compare(*b.Spec.Priority, *a.Spec.Priority) })
	if len(went) != 7 || !isByPriority {
		var names []string
		for _, p := range went {
			names = append(names, p.Name)
		}
		s.Errorf("want all 7 pods to have gone, and the first ones by priority; they went in the order %s", strings.Join(names, ", "))
	}
}
