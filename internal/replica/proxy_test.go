package replica

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// invents has a proxy without a route answer all requests to a place.
func invents(place string) *disturbance {
	return &disturbance{
		name: "a proxy answers in the place of " + place, of: func(q request) bool { return q.place == place },
		answers: func(r *http.Request) *http.Response {
			return answerOf(r, http.StatusNotFound, "text/html", "<title>404</title>")
		},
	}
}

// TestProxyThatAnswersForTheTargetProvesNoNodeAbsent: machines are deleted while a proxy answers
// each request to the target cluster with 404. No VM is deleted, because a pod runs on each that
// was not evicted. When the API server answers again and the pods are gone, the VMs are deleted.
func TestProxyThatAnswersForTheTargetProvesNoNodeAbsent(t *testing.T) {
	o := replicaOptions()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		r.target = apiserver.New("t", time.Now)
		defer r.end()
		r.createUnmanaged()
		r.createClass("a")
		pool := r.putRoot("a", "pool", 4)
		r.start("fleet-0")
		r.start("fleet-1")
		r.until("four machines run", func() bool { return r.missing() == "" })
		before := len(r.cloud.Live())
		for _, m := range r.control.List("machines") {
			r.put(r.target, "pods", map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "a", "name": m.GetName()},
				"spec": map[string]any{"nodeName": m.GetLabels()[v1alpha1.LabelNode]},
			})
		}

		proxy := r.network.disturb(invents(atTarget))
		r.putRoot("a", pool.name, 1)
		r.run(time.Second, nil) // before it is known that the API server is away
		for _, m := range r.control.List("machines")[:2] {
			r.control.Delete("machines", m.GetNamespace(), m.GetName())
		}
		r.run(10*time.Minute, nil)
		if left := len(r.cloud.Live()); left < before {
			t.Errorf("while a proxy answers %d of %d VMs are left, want all: their pods were not evicted", left, before)
		}
		r.network.heal(proxy)
		for _, pod := range r.target.List("pods") {
			r.target.Remove("pods", pod.GetNamespace(), pod.GetName())
		}
		r.until("the VMs are deleted", func() bool { return r.missing() == "" })
	})
}

// TestProxyThatAnswersForTheControlClusterProvesNothing: while a proxy answers each request to the
// control cluster with 404, nothing is deleted at the cloud, and then all continues.
func TestProxyThatAnswersForTheControlClusterProvesNothing(t *testing.T) {
	o := replicaOptions()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		r.target = apiserver.New("t", time.Now)
		defer r.end()
		r.createUnmanaged()
		r.createClass("a")
		r.putRoot("a", "pool", 3)
		r.start("fleet-0")
		r.start("fleet-1")
		r.until("three machines run", func() bool { return r.missing() == "" })
		before, uids := len(r.cloud.Live()), r.uids()
		proxy := r.network.disturb(invents(atControl))
		r.run(10*time.Minute, nil)
		r.network.heal(proxy)
		r.until("the fleet works again", func() bool { return r.missing() == "" && r.health() == "" })
		if len(r.cloud.Live()) != before || len(r.uids()) != len(uids) {
			t.Errorf("%d VMs and %d machines, want %d and %d", len(r.cloud.Live()), len(r.uids()), before, len(uids))
		}
		for _, p := range r.processes {
			if !p.isAlive() {
				t.Errorf("%s has ended", p.session)
			}
		}
	})
}
