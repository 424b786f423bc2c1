//go:build e2e

package attack

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// absurdNumbers requests impossible numbers, which the definitions reject, and meaningless ones,
// which are served.
func absurdNumbers(a *tenant) {
	for name, change := range map[string]func(spec *v1alpha1.MachineDeploymentSpec){
		"many": func(spec *v1alpha1.MachineDeploymentSpec) { spec.Replicas = math.MaxInt32 },
		"surge": func(spec *v1alpha1.MachineDeploymentSpec) {
			spec.Strategy.Type = v1alpha1.RollingUpdateMachineDeploymentStrategyType
			spec.Strategy.RollingUpdate = &v1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: v1alpha1.UpdateConfiguration{
				MaxSurge: new(intstr.FromInt32(math.MaxInt32)), MaxUnavailable: new(intstr.FromInt32(0)),
			}}
		},
	} {
		d := harness.Deployment(a.namespace, name, 1)
		change(&d.Spec)
		if _, err := a.api.MachineDeployments(a.namespace).Create(a.ctx, d, metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "1000000") {
			a.Errorf("MachineDeployment %s: want it rejected for its number, got %v", name, err)
		}
	}
	a.deploy("negative", 1, func(d *v1alpha1.MachineDeployment) { d.Spec.AutoPreserveFailedMachineMax = -3 })
	a.eventually("the machine of the third runs", func(ctx context.Context) error {
		d, err := a.api.MachineDeployments(a.namespace).Get(ctx, "negative", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 1 {
			err = fmt.Errorf("its status is %+v", d.Status)
		}
		return err
	})
}

// forgedNotes writes the fleet's own notes, in every place from which they could be copied to a
// Machine.
func forgedNotes(a *tenant) {
	a.deploy("pool", 1)
	notes := map[string]string{v1alpha1.AnnotationIntents: `[{"ordinal":0}]`, v1alpha1.AnnotationSetAside: "{}"}
	refused := func(what string, err error) {
		a.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "notes of the fleet") {
			a.Errorf("%s: %v", what, err)
		}
	}
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: notes},
		Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: harness.ClassName}},
	}
	_, err := a.api.Machines(a.namespace).Create(a.ctx, m, metav1.CreateOptions{})
	refused("a Machine", err)
	d := harness.Deployment(a.namespace, "forged", 1)
	d.Spec.Template.Annotations = notes
	_, err = a.api.MachineDeployments(a.namespace).Create(a.ctx, d, metav1.CreateOptions{})
	refused("the template of a MachineDeployment", err)
	_, err = a.api.MachineDeployments(a.namespace).Patch(a.ctx, "pool", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"[]"}}}`, v1alpha1.AnnotationIntents), metav1.PatchOptions{})
	refused("a MachineDeployment", err)
	_, err = a.api.MachineDeployments(a.namespace).Patch(a.ctx, "pool", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:"1"}}}`, v1alpha1.LabelSlot), metav1.PatchOptions{})
	refused("the slot of a MachineDeployment", err)
}

// silentConnections is more than a replica serves for one address.
const silentConnections = 600

// portWithoutEnd opens silent connections to a replica, and reads the metrics of others'
// namespaces.
func portWithoutEnd(a *tenant) {
	endpoint := a.lab.Endpoint("fleet-1")
	at, err := url.Parse(endpoint)
	a.must(err)
	var dialer net.Dialer
	for range silentConnections {
		conn, err := dialer.DialContext(a.ctx, "tcp", at.Host)
		a.must(err)
		a.Cleanup(func() { _ = conn.Close() })
	}
	client := func(address net.IP) *http.Client {
		return &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: address}}).DialContext,
		}}
	}
	here, elsewhere := client(net.IPv4(127, 0, 0, 1)), client(net.IPv4(127, 0, 0, 2))
	get := func(from *http.Client, path, token string) (status int, body string) {
		a.Helper()
		r, err := http.NewRequestWithContext(a.ctx, http.MethodGet, endpoint+path, nil)
		a.must(err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := from.Do(r)
		a.must(err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		a.must(err)
		return resp.StatusCode, string(text)
	}
	for _, from := range []*http.Client{here, elsewhere} {
		if status, body := get(from, "/readyz", ""); status != http.StatusOK {
			a.Errorf("/readyz: %d %s", status, body)
		}
	}
	for _, path := range []string{"/metrics", "/debug/slots"} {
		if status, body := get(elsewhere, path, ""); status != http.StatusUnauthorized || strings.Contains(body, victimNamespace) {
			a.Errorf("%s without a token: %d %s", path, status, body)
		}
		if status, body := get(elsewhere, path, a.reader("outsider", "/nothing")); status != http.StatusForbidden ||
			strings.Contains(body, victimNamespace) {
			a.Errorf("%s by a user without access: %d %s", path, status, body)
		}
		if status, body := get(elsewhere, path, a.reader("scraper"+strings.ReplaceAll(path, "/", "-"), path)); status != http.StatusOK {
			a.Errorf("%s by a user with access: %d %s", path, status, body)
		}
	}
}

// reader creates a ServiceAccount that may get a path, and returns a token of it.
func (a *tenant) reader(name, path string) string {
	a.Helper()
	accounts := a.lab.Control.CoreV1().ServiceAccounts(a.namespace)
	if _, err := accounts.Get(a.ctx, name, metav1.GetOptions{}); err != nil {
		_, err = accounts.Create(a.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		a.must(err)
		rbac := a.lab.Control.RbacV1()
		_, err = rbac.ClusterRoles().Create(a.ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{path}, Verbs: []string{"get"}}},
		}, metav1.CreateOptions{})
		a.must(err)
		_, err = rbac.ClusterRoleBindings().Create(a.ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.namespace, Name: name}},
		}, metav1.CreateOptions{})
		a.must(err)
	}
	token, err := accounts.CreateToken(a.ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	a.must(err)
	return token.Status.Token
}
