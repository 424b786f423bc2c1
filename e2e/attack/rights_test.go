//go:build e2e

package attack

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// documentedRights tries what the documented rights of a tenant leave out: statuses, by themselves
// and with the object, what gets it more rights or a larger quota, Leases, and other namespaces.
func documentedRights(a *tenant) {
	m := a.machine("own", "no-class", func(m *v1alpha1.Machine) { m.Status.CurrentStatus.Phase = v1alpha1.MachineRunning })
	if m.Status.CurrentStatus.Phase != "" {
		a.Errorf("a Machine was created with the status %+v", m.Status)
	}
	client, err := kubernetes.NewForConfig(as(a.lab.Config, a.user))
	a.must(err)
	const machines = "/apis/machine.sapcloud.io/v1alpha1/namespaces/"
	for _, request := range []string{
		"PATCH " + machines + "NAMESPACE/machines/own/status", "PUT " + machines + "NAMESPACE/machines/own/status",
		"PATCH " + machines + "NAMESPACE/machinesets/own/status", "PATCH " + machines + "NAMESPACE/machinedeployments/own/status",
		"PUT " + machines + "NAMESPACE/machinedeployments/own/finalizers",
		"POST /api/v1/namespaces/NAMESPACE/resourcequotas", "POST /apis/rbac.authorization.k8s.io/v1/namespaces/NAMESPACE/rolebindings",
		"POST /api/v1/namespaces/NAMESPACE/serviceaccounts/default/token", "POST /apis/coordination.k8s.io/v1/namespaces/NAMESPACE/leases",
		"POST /apis/events.k8s.io/v1/namespaces/NAMESPACE/events", "PATCH /api/v1/namespaces/NAMESPACE",
		"GET " + machines + victimNamespace + "/machines", "GET /api/v1/namespaces/" + victimNamespace + "/secrets",
		"GET " + machines[:len(machines)-len("/namespaces/")] + "/machines",
	} {
		verb, path, _ := strings.Cut(strings.Replace(request, "NAMESPACE", a.namespace, 1), " ")
		r := client.CoreV1().RESTClient().Verb(verb).AbsPath(path)
		if verb != http.MethodGet {
			r = r.SetHeader("Content-Type",
				map[bool]string{true: "application/merge-patch+json", false: "application/json"}[verb == http.MethodPatch]).Body([]byte("{}"))
		}
		if err := r.Do(a.ctx).Error(); !apierrors.IsForbidden(err) {
			a.Errorf("%s %s: %v", verb, path, err)
		}
	}
}
