package machineclass

import (
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// A class is kept for a machine of it that cannot be decoded, and not for machines of other
// classes.
func TestClassIsKeptForAnUndecodableMachine(t *testing.T) {
	machine := func(spec string) string {
		return `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"Machine","metadata":{"namespace":"n","name":"m"},"spec":` + spec + `}`
	}
	for name, tc := range map[string]struct {
		spec string
		kept bool
	}{
		"it has a VM":            {`{"class":{"name":"c"},"providerID":"vm","drainTimeout":"soon"}`, true},
		"it has none":            {`{"class":{"name":"c"},"drainTimeout":"soon"}`, true},
		"it is of another class": {`{"class":{"name":"other"},"providerID":"vm","drainTimeout":"soon"}`, false},
		"its class is unknown":   {`{"class":["c"],"drainTimeout":"soon"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", Finalizers: []string{v1alpha1.FinalizerName}}}
			c, cluster := bench(t, class)
			defer end(c)
			cluster.AddJSON("machines", machine(tc.spec))
			cluster.Fault(func(r apiserver.Request) error {
				if r.URL.Query().Has("fieldSelector") {
					return apierrors.NewBadRequest("the definition has no selectable fields")
				}
				return nil
			})
			if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"}); err != nil {
				t.Fatal(err)
			}
			if left := finalizers(t, cluster, "machineclasses", "n", "c"); len(left) > 0 != tc.kept {
				t.Errorf("finalizers %v, want ours kept: %t", left, tc.kept)
			}
		})
	}
}

func TestSecretIsKeptForAnUndecodableClass(t *testing.T) {
	class := func(content string) string {
		return `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineClass","metadata":{"namespace":"n","name":"c","uid":"u","finalizers":["` +
			v1alpha1.FinalizerName + `"]},"nodeTemplate":{"capacity":{"cpu":"many"}},` + content + `}`
	}
	for name, tc := range map[string]struct {
		content string
		kept    bool
	}{
		"it names the Secret":                 {`"secretRef":{"namespace":"n","name":"s"}`, true},
		"it names the Secret as credentials":  {`"credentialsSecretRef":{"namespace":"n","name":"s"}`, true},
		"it names another Secret":             {`"secretRef":{"namespace":"n","name":"other"}`, false},
		"the Secret that it names is unknown": {`"secretRef":"s"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, cluster := bench(t, ownSecret("u", v1alpha1.SecretFinalizerName))
			defer end(c)
			cluster.AddJSON("machineclasses", class(tc.content))
			if _, err := c.reconcileSecret(t.Context(), types.NamespacedName{Namespace: "n", Name: "s"}); err != nil {
				t.Fatal(err)
			}
			if left := finalizers(t, cluster, "secrets", "n", "s"); slices.Contains(left, v1alpha1.SecretFinalizerName) != tc.kept {
				t.Errorf("finalizers %v, want ours kept: %t", left, tc.kept)
			}
		})
	}
}

// A class that cannot be decoded is not reconciled until it changes.
func TestUndecodableClassIsNotChanged(t *testing.T) {
	c, cluster := bench(t, ownClass())
	defer end(c)
	cluster.SetUndecodable("machineclasses", "n", "c", true)
	result, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"})
	if err != nil || result.RequeueAfter > time.Duration(0) {
		t.Errorf("requeued after %v (%v), want when it changes", result.RequeueAfter, err)
	}
}
