package machineclass

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
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
func hasSecretFinalizer(t *testing.T, cluster *apiserver.Server) bool {
	t.Helper()
	return slices.Contains(finalizers(t, cluster, "secrets", "victim", "s"), v1alpha1.SecretFinalizerName)
}

// A class with VMs keeps a Secret of another namespace only if it is shared with its own; the data
// of other Secrets are not read.
func TestOnlySharedSecretsOfOtherNamespacesAreKept(t *testing.T) {
	for shared, want := range map[string]bool{"": false, "other": false, "n": true, "other , n": true, "*": false, "nn": false} {
		c, cluster := bench(t, foreignSecret(shared), foreignClass(), machine("m", "c", "vm"))
		if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"}); err != nil {
			t.Fatal(err)
		}
		if got := hasSecretFinalizer(t, cluster); got != want {
			t.Errorf("shared with %q: kept: %t, want %t", shared, got, want)
		}
		if got := requested(cluster, "secrets"); len(got) > 0 != want {
			t.Errorf("shared with %q: the requests for it were %v", shared, got)
		}
		end(c)
	}
}

// The release of a class does not change a Secret of another namespace that is not shared, and does
// not depend on it: the finalizer may be that of Machine Controller Manager, for its own class.
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
			c, cluster := bench(t, class, foreignSecret(tc.shared, v1alpha1.SecretFinalizerName))
			if tc.refuses {
				cluster.Refuse("get secrets", apierrors.NewForbidden(corev1.Resource("secrets"), "s", nil))
			}
			defer end(c)
			if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"}); err != nil {
				t.Fatal(err)
			}
			if left := cluster.Get("machineclasses", "n", "c"); left != nil {
				t.Errorf("the class has the finalizers %v, want none", left.GetFinalizers())
			}
			if got := hasSecretFinalizer(t, cluster); got != tc.kept {
				t.Errorf("the Secret has our finalizer: %t, want %t", got, tc.kept)
			}
		})
	}
}

// A class that may not use a Secret does not prevent its owner from deleting it, even if the class
// cannot be decoded.
func TestClassThatMayNotUseASecretDoesNotKeepIt(t *testing.T) {
	key := types.NamespacedName{Namespace: "victim", Name: "s"}
	undecodable := `{"apiVersion":"machine.sapcloud.io/v1alpha1","kind":"MachineClass","metadata":{"namespace":"n","name":"c","uid":"u","finalizers":["` +
		v1alpha1.FinalizerName + `"]},"nodeTemplate":{"capacity":{"cpu":"many"}},"secretRef":"s"}`
	for shared, want := range map[string]bool{"": false, "n": true, "other": false} {
		c, cluster := bench(t, foreignSecret(shared, v1alpha1.SecretFinalizerName), foreignClass(v1alpha1.FinalizerName))
		if _, err := c.reconcileSecret(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got := hasSecretFinalizer(t, cluster); got != want {
			t.Errorf("shared with %q: kept: %t, want %t", shared, got, want)
		}
		end(c)

		c, cluster = bench(t, foreignSecret(shared, v1alpha1.SecretFinalizerName))
		cluster.AddJSON("machineclasses", undecodable)
		if _, err := c.reconcileSecret(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if got := hasSecretFinalizer(t, cluster); got != want {
			t.Errorf("shared with %q, and the class cannot be decoded: kept: %t, want %t", shared, got, want)
		}
		end(c)
	}
}

// An invalid name of a Secret must not become part of a request: metadata clients join it with the
// path.
func TestNoRequestIsSentForAnInvalidName(t *testing.T) {
	for _, key := range []types.NamespacedName{
		{Namespace: "x", Name: "../../../watch/secrets"},
		{Namespace: "..", Name: "s"},
		{Namespace: "n", Name: ".."},
		{Namespace: "n", Name: "%2e%2e"},
	} {
		class := foreignClass(v1alpha1.FinalizerName)
		class.SecretRef = &corev1.SecretReference{Namespace: key.Namespace, Name: key.Name}
		c, cluster := bench(t, class, machine("m", "c", "vm"))
		_, kept := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"})
		_, released := c.reconcileSecret(t.Context(), key)
		cluster.Delete("machines", "n", "m")
		_, last := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "c"})
		if err := errors.Join(kept, released, last); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if left := finalizers(t, cluster, "machineclasses", "n", "c"); len(left) > 0 {
			t.Errorf("%s: the class has the finalizers %v, want none", key, left)
		}
		if cluster.Count("* secrets") > 0 {
			t.Errorf("%s: requests %v", key, cluster.Log())
		}
		cluster.Forget()
		if _, err := c.reconcileClass(t.Context(), types.NamespacedName{Namespace: "n", Name: "../c"}); err != nil || len(cluster.Log()) > 0 {
			t.Errorf("a class with an invalid name: %v, requests %v", err, cluster.Log())
		}
		end(c)
	}
}
