package machine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// foreign is a Secret of another namespace than the class.
func foreign(sharedWith string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "victim", Name: "admin", ResourceVersion: "1", UID: "1",
			Annotations: map[string]string{v1alpha1.AnnotationSharedWith: sharedWith},
		},
		Data: map[string][]byte{"token": []byte("stolen"), v1alpha1.SecretKeyUserData: []byte("boot")},
	}
}

// putForeign makes or changes the Secret.
func (b *bench) putForeign(s *corev1.Secret) {
	b.Helper()
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	if _, err := b.secrets.Tracker().Get(secrets, s.Namespace, s.Name); err == nil {
		b.must(b.secrets.Tracker().Update(secrets, s, s.Namespace))
		return
	}
	b.must(b.secrets.Tracker().Create(secrets, s, s.Namespace))
}

func (b *bench) foreign() *corev1.Secret {
	b.Helper()
	found, err := b.secrets.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), "victim", "admin")
	b.must(err)
	s, _ := found.(*corev1.Secret)
	return s
}

// touched lists the requests for Secrets of other namespaces, beside those for metadata, and counts those for metadata.
func (b *bench) touched() (data []string, metadata int) {
	for _, a := range b.secrets.Actions() {
		if a.GetNamespace() != "n" {
			data = append(data, a.GetVerb()+" "+a.GetNamespace())
		}
	}
	metadata = len(b.about.Actions())
	b.secrets.ClearActions()
	b.about.ClearActions()
	return data, metadata
}

// A client that may write MachineClasses in one namespace learns nothing of the Secrets of other namespaces, neither by what is
// reported nor by how soon, and the fleet reads and writes none of them.
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
					b.putForeign(secret.DeepCopy())
				}
				b.patchClass(`{"` + ref + `":{"namespace":"victim","name":"admin"}}`)
				b.create(patient)
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
				if len(b.cloud.log("")) > 0 {
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
		b.create(patient)
		b.pass(time.Minute)
		shared := foreign("third, n")
		shared.ResourceVersion = "2"
		b.putForeign(shared)
		b.becomes(v1alpha1.MachineRunning, foreignPoll+bootTime+time.Second)
		if got := b.foreign().Finalizers; len(got) != 1 || got[0] != v1alpha1.SecretFinalizerName {
			t.Errorf("it is shared, and its finalizers are %v", got)
		}
		unshared := b.foreign().DeepCopy()
		unshared.Annotations, unshared.ResourceVersion = nil, "3"
		b.putForeign(unshared)
		b.pass(secretTTL + time.Second)
		b.touched()
		b.delete()
		b.pass(10 * time.Second)
		m := b.get()
		if m == nil || m.Status.LastOperation.ErrorCode != driver.PermissionDenied.String() || len(b.cloud.log(driver.OpDelete)) > 0 {
			t.Fatalf("it is shared no longer: the machine is %+v, after %d calls", m, len(b.cloud.log(driver.OpDelete)))
		}
		if data, _ := b.touched(); len(data) > 0 {
			t.Errorf("it is shared no longer: requests %v", data)
		}
		again := b.foreign().DeepCopy()
		again.Annotations, again.ResourceVersion = map[string]string{v1alpha1.AnnotationSharedWith: "n"}, "4"
		b.putForeign(again)
		b.pass(foreignPoll + 10*time.Second)
		if left := b.get(); left != nil {
			t.Errorf("left: %+v", left.Status)
		}
	})
}

// The credentials are the data of one Secret: they are not sent where the data of another Secret points.
func TestCredentialsComeFromOneSecret(t *testing.T) {
	type data = map[string][]byte
	secret := func(d data) *corev1.Secret { return &corev1.Secret{Data: d} }
	first := secret(data{"token": []byte("of the first"), "userData": []byte("boot the first"), "region": []byte("r")})
	for name, tc := range map[string]struct {
		found       []*corev1.Secret
		missing     string
		token, boot string
		keys        int
	}{
		"one":                      {[]*corev1.Secret{first}, "", "of the first", "boot the first", 3},
		"the second has no token":  {[]*corev1.Secret{first, secret(data{"endpoint": []byte("http://evil")})}, "", "", "boot the first", 1},
		"the second has user data": {[]*corev1.Secret{first, secret(data{"token": []byte("other"), "userData": []byte("boot it")})}, "", "other", "boot it", 2},
		"the second is missing":    {[]*corev1.Secret{first}, "s", "", "boot the first", 0},
		"there is none":            {},
	} {
		s := classSecrets{found: tc.found, missing: tc.missing}
		got := s.credentials()
		if string(got["token"]) != tc.token || len(got) != tc.keys || string(s.userData()) != tc.boot {
			t.Errorf("%s: credentials %q, user data %q", name, got, s.userData())
		}
	}
}

