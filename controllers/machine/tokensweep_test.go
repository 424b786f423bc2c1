package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/fakecloud"
)

// expiryOfToken returns when the machine's token expires.
func (b *bench) expiryOfToken() time.Time {
	b.Helper()
	all := apiserver.ReadAll[corev1.Secret](b.target, "secrets")
	if len(all) != 1 {
		b.Fatalf("%d tokens, want one", len(all))
	}
	expiry, err := time.Parse(time.RFC3339, string(all[0].Data["expiration"]))
	b.must(err)
	return expiry
}

// strip removes the machine's finalizer by hand, so that its deletion is immediate.
func (b *bench) strip() {
	b.Helper()
	b.server.Merge("machines", "n", "m", `{"metadata":{"finalizers":null}}`)
}

// A token lives for an hour at most, regardless of what the machine's annotations ask for, and for
// as long as the VM may still join.
func TestTokenOfAMachineWithALongTimeoutExpiresInAnHour(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Created = func(*fakecloud.Resource) {}
		b.create(withoutDeadline, func(m *v1alpha1.Machine) {
			m.Annotations = map[string]string{v1alpha1.AnnotationEffectiveCreationTimeout: "876000h"}
		})
		start := time.Now()
		for _, at := range []time.Duration{time.Minute, 29 * time.Minute, 31 * time.Minute, 5 * time.Hour} {
			b.pass(time.Until(start.Add(at)))
			if left := time.Until(b.expiryOfToken()); left > time.Hour || left < 29*time.Minute {
				b.Errorf("after %s the token lives for another %s", at, left)
			}
		}
		if prolonged := b.target.Count("create secrets") - 1; prolonged < 9 || prolonged > 10 {
			b.Errorf("in five hours the token was prolonged %d times, want once in half an hour", prolonged)
		}
	})
}

// Another process continues with the token.
func TestTokenIsProlongedAfterATakeOver(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Created = func(*fakecloud.Resource) {}
		b.create(withoutDeadline)
		b.pass(20 * time.Minute)
		b.takeOver(time.Minute)
		b.pass(3 * time.Hour)
		if left := time.Until(b.expiryOfToken()); left < 29*time.Minute {
			b.Errorf("the token lives for another %s", left)
		}
	})
}

func TestNoTokenIsCreatedWithoutAPlaceForIt(t *testing.T) {
	onBench(t, func(b *bench) {
		secret := apiserver.Read[corev1.Secret](b.server, "secrets", "n", "s")
		secret.Data[v1alpha1.SecretKeyUserData] = []byte("#!/bin/sh")
		apiserver.Add(b.server, secret)
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		if b.target.Count("create secrets") > 0 {
			b.Error("a token was created")
		}
	})
}

func TestTokenIsDeletedWithAMachineWhoseFinalizerWasRemoved(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Created = func(*fakecloud.Resource) {}
		b.create()
		b.pass(time.Minute)
		b.expiryOfToken()
		mend := refuses(b.target, "delete secrets", apierrors.NewServiceUnavailable("away"))
		b.end() // so that no controller deletes the token in time
		b.delete()
		b.start()
		b.strip()
		b.pass(5 * time.Minute)
		if m := b.get(); m != nil {
			b.Fatalf("the machine is there still: %+v", m)
		}
		b.expiryOfToken()
		mend()
		b.pass(2 * time.Minute)
		if left := b.left(); len(left) > 0 {
			b.Errorf("left: %v", left)
		}
	})
}

// A machine was deleted and created anew while the watch of this process was interrupted.
func TestTokenOfAMachineIsDeletedWhenAnotherHasItsPlace(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Created = func(*fakecloud.Resource) {}
		before := b.create()
		b.pass(time.Minute)
		b.expiryOfToken()
		b.server.ShowIn(objectcache.NewView()) // the process sees nothing
		b.delete()
		b.strip()
		if m := b.create(); m.UID == before.UID {
			b.Fatal("it is the same machine")
		}
		b.server.ShowIn(b.process.cfg.View)
		b.pass(2 * time.Minute)
		b.expiryOfToken() // of the new machine
	})
}

// What a cache does not show any more may have moved to another replica.
func TestTokenOfAnUncachedMachineIsKept(t *testing.T) {
	onBench(t, func(b *bench) {
		b.cloud.Created = func(*fakecloud.Resource) {}
		b.create()
		b.pass(time.Minute)
		m := b.get()
		b.process.tokens.noteGone(m)
		b.pass(time.Minute)
		b.expiryOfToken()
		b.process.tokens.noteGone(&v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", UID: "another, which had the name before"},
		})
		b.pass(time.Minute)
		b.expiryOfToken()
		joined := m.DeepCopy()
		joined.Status.LastOperation.State = v1alpha1.MachineStateSuccessful
		before := len(b.server.Requests())
		b.process.tokens.noteGone(joined) // it has no token
		b.pass(time.Second)
		if got := b.server.Requests()[before:]; len(got) > 0 {
			t.Errorf("requests %v for a machine that has joined", got)
		}
	})
}
