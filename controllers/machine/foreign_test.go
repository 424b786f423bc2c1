package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// The times of package credentials.
const (
	foreignPoll = time.Minute
	secretTTL   = 10 * time.Second
)

// foreign is a Secret of another namespace than the class.
func foreign(sharedWith string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "victim", Name: "admin", UID: "1",
			Annotations: map[string]string{v1alpha1.AnnotationSharedWith: sharedWith},
		},
		Data: map[string][]byte{"token": []byte("stolen"), v1alpha1.SecretKeyUserData: []byte("boot")},
	}
}

// putForeign creates or changes the Secret.
func (b *bench) putForeign(s *corev1.Secret) {
	b.Helper()
	apiserver.Add(b.server, s)
}

func (b *bench) foreign() *corev1.Secret {
	return apiserver.Read[corev1.Secret](b.server, "secrets", "victim", "admin")
}

// touched lists the requests for Secrets of other namespaces, in addition to those for metadata,
// and counts those for metadata.
func (b *bench) touched() (data []string, metadata int) {
	for _, r := range b.server.Requests() {
		switch {
		case r.Resource != "secrets":
		case r.IsMetadata():
			metadata++
		case r.Namespace != "n":
			data = append(data, r.Verb+" "+r.Namespace)
		}
	}
	b.server.Forget()
	return data, metadata
}

// A client that may write MachineClasses in one namespace learns nothing of the Secrets of other
// namespaces, neither by what is reported nor by how soon, and the fleet reads and writes none of
// them.
func TestASecretOfAnotherNamespaceIsNotUsed(t *testing.T) {
	type answer struct {
		phase       v1alpha1.MachinePhase
		code        string
		description string
		events      string
		asked       int
	}
	answers := map[string]answer{}
	for name, secret := range map[string]*corev1.Secret{
		"there is none": nil, "it is not shared": foreign(""), "it is shared with others": foreign("third,nn,N,*,n-"),
	} {
		for _, ref := range []string{"secretRef", "credentialsSecretRef"} {
			onBench(t, func(b *bench) {
				if secret != nil {
					b.putForeign(secret)
				}
				b.patchClass(`{"` + ref + `":{"namespace":"victim","name":"admin"}}`)
				b.create(withoutDeadline)
				b.pass(10*time.Minute + 30*time.Second)
				data, asked := b.touched()
				if len(data) > 0 {
					t.Errorf("%s as %s: requests %v", name, ref, data)
				}
				if secret != nil && len(b.foreign().Finalizers) > 0 {
					t.Errorf("%s as %s: it is held", name, ref)
				}
				m := b.get()
				got := answer{
					phase: m.Status.CurrentStatus.Phase, code: m.Status.LastOperation.ErrorCode, description: m.Status.LastOperation.Description,
					asked: asked,
				}
				got.events = strings.Join(b.reported.List(), ", ")
				if want, known := answers[ref]; known && got != want {
					t.Errorf("%s as %s: %+v, and in another case %+v", name, ref, got, want)
				}
				answers[ref] = got
				if got.code != driver.PermissionDenied.String() || !strings.Contains(got.description, v1alpha1.AnnotationSharedWith) {
					t.Errorf("%s as %s: %+v, want PermissionDenied that names the annotation", name, ref, got)
				}
				if len(b.cloud.Calls("")) > 0 {
					t.Errorf("%s as %s: the cloud got a request", name, ref)
				}
			})
		}
	}
}

// A Secret is used from when it is shared, and no longer when it is not.
func TestSecretIsSharedWhileItsAnnotationAllowsIt(t *testing.T) {
	onBench(t, func(b *bench) {
		b.putForeign(foreign(""))
		b.patchClass(`{"secretRef":{"namespace":"victim","name":"admin"}}`)
		b.create(withoutDeadline)
		b.pass(time.Minute)
		b.putForeign(foreign("third, n"))
		b.becomes(v1alpha1.MachineRunning, foreignPoll+bootTime+time.Second)
		if got := b.foreign().Finalizers; len(got) != 1 || got[0] != v1alpha1.SecretFinalizerName {
			t.Errorf("it is shared, and its finalizers are %v", got)
		}
		unshared := b.foreign()
		unshared.Annotations = nil
		b.putForeign(unshared)
		b.pass(secretTTL + time.Second)
		b.touched()
		b.delete()
		b.pass(10 * time.Second)
		m := b.get()
		if m == nil || m.Status.LastOperation.ErrorCode != driver.PermissionDenied.String() || len(b.cloud.Calls(driver.OpDelete)) > 0 {
			t.Fatalf("it is shared no longer: the machine is %+v, after %d calls", m, len(b.cloud.Calls(driver.OpDelete)))
		}
		if data, _ := b.touched(); len(data) > 0 {
			t.Errorf("it is shared no longer: requests %v", data)
		}
		again := b.foreign()
		again.Annotations = map[string]string{v1alpha1.AnnotationSharedWith: "n"}
		b.putForeign(again)
		b.pass(foreignPoll + 10*time.Second)
		if left := b.get(); left != nil {
			t.Errorf("left: %+v", left.Status)
		}
	})
}

// What is no name of a Secret is one that is missing, and becomes part of no request: clients of
// metadata join it with the path.
func TestNoRequestIsSentForAnInvalidName(t *testing.T) {
	for _, tc := range []struct {
		namespace, name string
		want            driver.Code
	}{
		{"x", "../../../watch/secrets", driver.PermissionDenied},
		{"x", "../../../watch/namespaces/victim/secrets", driver.PermissionDenied},
		{"..", "secrets", driver.PermissionDenied},
		{"victim/secrets/admin?", "s", driver.PermissionDenied},
		{"%2e%2e", "s", driver.PermissionDenied},
		{"victim", "Admin", driver.PermissionDenied},
		{"victim", strings.Repeat("a", 1<<20), driver.PermissionDenied},
		{"n", "../../victim/secrets/admin", driver.NotFound},
		{"", "..", driver.NotFound},
		{"", strings.Repeat("../", 1000), driver.NotFound},
	} {
		for _, ref := range []string{"secretRef", "credentialsSecretRef"} {
			onBench(t, func(b *bench) {
				b.putForeign(foreign(""))
				b.patchClass(`{"` + ref + `":{"namespace":"` + tc.namespace + `","name":"` + tc.name + `"}}`)
				b.create(withoutDeadline)
				b.pass(10 * time.Minute)
				for _, r := range b.server.Requests() { // "s" is that of the other reference
					if of := r.URL.Query().Get("fieldSelector"); r.Resource == "secrets" &&
						(r.Namespace != "n" || r.Name != "s" && of != "metadata.name=s") {
						t.Errorf("%s %.50q, %.50q: request %s %s", ref, tc.namespace, tc.name, r.Method, r.URL)
					}
				}
				last := b.get().Status.LastOperation
				if last.ErrorCode != tc.want.String() ||
					tc.want == driver.PermissionDenied && !strings.Contains(last.Description, v1alpha1.AnnotationSharedWith) {
					t.Errorf("%s %.50q, %.50q: %+v, want %s", ref, tc.namespace, tc.name, last, tc.want)
				}
			})
		}
	}
	onBench(t, func(b *bench) {
		b.create(withoutDeadline, func(m *v1alpha1.Machine) { m.Spec.Class.Name = "../c" })
		b.pass(time.Minute)
		for _, r := range b.server.Requests() {
			if strings.Contains(r.Name, "..") {
				t.Errorf("request %+v", r)
			}
		}
	})
}