// What is no name of a Secret is one that is missing, and becomes part of no request: clients of metadata join it with the path.
func TestNoRequestIsMadeForAnInvalidName(t *testing.T) {
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
				b.create(patient)
				b.pass(10 * time.Minute)
				for _, a := range append(b.secrets.Actions(), b.about.Actions()...) {
					name := "" // that of the other reference
					switch a := a.(type) {
					case clienttesting.GetAction:
						name = a.GetName()
					case clienttesting.WatchAction:
						name, _ = a.GetWatchRestrictions().Fields.RequiresExactMatch(metav1.ObjectNameField)
					}
					if a.GetNamespace() != "n" || name != "s" {
						t.Errorf("%s %.50q, %.50q: request %v", ref, tc.namespace, tc.name, a)
					}
				}
				last := b.get().Status.LastOperation
				if last.ErrorCode != tc.want.String() || tc.want == driver.PermissionDenied && !strings.Contains(last.Description, v1alpha1.AnnotationSharedWith) {
					t.Errorf("%s %.50q, %.50q: %+v, want %s", ref, tc.namespace, tc.name, last, tc.want)
				}
			})
		}
	}
	onBench(t, func(b *bench) {
		b.create(patient, func(m *v1alpha1.Machine) { m.Spec.Class.Name = "../c" })
		b.pass(time.Minute)
		for _, r := range b.server.Requests() {
			if strings.Contains(r.Name, "..") {
				t.Errorf("request %+v", r)
			}
		}
	})
}

// silent is an API server that answers nothing.
type silent struct{ metadata.Getter } // nil: nothing but Get is called

func (s silent) Resource(schema.GroupVersionResource) metadata.Getter { return s }

func (s silent) Namespace(string) metadata.ResourceInterface { return s }

func (s silent) Get(ctx context.Context, _ string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// One read without an answer keeps the machines of others from theirs for a while only, and each no longer than its own context.
func TestAReadOfASecretEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSecretReader(fake.NewClientset().CoreV1(), silent{}, "", clock.RealClock{})
		class := &v1alpha1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, SecretRef: &corev1.SecretReference{Namespace: "victim", Name: "admin"},
		}
		began := time.Now()
		read := func(ctx context.Context, want time.Duration, ended chan<- struct{}) {
			if _, err := r.get(ctx, class); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != want {
				t.Errorf("%v after %s, want the end of the context after %s", err, time.Since(began), want)
			}
			ended <- struct{}{}
		}
		ended := make(chan struct{})
		go read(t.Context(), askingTime, ended)
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go read(short, time.Second, ended)
		<-ended
		go read(t.Context(), 2*askingTime, ended)
		<-ended
		<-ended
	})
}

// A fleet that serves one namespace may not read the Secrets of others. That is no fault of its rights: none is shared with it.
func TestASecretThatTheFleetMayNotReadIsNotShared(t *testing.T) {
	for served, isFault := range map[string]bool{"n": false, "": true} {
		synctest.Test(t, func(t *testing.T) {
			cluster := fake.NewClientset(foreign("n"))
			about := apitest.SecretMetadata(cluster)
			about.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "admin", nil)
			})
			r := newSecretReader(cluster.CoreV1(), about, served, clock.RealClock{})
			got, err := r.get(t.Context(), &v1alpha1.MachineClass{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, SecretRef: &corev1.SecretReference{Namespace: "victim", Name: "admin"},
			})
			if isFault != apierrors.IsForbidden(err) || !isFault && (err != nil || got.missing != "victim/admin" || !got.foreign) {
				t.Errorf("served %q: missing %q, foreign %t, %v", served, got.missing, got.foreign, err)
			}
			if len(cluster.Actions()) > 0 {
				t.Errorf("served %q: requests %v", served, cluster.Actions())
			}
		})
	}
}
