package credentials

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

// bench has the Secrets of a cluster in memory, in a bubble of synctest.
type bench struct {
	*testing.T

	cluster *apiserver.Server
	secrets *Secrets
}

func onBench(t *testing.T, test func(b *bench), stored ...apiserver.Typed) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := apiserver.Recording(stored...)
		test(&bench{t, cluster, newSecrets(t, cluster, cluster.Metadata())})
	})
}

func newSecrets(t *testing.T, cluster *apiserver.Server, metadata metadata.Interface) *Secrets {
	t.Helper()
	s, err := NewSecrets(SecretsConfig{Client: cluster.Core().CoreV1(), Metadata: metadata, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stored returns a Secret whose data are its name.
func stored(namespace, name string, changes ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		Data:       map[string][]byte{"key": []byte(name)},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func withFinalizer(s *corev1.Secret) { s.Finalizers = []string{v1alpha1.SecretFinalizerName} }

func sharedWithN(s *corev1.Secret) {
	s.Annotations = map[string]string{v1alpha1.AnnotationSharedWith: "n"}
}

// naming returns a class of the namespace n that names Secrets of that namespace, or of another one
// as namespace/name.
func naming(names ...string) *v1alpha1.MachineClass {
	class := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	refs := []**corev1.SecretReference{&class.SecretRef, &class.CredentialsSecretRef}
	for i, text := range names {
		ref := &corev1.SecretReference{Name: text}
		if namespace, name, isForeign := strings.Cut(text, "/"); isForeign {
			ref.Namespace, ref.Name = namespace, name
		}
		*refs[i] = ref
	}
	return class
}

func (b *bench) read(class *v1alpha1.MachineClass) ClassSecrets {
	b.Helper()
	read, err := b.secrets.Read(b.Context(), class)
	if err != nil {
		b.Fatal(err)
	}
	return read
}

// requests returns the requests since the last call.
func (b *bench) requests() (all []string) {
	for _, r := range b.cluster.Requests() {
		verb := r.Verb
		if r.IsMetadata() {
			verb = "metadata"
		}
		all = append(all, verb+" "+r.Namespace+"/"+r.Name)
	}
	b.cluster.Forget()
	return all
}

// expectRequests checks the requests since the last call.
func (b *bench) expectRequests(when string, want ...string) {
	b.Helper()
	if got := b.requests(); !slices.Equal(got, want) {
		b.Errorf("%s: requests %q, want %q", when, got, want)
	}
}

// expectCached checks whether the Secrets of a class are remembered.
func (b *bench) expectCached(when string, class *v1alpha1.MachineClass, want bool) {
	b.Helper()
	if _, fresh := b.secrets.Cached(class); fresh != want {
		b.Errorf("%s: the Secrets of the class are remembered: %t, want %t", when, fresh, want)
	}
}

// TestSecretsOfAClass reads them with as few requests as reveal nothing, and once.
func TestSecretsOfAClass(t *testing.T) {
	for name, tc := range map[string]struct {
		stored   []apiserver.Typed
		served   string // namespace
		names    []string
		missing  string
		found    int
		requests []string
	}{
		"one": {stored: []apiserver.Typed{stored("n", "s")}, names: []string{"s"}, found: 1, requests: []string{"get n/s"}},
		"two": {
			stored: []apiserver.Typed{stored("n", "s"), stored("n", "t")}, names: []string{"s", "t"},
			found: 2, requests: []string{"get n/s", "get n/t"},
		},
		"the first does not exist": {
			stored: []apiserver.Typed{stored("n", "t")}, names: []string{"s", "t"}, missing: "s", requests: []string{"get n/s"},
		},
		"the second does not exist": {
			stored: []apiserver.Typed{stored("n", "s")}, names: []string{"s", "t"}, missing: "t", found: 1, requests: []string{"get n/s", "get n/t"},
		},
		"it is being deleted, and has not our finalizer": {
			stored: []apiserver.Typed{stored("n", "s", func(s *corev1.Secret) {
				s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"other"}
			})},
			names: []string{"s"}, missing: "s", requests: []string{"get n/s"},
		},
		"it is shared": {
			stored: []apiserver.Typed{stored("other", "s", sharedWithN)}, names: []string{"other/s"},
			found: 1, requests: []string{"metadata other/s", "get other/s"},
		},
		"it is shared, and one namespace is served": {
			stored: []apiserver.Typed{stored("other", "s", sharedWithN)}, served: "n", names: []string{"other/s"},
			found: 1, requests: []string{"metadata other/s", "get other/s"},
		},
		"it is not shared": {
			stored: []apiserver.Typed{stored("other", "s")}, names: []string{"other/s"}, missing: "other/s", requests: []string{"metadata other/s"},
		},
		"it is of another namespace, and does not exist": {
			names: []string{"other/s"}, missing: "other/s", requests: []string{"metadata other/s"},
		},
		"no Secret can have the name": {names: []string{"S_"}, missing: "S_"},
		"the name is a long text": {
			names: []string{strings.Repeat("x", 1000)}, missing: strings.Repeat("x", mostMissing-len("…")) + "…",
		},
		"there is none": {},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.secrets.cfg.Namespace = tc.served
				class := naming(tc.names...)
				b.expectCached("before", class, len(tc.requests) == 0)
				got := b.read(class)
				b.expectRequests("at first", tc.requests...)
				if isForeign := strings.Contains(tc.missing, "/"); got.Missing != tc.missing || got.Foreign != isForeign {
					b.Errorf("missing %q, of another namespace: %t; want %q, %t", got.Missing, got.Foreign, tc.missing, isForeign)
				}
				for i, key := range class.SecretKeys() {
					checksum, isRead := got.Prints[key]
					if isFound := i < tc.found; isRead != (i <= tc.found) || (checksum != "") != isFound {
						b.Errorf("the checksum of %s is %q, read: %t; want found: %t", key, checksum, isRead, isFound)
					}
				}
				credentials := ""
				if keys := class.SecretKeys(); tc.missing == "" && len(keys) > 0 {
					credentials = keys[len(keys)-1].Name
				}
				if data := got.Credentials(); string(data["key"]) != credentials {
					b.Errorf("credentials %q, want those of %q", data, credentials)
				}
				if again := b.read(class); !reflect.DeepEqual(again, got) {
					b.Errorf("read again: %+v, want %+v", again, got)
				}
				if cached, fresh := b.secrets.Cached(class); !fresh || !reflect.DeepEqual(cached, got) {
					b.Errorf("remembered: %t, %+v; want %+v", fresh, cached, got)
				}
				b.expectRequests("again")
			}, tc.stored...)
		})
	}
	if _, fresh := new(Secrets).Cached(nil); fresh {
		t.Error("the Secrets of no class are remembered")
	}
}

