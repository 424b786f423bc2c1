package machineclass

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machinefake "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/fake"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// lacks answers a list without an object that cannot be decoded.
func lacks(machines *machinefake.Clientset, resource string, list runtime.Object, f *decode.Failure) {
	machines.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, list, &decode.ListError{Failures: []*decode.Failure{f}}
	})
}

// A class is kept for a machine of it that cannot be decoded, and not for machines of other classes.
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
			c, machines := bench(t, fake.NewClientset(), nil, class)
			defer end(c)
			lacks(machines, "machines", &v1alpha1.MachineList{}, apitest.Undecodable(t, machine(tc.spec)))
			if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"}); err != nil {
				t.Fatal(err)
			}
			live, err := machines.MachineV1alpha1().MachineClasses("n").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil || len(live.Finalizers) > 0 != tc.kept {
				t.Errorf("finalizers %v (%v), want ours kept: %t", live.Finalizers, err, tc.kept)
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
			secrets := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", Finalizers: []string{v1alpha1.SecretFinalizerName}}})
			c, machines := bench(t, secrets, nil)
			defer end(c)
			lacks(machines, "machineclasses", &v1alpha1.MachineClassList{}, apitest.Undecodable(t, class(tc.content)))
			if _, err := c.reconcileSecret(t.Context(), types.NamespacedName{Namespace: "n", Name: "s"}); err != nil {
				t.Fatal(err)
			}
			secret, err := secrets.CoreV1().Secrets("n").Get(t.Context(), "s", metav1.GetOptions{})
			if err != nil || slices.Contains(secret.Finalizers, v1alpha1.SecretFinalizerName) != tc.kept {
				t.Errorf("finalizers %v (%v), want ours kept: %t", secret.Finalizers, err, tc.kept)
			}
		})
	}
}

// A class that cannot be decoded is not reconciled until it changes.
func TestUndecodableClassIsNotChanged(t *testing.T) {
	c, machines := bench(t, fake.NewClientset(), nil)
	defer end(c)
	machines.PrependReactor("get", "machineclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &v1alpha1.MachineClass{}, &decode.Failure{Cause: "nodeTemplate"}
	})
	result, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"})
	if err != nil || result.RequeueAfter > time.Duration(0) {
		t.Errorf("requeued after %v (%v), want when it changes", result.RequeueAfter, err)
	}
}
