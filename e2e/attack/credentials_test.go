//go:build e2e

package attack

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// fleetGroup is the group that has the fleet's rights in the lab.
const fleetGroup = "machine-controller-fleet"

// stolenToken has the fleet's own rights in both clusters, and tries to get more of them.
func stolenToken(a *tenant) {
	control, err := kubernetes.NewForConfig(as(a.lab.Config, "thief", fleetGroup))
	a.must(err)
	target, err := kubernetes.NewForConfig(as(a.lab.TargetConfig, "thief", fleetGroup))
	a.must(err)
	_, err = a.lab.Target.CoreV1().Secrets(metav1.NamespaceSystem).Create(a.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "of-the-target"}, StringData: map[string]string{"token": adminSecret},
	}, metav1.CreateOptions{})
	a.must(err)

	system := func(c kubernetes.Interface) corev1client.SecretInterface {
		return c.CoreV1().Secrets(metav1.NamespaceSystem)
	}
	create := func(c kubernetes.Interface, secret *corev1.Secret) func() error {
		return func() error {
			_, err := system(c).Create(a.ctx, secret, metav1.CreateOptions{})
			return err
		}
	}
	node := func(patch string, subresource ...string) func() error {
		return func() error {
			_, err := target.CoreV1().Nodes().Patch(a.ctx, controlPlane, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
			return err
		}
	}
	serviceAccountToken := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "stolen", Annotations: map[string]string{corev1.ServiceAccountNameKey: "generic-garbage-collector"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	inDisguise := serviceAccountToken.DeepCopy()
	inDisguise.Name = "bootstrap-token-abcdef"
	bootstrapToken := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
	}
	lease := func(namespace, name string) func() error {
		return func() error {
			_, err := control.CoordinationV1().Leases(namespace).Create(a.ctx,
				&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		}
	}
	for what, try := range map[string]func() error{
		"create the token of a ServiceAccount in the target":  create(target, serviceAccountToken),
		"create one under the name of a bootstrap token":      create(target, inDisguise),
		"create the token of a ServiceAccount in the control": create(control, serviceAccountToken),
		"create a bootstrap token that is no machine's":       create(target, bootstrapToken),
		"change a Secret of the control cluster": update(a, control, func(s *corev1.Secret) {
			s.Data = map[string][]byte{"token": nil}
		}),
		"take a Secret's annotation, which shares it": update(a, control, func(s *corev1.Secret) {
			s.Annotations = map[string]string{"a": "b"}
		}),
		"hold a Secret by a finalizer that is not the fleet's": update(a, control, func(s *corev1.Secret) {
			s.Finalizers = []string{"example.com/hold"}
		}),
		"read a Secret of the target": func() error {
			_, err := system(target).Get(a.ctx, "of-the-target", metav1.GetOptions{})
			return err
		},
		"list the Secrets of the target": func() error {
			_, err := system(target).List(a.ctx, metav1.ListOptions{})
			return err
		},
		"give a Node another provider ID":     node(`{"spec":{"providerID":"simulated:///another"}}`),
		"give a Node another hostname":        node(`{"metadata":{"labels":{"kubernetes.io/hostname":"another"}}}`),
		"give a Node a restricted label":      node(`{"metadata":{"labels":{"node-restriction.kubernetes.io/pool":"a"}}}`),
		"set a Node ready":                    node(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status"),
		"create a Lease of the scheduler":     lease(metav1.NamespaceSystem, "kube-scheduler-2"),
		"create a Lease of another name":      lease(harness.FleetNamespace, "another"),
		"create a Lease in another namespace": lease(victimNamespace, "fleet-slot-0"),
	} {
		if err := try(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			a.Errorf("%s: %v", what, err)
		} else {
			a.Logf("%s: %v", what, err)
		}
	}
}

// update writes the Secret of kube-system in the control cluster.
func update(a *tenant, c kubernetes.Interface, change func(*corev1.Secret)) func() error {
	return func() error {
		secret, err := a.lab.Control.CoreV1().Secrets(metav1.NamespaceSystem).Get(a.ctx, adminToken, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(secret)
		_, err = c.CoreV1().Secrets(metav1.NamespaceSystem).Update(a.ctx, secret, metav1.UpdateOptions{})
		return err
	}
}