// The Secret is declared as shared when its metadata are read, and not any more when it is.
func TestSecretThatIsSharedNoMoreIsNotUsed(t *testing.T) {
	onBench(t, func(b *bench) {
		b.secrets.cfg.Metadata = apiserver.Recording(stored("other", "s", sharedWithN)).Metadata()
		if got := b.read(naming("other/s")); got.Missing != "other/s" || got.Credentials() != nil {
			b.Errorf("missing %q, credentials %q", got.Missing, got.Credentials())
		}
		b.expectRequests("of the Secret", "get other/s")
	}, stored("other", "s"))
}

// A failed request is no evidence that a Secret is missing, and nothing is remembered of it.
func TestFailedRequestsOfSecretsAreReported(t *testing.T) {
	for name, isOfMetadata := range map[string]bool{"s": false, "other/s": true} {
		onBench(t, func(b *bench) {
			b.cluster.Fault(func(r apiserver.Request) error {
				if r.IsMetadata() == isOfMetadata {
					return apierrors.NewInternalError(errors.New("not now"))
				}
				return nil
			})
			if got, err := b.secrets.Read(b.Context(), naming(name)); !apierrors.IsInternalError(err) {
				b.Errorf("%s: %+v and %v, want the error of the request", name, got, err)
			}
			b.cluster.Fault(nil)
			if got := b.read(naming(name)); got.Missing != "" {
				b.Errorf("%s: missing %q after it could be read", name, got.Missing)
			}
		}, stored("n", "s"), stored("other", "s", sharedWithN))
	}
}

func TestSecretsAreRememberedForAWhile(t *testing.T) {
	onBench(t, func(b *bench) {
		one, other := naming("s"), naming("t")
		b.read(one)
		time.Sleep(secretTTL)
		b.read(other)
		b.expectRequests("at first", "get n/s", "get n/t")
		b.expectCached("at the end of its time", one, true)
		time.Sleep(time.Nanosecond)
		b.expectCached("after its time", one, false)
		b.expectCached("another one, within its time", other, true)
		b.read(one)
		b.expectRequests("after its time", "get n/s")
		time.Sleep(secretTTL + 1)
		b.read(other)
		if n := len(b.secrets.read); n != 1 {
			b.Errorf("%d Secrets are in memory, want the one of the last read", n)
		}
	}, stored("n", "s"), stored("n", "t"))
}

func TestForgottenSecretsAreReadAgain(t *testing.T) {
	onBench(t, func(b *bench) {
		one, other := naming("s"), naming("t")
		b.read(one)
		b.read(other)
		b.secrets.Forget(one.SecretKeys()...)
		b.expectCached("the one that was forgotten", one, false)
		b.expectCached("another one", other, true)
	}, stored("n", "s"), stored("n", "t"))
}

