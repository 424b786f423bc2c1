package machine

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// The changes that add our finalizers, as other clients send them.
const (
	heldClass  = `{"metadata":{"finalizers":["` + v1alpha1.FinalizerName + `"]}}`
	heldSecret = `{"metadata":{"finalizers":["` + v1alpha1.SecretFinalizerName + `"]}}`
)

// begins returns a pass that has read the Secrets, of a machine that no other pass reconciles.
func (b *bench) begins(m *v1alpha1.Machine) *pass {
	b.Helper()
	p, err := b.process.look(b.Context(), m)
	b.must(err)
	b.must(b.process.classes.readSecrets(b.Context(), p))
	return p
}

// holds has a pass add the finalizers, which takes one action for the class and one for its
// Secrets.
func (b *bench) holds(p *pass) {
	b.Helper()
	for actions := 0; actions < 2 && !p.world.Class.HasFinalizers; actions++ {
		b.must(b.process.classes.addFinalizers(b.Context(), p))
		if !slices.Contains(p.world.Class.Class.Finalizers, v1alpha1.FinalizerName) {
			b.Error("the pass continues with the class without our finalizer")
		}
	}
}

func TestAClassIsHeldWithItsSecrets(t *testing.T) {
	for _, tc := range []struct{ class, secret bool }{{}, {class: true}, {secret: true}, {class: true, secret: true}} {
		onBench(t, func(b *bench) {
			b.end()
			if tc.class {
				b.patchClass(heldClass)
			}
			if tc.secret {
				b.patchSecret(heldSecret)
			}
			if got, want := b.begins(b.create(withoutDeadline)).world.Class.HasFinalizers, tc.class && tc.secret; got != want {
				t.Errorf("finalizers of the class: %t, of its Secret: %t; held: %t, want %t", tc.class, tc.secret, got, want)
			}
		})
	}
}

// Finalizers are added to a class once, by whichever replica, and to its Secrets after that. What
// the cache shows, or this process has written, is not requested.
func TestFinalizersAreAddedOnce(t *testing.T) {
	hides := func(b *bench) { b.server.ShowIn(objectcache.NewView()) } // no other change from the process
	for name, tc := range map[string]struct {
		first    func(b *bench)          // before the pass begins
		then     func(b *bench, p *pass) // after that
		requests []string                // for the class, and writes of the Secret
	}{
		"the class is new": {requests: []string{"get class", "patch class", "update secret"}},
		"the class is not in the cache": {
			first:    func(b *bench) { b.process.cfg.View.Classes.Remove(types.NamespacedName{Namespace: "n", Name: "c"}, "") },
			requests: []string{"get class", "patch class", "update secret"},
		},
		"another replica has added that of the class, and the cache shows it": {
			then:     func(b *bench, _ *pass) { b.patchClass(heldClass) },
			requests: []string{"update secret"},
		},
		"another replica has added that of the class, and the cache does not show it": {
			then:     func(b *bench, _ *pass) { hides(b); b.patchClass(heldClass) },
			requests: []string{"get class", "update secret"},
		},
		"another pass has added them, and the cache does not show it": {
			then: func(b *bench, p *pass) {
				hides(b)
				other := *p
				b.holds(&other)
			},
		},
		"those of a class that was not used were removed a moment ago": {
			first: func(b *bench) { b.patchSecret(heldSecret) },
			then: func(b *bench, _ *pass) {
				b.patchSecret(`{"metadata":{"finalizers":null}}`)
			},
			requests: []string{"get class", "patch class", "update secret"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.end()
				m := b.create(withoutDeadline)
				if tc.first != nil {
					tc.first(b)
				}
				p := b.begins(m)
				if tc.then != nil {
					tc.then(b, p)
				}
				b.server.Forget()
				b.holds(p)
				var requests []string
				for _, r := range b.server.Requests() {
					if r.Resource == "machineclasses" {
						requests = append(requests, r.Verb+" class")
					}
				}
				if b.asked("update") > 0 {
					requests = append(requests, "update secret")
				}
				if diff := cmp.Diff(tc.requests, requests); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				class := b.server.Get("machineclasses", "n", "c")
				secret := apiserver.Read[corev1.Secret](b.server, "secrets", "n", "s")
				if len(class.GetFinalizers()) != 1 || len(secret.Finalizers) != 1 || !p.world.Class.HasFinalizers {
					t.Errorf("finalizers of the class: %v, of its Secret: %v; held: %t; want one of each",
						class.GetFinalizers(), secret.Finalizers, p.world.Class.HasFinalizers)
				}
			})
		})
	}
}

// In a landscape each namespace has its own class.
func TestFinalizersOfAClassDoNotWaitForThoseOfAnother(t *testing.T) {
	onBench(t, func(b *bench) {
		b.end()
		p := b.begins(b.create(withoutDeadline))
		unlock, err := b.process.classes.writing.Lock(b.Context(), types.NamespacedName{Namespace: "other", Name: "c"})
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		b.holds(p)
		if !p.world.Class.HasFinalizers {
			t.Error("they were not added while another class is written")
		}
	})
}

// A driver gets the data of the one Secret with the credentials, whichever process calls it.
func TestDriverReceivesCredentials(t *testing.T) {
	onBench(t, func(b *bench) {
		want := map[string][]byte{"token": []byte("mine")}
		b.createSecret(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "credentials"}, Data: want})
		b.patchClass(`{"credentialsSecretRef":{"namespace":"n","name":"credentials"}}`)
		b.create()
		b.becomes(v1alpha1.MachineRunning, time.Minute)
		b.takeOver(secretTTL)
		b.delete()
		b.pass(time.Minute)
		for _, call := range b.cloud.Calls("") {
			if diff := cmp.Diff(want, call.Secret); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})
}

// A machine that finalizers of other clients keep says so, and not that it is being deleted.
func TestFinalizersOfOthersAreNamed(t *testing.T) {
	onBench(t, func(b *bench) {
		m := b.create(func(m *v1alpha1.Machine) { m.Finalizers = []string{"other/one", "other/two"} })
		b.becomes(v1alpha1.MachineRunning, bootTime+time.Second)
		b.delete()
		b.pass(time.Hour)
		want := "The machine and its VM " + b.get().Spec.ProviderID +
			" are deleted; the Machine remains until other clients have removed their finalizers: other/one, other/two"
		if got := b.get().Status.LastOperation; got.State != v1alpha1.MachineStateSuccessful || got.Description != want {
			t.Errorf("%s reports %s, %q; want %q", m.Name, got.State, got.Description, want)
		}
	})
}
