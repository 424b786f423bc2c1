package replica

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// holdDeletions writes the annotation of an object of the control cluster; "" removes it.
func (t *trial) holdDeletions(resource, namespace, name, why string) {
	t.control.Edit(resource, namespace, name, func(u *unstructured.Unstructured) {
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		if annotations[v1alpha1.AnnotationHoldDeletions] = why; why == "" {
			delete(annotations, v1alpha1.AnnotationHoldDeletions)
		}
		u.SetAnnotations(annotations)
	})
}

// TestHoldThatCannotBeReadHolds: deletions are held by an annotation. A replica starts that cannot
// read it: from the beginning, or after it had read it once. It deletes nothing before it has read
// that nothing is held.
func TestHoldThatCannotBeReadHolds(t *testing.T) {
	for name, tc := range map[string]struct {
		resource, namespace, name string // what has the annotation
		of                        func(q request) bool
		answers                   func(r *http.Request) *http.Response
	}{
		"the watch of Leases has not listed, and the session has": {
			"leases", fleetNamespace, "fleet-leader",
			func(q request) bool { return strings.HasSuffix(q.path, "/namespaces/"+fleetNamespace+"/leases") },
			func(r *http.Request) *http.Response {
				if !r.URL.Query().Has("limit") {
					return nil // the session's own list, or a watch
				}
				return answerOf(r, http.StatusInternalServerError, "text/plain", "")
			},
		},
		"the right to read Namespaces is missing for a while": {
			"namespaces", "", "a",
			func(q request) bool { return strings.HasSuffix(q.path, "/api/v1/namespaces") },
			func(r *http.Request) *http.Response {
				return answerOf(r, http.StatusForbidden, "application/json",
					`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTrial(t, replicaOptions(), 1, nil)
				defer r.end()
				r.createUnmanaged()
				r.createClass("a")
				r.put(r.control, "namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "a"}})
				pool := r.putRoot("a", "pool", 6)
				r.start("fleet-0")
				r.until("six machines run", func() bool { return r.missing() == "" })
				before := r.uids()
				holds := func(when string) {
					t.Helper()
					if got := r.uids(); !maps.Equal(got, before) {
						t.Errorf("%s: %d of %d machines are left, want all", when, len(got), len(before))
					}
				}
				r.holdDeletions(tc.resource, tc.namespace, tc.name, "etcd was restored")
				r.run(2*time.Second, nil)
				r.putRoot("a", pool.name, 1)
				r.run(time.Minute, nil)
				holds("while it can be read")
				unread := r.network.disturb(&disturbance{name: name, of: tc.of, answers: tc.answers})
				r.alive()[0].crash()
				r.run(5*time.Minute, nil)
				holds("while it cannot be read")
				r.network.heal(unread)
				r.run(2*time.Minute, nil)
				holds("when it can be read again")
				r.holdDeletions(tc.resource, tc.namespace, tc.name, "")
				r.until("the set has shrunk", func() bool { return r.missing() == "" })
			})
		})
	}
}