// TestFinalizersOfSecrets: one is added to each Secret that lacks it, and what was written is
// remembered.
func TestFinalizersOfSecrets(t *testing.T) {
	for name, tc := range map[string]struct {
		names    []string
		before   bool // whether all have it
		requests []string
		after    bool
	}{
		"one lacks it":     {names: []string{"with", "without"}, requests: []string{"update n/without"}, after: true},
		"all have it":      {names: []string{"with"}, before: true, after: true},
		"one is missing":   {names: []string{"with", "missing"}},
		"there is no name": {before: true, after: true},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				class := naming(tc.names...)
				if err := b.secrets.AddFinalizers(b.Context(), class); err != nil {
					b.Error(err)
				}
				b.expectRequests("before they are read")
				read := b.read(class)
				if got := read.HaveFinalizer(); got != tc.before {
					b.Errorf("before: all have our finalizer: %t, want %t", got, tc.before)
				}
				b.requests()
				if err := b.secrets.AddFinalizers(b.Context(), class); err != nil {
					b.Error(err)
				}
				b.expectRequests("to add it", tc.requests...)
				if cached, fresh := b.secrets.Cached(class); !fresh || cached.HaveFinalizer() != tc.after {
					b.Errorf("after: remembered: %t, all have our finalizer: %t; want true, %t", fresh, cached.HaveFinalizer(), tc.after)
				}
			}, stored("n", "with", withFinalizer), stored("n", "without"))
		})
	}
}

// Another client may have changed the Secret: it is read again before it is written again.
func TestSecretIsReadAgainAfterAFailedWrite(t *testing.T) {
	onBench(t, func(b *bench) {
		b.read(naming("s"))
		b.cluster.Merge("secrets", "n", "s", `{"metadata":{"labels":{"changed":"true"}}}`)
		if err := b.secrets.AddFinalizers(b.Context(), naming("s")); !apierrors.IsConflict(err) {
			b.Errorf("got %v, want the conflict", err)
		}
		b.expectCached("after a conflict", naming("s"), false)
	}, stored("n", "s"))
}

// ending is a client that keeps when the contexts of its requests end.
type ending struct {
	corev1client.SecretInterface

	requests []<-chan struct{}
}

func (e *ending) Secrets(string) corev1client.SecretInterface { return e }

func (e *ending) Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Secret, error) {
	e.requests = append(e.requests, ctx.Done())
	return e.SecretInterface.Get(ctx, name, options)
}

func (e *ending) Update(ctx context.Context, s *corev1.Secret, options metav1.UpdateOptions) (*corev1.Secret, error) {
	e.requests = append(e.requests, ctx.Done())
	return e.SecretInterface.Update(ctx, s, options)
}

// Nothing of a request is left when it has been answered: a replica reads Secrets for each batch of
// machines.
func TestContextsOfAnsweredRequestsEnd(t *testing.T) {
	onBench(t, func(b *bench) {
		client := &ending{SecretInterface: b.cluster.Core().CoreV1().Secrets("n")}
		b.secrets.cfg.Client = client
		b.read(naming("s"))
		if err := b.secrets.AddFinalizers(b.Context(), naming("s")); err != nil {
			b.Error(err)
		}
		if len(client.requests) != 2 {
			b.Fatalf("%d requests, want a read and a write", len(client.requests))
		}
		for i, done := range client.requests {
			select {
			case <-done:
			default:
				b.Errorf("the context of request %d has not ended", i)
			}
		}
	}, stored("n", "s"))
}

// TestOnlyOwnSecretsAreWatchedWhileAwaited: others are read again after a time that does not depend
// on whether they exist.
func TestOnlyOwnSecretsAreWatchedWhileAwaited(t *testing.T) {
	for name, tc := range map[string]struct {
		awaited []string
		watched int
		again   time.Duration
	}{
		"none":                               {},
		"of the machine's namespace":         {[]string{"s", "t"}, 2, 0},
		"of another namespace":               {[]string{"other/s"}, 0, foreignPoll},
		"of both":                            {[]string{"s", "other/s"}, 1, foreignPoll},
		"one with a name that none can have": {[]string{"S_"}, 0, foreignPoll},
	} {
		onBench(t, func(b *bench) {
			prints := map[types.NamespacedName]string{}
			for _, key := range naming(tc.awaited...).SecretKeys() {
				prints[key] = ""
			}
			again := b.secrets.Await(machine, prints, func() {})
			if again != tc.again || b.secrets.Awaited() != tc.watched || len(prints) != len(tc.awaited) {
				b.Errorf("%s: %d are watched, others are read after %s; want %d, %s", name, b.secrets.Awaited(), again, tc.watched, tc.again)
			}
			b.secrets.StopAwaiting(machine.UID)
			if n := b.secrets.Awaited(); n != 0 {
				b.Errorf("%s: %d are watched for no machine", name, n)
			}
		})
	}
}

// TestAwaitedSecretThatChangesIsReadAgain: a machine is woken once, and gets the data that it was
// woken for.
func TestAwaitedSecretThatChangesIsReadAgain(t *testing.T) {
	onBench(t, func(b *bench) {
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.secrets.Run(ctx)
		}()
		woken := 0
		read := b.read(naming("s"))
		b.secrets.Await(machine, read.Prints, func() { woken++ })
		synctest.Wait()
		apiserver.Add(b.cluster, stored("n", "s", func(s *corev1.Secret) { s.Data["key"] = []byte("changed") }))
		synctest.Wait()
		read = b.read(naming("s"))
		if got := string(read.Credentials()["key"]); woken != 1 || got != "changed" {
			b.Errorf("woken %d times, the credentials are %q; want once, the changed ones", woken, got)
		}
		stop()
		<-ended
	}, stored("n", "s"))
}
