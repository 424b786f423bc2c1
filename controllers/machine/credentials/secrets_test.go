package credentials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

func TestTooManySecretsAreForgotten(t *testing.T) {
	read := map[secretUse]secretAt{}
	for i, c := range []struct {
		by, name string
		size     int
	}{{"a", "a1", 10}, {"b", "b1", 50}, {"b", "b2", 30}, {"a", "a2", 15}, {"b", "b3", 20}, {"c", "none", 0}} {
		use := secretUse{types.NamespacedName{Namespace: "x", Name: c.name}, c.by}
		read[use] = secretAt{at: time.Unix(int64(i), 0), size: c.size}
	}
	for most, want := range map[int]string{
		125: "", 124: "b1", 75: "b1", 74: "b1 b2", 45: "b1 b2", 44: "b1 b2 a1", 35: "b1 b2 a1", 34: "b1 b2 a1 b3", 0: "b1 b2 a1 b3 a2",
		-1: "b1 b2 a1 b3 a2",
	} {
		var got []string
		for _, use := range tooMany(read, most) {
			got = append(got, use.key.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("at most %d bytes: forgets %v, want %s", most, got, want)
		}
	}
}

// One namespace with many large Secrets takes a bounded part of the memory, and leaves what others
// have.
func TestRememberedSecretsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := &corev1.Secret{Data: map[string][]byte{"x": make([]byte, 1<<20)}}
		r := newSecrets(t, apiserver.Recording(), silent{})
		small := secretUse{types.NamespacedName{Namespace: "n", Name: "s"}, "n"}
		r.setCurrent(small, true)
		r.note(small, &corev1.Secret{Data: map[string][]byte{"x": []byte("y")}})
		for i := range 100 {
			use := secretUse{types.NamespacedName{Namespace: "large", Name: fmt.Sprint(i)}, "large"}
			r.setCurrent(use, true)
			r.note(use, secret)
			if _, fresh := r.known(use); !fresh {
				t.Fatal("what was just read is forgotten")
			}
		}
		total := 0
		for _, known := range r.read {
			total += known.size
		}
		if _, fresh := r.known(small); !fresh || total > mostRemembered || total < mostRemembered/2 {
			t.Errorf("%d bytes in %d Secrets, that of another namespace among them: %t", total, len(r.read), fresh)
		}
	})
}

// The credentials are the data of one Secret: they are not sent where the data of another Secret
// points.
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
		"one":                     {[]*corev1.Secret{first}, "", "of the first", "boot the first", 3},
		"the second has no token": {[]*corev1.Secret{first, secret(data{"endpoint": []byte("http://evil")})}, "", "", "boot the first", 1},
		"the second has user data": {
			[]*corev1.Secret{first, secret(data{"token": []byte("other"), "userData": []byte("boot it")})}, "", "other", "boot it", 2,
		},
		"the second is missing": {[]*corev1.Secret{first}, "s", "", "boot the first", 0},
		"there is none":         {},
	} {
		s := ClassSecrets{found: tc.found, Missing: tc.missing}
		got := s.Credentials()
		if string(got["token"]) != tc.token || len(got) != tc.keys || string(s.UserData()) != tc.boot {
			t.Errorf("%s: credentials %q, user data %q", name, got, s.UserData())
		}
	}
}

// silent is an API server that answers nothing.
type silent struct{ metadata.Getter } // nil: nothing but Get is called

func (s silent) Resource(schema.GroupVersionResource) metadata.Getter { return s }

func (s silent) Namespace(string) metadata.ResourceInterface { return s }

func (s silent) Get(ctx context.Context, _ string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// One read without an answer keeps the machines of others from theirs for a while only, and each no
// longer than its own context.
func TestAReadOfASecretEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSecrets(t, apiserver.Recording(), silent{})
		class := &v1alpha1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, SecretRef: &corev1.SecretReference{Namespace: "victim", Name: "admin"},
		}
		began := time.Now()
		read := func(ctx context.Context, want time.Duration, ended chan<- struct{}) {
			if _, err := r.Read(ctx, class); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != want {
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

// In a landscape each namespace has its own Secret, and requests for one delay no others.
func TestSecretsOfNamespacesAreReadSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces, answer = 50, time.Second
		cluster := apiserver.Recording()
		for i := range namespaces {
			apiserver.Add(cluster, stored(fmt.Sprint("n", i), "s"))
		}
		cluster.Fault(func(apiserver.Request) error {
			time.Sleep(answer)
			return nil
		})
		s, began := newSecrets(t, cluster, cluster.Metadata()), time.Now()
		var reading sync.WaitGroup
		for i := range 2 * namespaces { // two machines of each namespace
			reading.Go(func() {
				namespace := fmt.Sprint("n", i/2)
				class := &v1alpha1.MachineClass{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}, SecretRef: &corev1.SecretReference{Name: "s"},
				}
				if read, err := s.Read(t.Context(), class); err != nil || read.Missing != "" {
					t.Errorf("%s: missing %q (%v)", namespace, read.Missing, err)
				}
			})
		}
		reading.Wait()
		if took := time.Since(began); took != answer || len(cluster.Requests()) != namespaces || len(s.current) != 0 {
			t.Errorf("%d requests in %s, %d remain, want %d in %s", len(cluster.Requests()), took, len(s.current), namespaces, answer)
		}
	})
}

// The Secret changes while it is read: what was read may be from before, and is read again.
func TestSecretThatChangesWhileItIsReadIsNotRemembered(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cluster.Fault(func(apiserver.Request) error {
			b.secrets.Forget(naming("s").SecretKeys()...)
			return nil
		})
		b.read(naming("s"))
		b.expectCached("after a change", naming("s"), false)
		b.cluster.Fault(nil)
		b.read(naming("s"))
		b.expectCached("without a change", naming("s"), true)
	}, stored("n", "s"))
}

// A fleet that serves one namespace may not read the Secrets of others. That is no fault of its
// rights: none is shared with it.
func TestASecretThatTheFleetMayNotReadIsNotShared(t *testing.T) {
	for served, isFault := range map[string]bool{"n": false, "": true} {
		synctest.Test(t, func(t *testing.T) {
			cluster := apiserver.Recording(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Namespace: "victim", Name: "admin", Annotations: map[string]string{v1alpha1.AnnotationSharedWith: "n"},
			}})
			cluster.Refuse("get secrets", apierrors.NewForbidden(corev1.Resource("secrets"), "admin", nil))
			r := newSecrets(t, cluster, cluster.Metadata())
			r.cfg.Namespace = served
			got, err := r.Read(t.Context(), &v1alpha1.MachineClass{
				ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}, SecretRef: &corev1.SecretReference{Namespace: "victim", Name: "admin"},
			})
			if isFault != apierrors.IsForbidden(err) || !isFault && (err != nil || got.Missing != "victim/admin" || !got.Foreign) {
				t.Errorf("served %q: missing %q, foreign %t, %v", served, got.Missing, got.Foreign, err)
			}
			for _, r := range cluster.Requests() {
				if !r.IsMetadata() {
					t.Errorf("served %q: request %s", served, r.What())
				}
			}
		})
	}
}
