package machineclass

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// foreignClass returns a class of namespace n that names a Secret of another namespace.
func foreignClass(finalizers ...string) *v1alpha1.MachineClass {
	return &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "class", Finalizers: finalizers},
		SecretRef:  &corev1.SecretReference{Namespace: "victim", Name: "s"},
	}
}

func foreignSecret(sharedWith string, finalizers ...string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "victim", Name: "s", UID: "secret", Finalizers: finalizers,
		Annotations: map[string]string{v1alpha1.AnnotationSharedWith: sharedWith},
	}}
}

// hasSecretFinalizer reports whether the victim's Secret carries our finalizer.
func hasSecretFinalizer(t *testing.T, secrets *fake.Clientset) bool {
	t.Helper()
	found, err := secrets.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), "victim", "s")
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := found.(*corev1.Secret)
	return slices.Contains(secret.Finalizers, v1alpha1.SecretFinalizerName)
}

// A class with VMs keeps a Secret of another namespace only if it is shared with its own; the data of other Secrets are not read.
func TestOnlySharedSecretsOfOtherNamespacesAreKept(t *testing.T) {
	for shared, want := range map[string]bool{"": false, "other": false, "n": true, "other , n": true, "*": false, "nn": false} {
		secrets := fake.NewClientset(foreignSecret(shared))
		c, _ := bench(t, secrets, nil, foreignClass(), machine("m", "c", "vm"))
		if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"}); err != nil {
			t.Fatal(err)
		}
		if got := hasSecretFinalizer(t, secrets); got != want {
			t.Errorf("shared with %q: kept: %t, want %t", shared, got, want)
		}
		if requested := len(secrets.Actions()) > 0; requested != want {
			t.Errorf("shared with %q: the requests for it were %v", shared, secrets.Actions())
		}
		end(c)
	}
}

// The release of a class does not change a Secret of another namespace that is not shared, and does not depend on it: the
// finalizer may be that of Machine Controller Manager, for a class of its own.
func TestReleaseOfAClassDoesNotChangeSecretsOfOtherNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		shared  string
		refuses bool
		kept    bool
	}{
		"not shared": {kept: true},
		"shared":     {shared: "n"},
		"forbidden":  {shared: "n", refuses: true, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			class := foreignClass(v1alpha1.FinalizerName)
			class.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			secrets := fake.NewClientset(foreignSecret(tc.shared, v1alpha1.SecretFinalizerName))
			about := apitest.SecretMetadata(secrets)
			if tc.refuses {
				about.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "s", nil)
				})
			}
			c, machines := bench(t, secrets, about, class)
			defer end(c)
			if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"}); err != nil {
				t.Fatal(err)
			}
			live, err := machines.MachineV1alpha1().MachineClasses("n").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil || len(live.Finalizers) > 0 {
				t.Errorf("the class has the finalizers %v (%v), want none", live.Finalizers, err)
			}
			if got := hasSecretFinalizer(t, secrets); got != tc.kept {
				t.Errorf("the Secret has our finalizer: %t, want %t", got, tc.kept)
			}
		})
	}
}

// A class that may not use a Secret does not prevent its owner from deleting it, even if the class cannot be decoded.
func TestClassThatMayNotUseASecretDoesNotKeepIt(t *testing.T) {
	key := types.NamespacedName{Namespace: "victim", Name: "s"}
	undecodable := `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineClass","metadata":{"namespace":"n","name":"c","uid":"u","finalizers":["` +
		v1alpha1.FinalizerName + `"]},"nodeTemplate":{"capacity":{"cpu":"many"}},"secretRef":"s"}`
	for shared, want := range map[string]bool{"": false, "n": true, "other": false} {
		secrets := fake.NewClientset(foreignSecret(shared, v1alpha1.SecretFinalizerName))
		c, _ := bench(t, secrets, nil, foreignClass(v1alpha1.FinalizerName))
		if _, err := c.reconcileSecret(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got := hasSecretFinalizer(t, secrets); got != want {
			t.Errorf("shared with %q: kept: %t, want %t", shared, got, want)
		}
		end(c)

		secrets = fake.NewClientset(foreignSecret(shared, v1alpha1.SecretFinalizerName))
		c, machines := bench(t, secrets, nil)
		machines.PrependReactor("list", "machineclasses", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() != metav1.NamespaceAll {
				return true, &v1alpha1.MachineClassList{}, nil
			}
			return true, &v1alpha1.MachineClassList{}, &decode.ListError{Failures: []*decode.Failure{apitest.Undecodable(t, undecodable)}}
		})
		if _, err := c.reconcileSecret(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got := hasSecretFinalizer(t, secrets); got != want {
			t.Errorf("shared with %q, and the class cannot be decoded: kept: %t, want %t", shared, got, want)
		}
		end(c)
	}
}

// An invalid name of a Secret must not become part of a request: metadata clients join it with the path.
func TestNoRequestIsMadeForAnInvalidName(t *testing.T) {
	for _, key := range []types.NamespacedName{
		{Namespace: "x", Name: "../../../watch/secrets"}, {Namespace: "..", Name: "s"}, {Namespace: "n", Name: ".."}, {Namespace: "n", Name: "%2e%2e"},
	} {
		class := foreignClass(v1alpha1.FinalizerName)
		class.SecretRef = &corev1.SecretReference{Namespace: key.Namespace, Name: key.Name}
		secrets := fake.NewClientset()
		about := apitest.SecretMetadata(secrets)
		c, machines := bench(t, secrets, about, class, machine("m", "c", "vm"))
		api := machines.MachineV1alpha1()
		_, kept := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"})
		_, released := c.reconcileSecret(t.Context(), key)
		gone := api.Machines("n").Delete(t.Context(), "m", metav1.DeleteOptions{})
		_, last := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"})
		if err := errors.Join(kept, released, gone, last); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if live, err := api.MachineClasses("n").Get(t.Context(), "c", metav1.GetOptions{}); err != nil || len(live.Finalizers) > 0 {
			t.Errorf("%s: the class has the finalizers %v (%v), want none", key, live.Finalizers, err)
		}
		if requested := append(about.Actions(), secrets.Actions()...); len(requested) > 0 {
			t.Errorf("%s: requests %v", key, requested)
		}
		machines.ClearActions()
		if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "../c"}); err != nil || len(machines.Actions()) > 0 {
			t.Errorf("a class with an invalid name: %v, requests %v", err, machines.Actions())
		}
		end(c)
	}
}
