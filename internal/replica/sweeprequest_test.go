package replica

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestSweepRequestIsServedSoon: of complete replicas the leader serves a request on a MachineClass
// long before the next usual sweep, whichever replica leads when it comes.
func TestSweepRequestIsServedSoon(t *testing.T) {
	o := replicaOptions()
	o.Safety.OrphanVMsPeriod = 100 * time.Hour
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		// Nothing is swept while the control cluster is not identified.
		r.put(r.control,
			"namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": metav1.NamespaceSystem}})
		r.createUnmanaged()
		r.createClass("a")
		r.putRoot("a", "d", 1)
		for _, replica := range []string{"fleet-0", "fleet-1"} {
			r.start(replica)
		}
		if !r.run(5*time.Minute, func() bool { return r.missing() == "" }) {
			t.Fatal(r.missing(), r.wrong)
		}
		class := r.control.List("machineclasses")[0].GetName()
		r.control.Edit("machineclasses", "a", class, func(u *unstructured.Unstructured) {
			annotations := u.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[v1alpha1.AnnotationSweepRequested] = "m"
			u.SetAnnotations(annotations)
		})
		served := func() bool {
			return r.control.Get("machineclasses", "a", class).GetAnnotations()[v1alpha1.AnnotationSweepRequested] == ""
		}
		if !r.run(2*time.Minute, served) {
			t.Error("the request is not served")
		}
		if r.wrong != "" {
			t.Error(r.wrong)
		}
	})
}
