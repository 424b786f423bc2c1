//go:build e2e

package attack

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// secretOfTheControlCluster names a Secret of kube-system in a class, so that the fleet sends it to
// the attacker's cloud, as user data or as a credential. It is rejected with the same message as a
// Secret that does not exist.
func secretOfTheControlCluster(a *tenant) {
	a.secret("mine", map[string]string{v1alpha1.SecretKeyUserData: harness.UserData, "endpoint": a.cloud.endpoint("working")})
	foreign := func(name string) *corev1.SecretReference {
		return &corev1.SecretReference{Name: name, Namespace: metav1.NamespaceSystem}
	}
	mine := &corev1.SecretReference{Name: "mine", Namespace: a.namespace}
	texts := map[string]string{}
	for _, name := range []string{adminToken, "no-such-secret"} {
		for part, refs := range map[string][2]*corev1.SecretReference{"data": {foreign(name), mine}, "credentials": {mine, foreign(name)}} {
			class := harness.Class(a.namespace, "")
			class.Name = part + "-" + name
			class.SecretRef, class.CredentialsSecretRef = refs[0], refs[1]
			_, err := a.api.MachineClasses(a.namespace).Create(a.ctx, class, metav1.CreateOptions{})
			a.must(err)
			a.machine(class.Name, class.Name)
			text := a.reports(class.Name, "PermissionDenied", "not in its namespace", v1alpha1.AnnotationSharedWith)
			texts[class.Name] = strings.ReplaceAll(text, name, "NAME")
		}
	}
	for _, part := range []string{"data-", "credentials-"} {
		if is, isNot := texts[part+adminToken], texts[part+"no-such-secret"]; is != isNot {
			a.Errorf("of a Secret that exists: %s\nof one that does not: %s", is, isNot)
		}
	}
	for name := range texts {
		a.remove(name)
		a.gone(name)
	}
	a.nothingLeaks(adminSecret)
}

// nothingLeaks checks that no cloud has received a text.
func (a *tenant) nothingLeaks(text string) {
	a.Helper()
	for lie := range lies {
		for _, request := range a.cloud.requestsFor(lie) {
			if strings.Contains(request.head+string(request.body), text) ||
				bytes.Contains(request.body, []byte(base64.StdEncoding.EncodeToString([]byte(text)))) {
				a.Errorf("the cloud %q received %s %s", lie, request.head, request.body)
			}
		}
	}
	if got := a.cloud.requestsFor(""); len(got) > 0 {
		a.Errorf("an address that no flag allows received %q", got)
	}
}

// sharedSecret uses Secrets that an administrator has shared: with this namespace, and with others
// of a similar name.
func sharedSecret(a *tenant) {
	shared := map[string]string{
		"with-me":     "other, " + a.namespace,
		"with-others": a.namespace + "s,*," + strings.ToUpper(a.namespace) + ", x" + a.namespace,
	}
	for name, namespaces := range shared {
		_, err := a.lab.Control.CoreV1().Secrets(metav1.NamespaceDefault).Create(a.ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.AnnotationSharedWith: namespaces}},
			StringData: map[string]string{v1alpha1.SecretKeyUserData: harness.UserData},
		}, metav1.CreateOptions{})
		a.must(err)
		class := harness.Class(a.namespace, "")
		class.Name, class.SecretRef = name, &corev1.SecretReference{Name: name, Namespace: metav1.NamespaceDefault}
		_, err = a.api.MachineClasses(a.namespace).Create(a.ctx, class, metav1.CreateOptions{})
		a.must(err)
		a.machine(a.named(name), name)
	}
	a.running(a.named("with-me"))
	a.reports(a.named("with-others"), "PermissionDenied", "not in its namespace")
}

// pathInTheNameOfASecret uses a name of a Secret that could change the request to a watch of all
// Secrets, which lasts for an hour. Other machines are created meanwhile.
func pathInTheNameOfASecret(a *tenant) {
	for i, ref := range []corev1.SecretReference{
		{Namespace: "x", Name: "../../../watch/secrets"},
		{Namespace: "../../../api/v1/watch/secrets", Name: "x"},
		{Namespace: a.namespace, Name: "../../../../watch/secrets"},
		{Namespace: "", Name: ".."},
	} {
		class := harness.Class(a.namespace, "")
		class.Name, class.SecretRef = fmt.Sprint("path-", i), &ref
		_, err := a.api.MachineClasses(a.namespace).Create(a.ctx, class, metav1.CreateOptions{})
		a.must(err)
		a.machine(class.Name, class.Name)
	}
	a.reports("path-0", "PermissionDenied", "not in its namespace")
	a.reports("path-1", "PermissionDenied", "not in its namespace")
	a.reports("path-2", "NotFound", "does not exist")
	a.machine(a.named("other"), harness.ClassName)
	a.running(a.named("other"))
	requests, err := a.lab.Watches(a.position)
	a.must(err)
	for _, r := range requests {
		if r.IsFleet() && r.Resource == "secrets" && r.Name == "" && !strings.Contains(r.URI, "fieldSelector=metadata.name") &&
			!strings.Contains(r.UserAgent, "metadata") {
			a.Errorf("a replica watches %s", r.URI)
		}
	}
}

// foreignEndpoint makes the fleet send requests to an address of the attacker, or through a cloud
// to another path of it.
func foreignEndpoint(a *tenant) {
	for name, endpoint := range map[string]string{
		"elsewhere": a.cloud.elsewhere.URL,
		"user":      strings.Replace(a.cloud.elsewhere.URL, "http://", "http://127.0.0.1:80@", 1),
		"path":      a.cloud.endpoint("working") + "/../../admin",
		"scheme":    strings.Replace(a.cloud.elsewhere.URL, "http", "gopher", 1),
	} {
		a.class(name, endpoint)
		a.machine(name, name)
		a.reports(name, "InvalidArgument", `"endpoint"`)
	}
	a.nothingLeaks(adminSecret)
}
