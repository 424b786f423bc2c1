package machine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/secretwatch"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objects"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/turns"
)

// secretTTL is how long a Secret that was read is used for further machines. Machines come in batches, and a change of
// credentials should reach the cloud soon.
const secretTTL = 10 * time.Second

// secretReader reads Secrets by name and remembers them for a moment, also that there is none. Secrets are not watched but
// while machines wait for them: a fleet that serves a landscape would hold all of its credentials.
type secretReader struct {
	client corev1client.SecretsGetter
	clock  clock.PassiveClock

	// asking has one request at a time, with what is remembered of its answer: machines come together and want the same
	// Secret, and an answer from before a change must not be remembered after it.
	asking turns.Mutex

	mu   sync.Mutex
	read map[types.NamespacedName]secretAt
}

// secretAt is a Secret as it was read.
type secretAt struct {
	secret *corev1.Secret // nil when there is none
	print  string
	at     time.Time
}

// classSecrets are the secrets of a class as they were read.
type classSecrets struct {
	found []*corev1.Secret
	// missing names the first one that does not exist, or that is being deleted without our finalizer: no finalizer can be
	// added to it any more. Those after it were not looked for.
	missing string
	prints  map[types.NamespacedName]string
}

func newSecretReader(client corev1client.SecretsGetter, clock clock.PassiveClock) *secretReader {
	return &secretReader{client: client, clock: clock, read: map[types.NamespacedName]secretAt{}}
}

// cached returns the class' secrets if they were read a moment ago.
func (r *secretReader) cached(class *v1alpha1.MachineClass) (classSecrets, bool) {
	if class == nil {
		return classSecrets{}, false
	}
	var secrets classSecrets
	for _, key := range class.SecretKeys() {
		known, fresh := r.known(key)
		if !fresh {
			return classSecrets{}, false
		}
		if secrets.add(key, known); secrets.missing != "" {
			break
		}
	}
	return secrets, true
}

// get reads the class' secrets.
func (r *secretReader) get(ctx context.Context, class *v1alpha1.MachineClass) (secrets classSecrets, err error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	for _, key := range class.SecretKeys() {
		known, fresh := r.known(key)
		if !fresh {
			secret, err := r.client.Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return classSecrets{}, fmt.Errorf("read Secret %s: %w", key, err)
			}
			if err != nil {
				secret = nil
			}
			known = r.note(key, secret)
		}
		if secrets.add(key, known); secrets.missing != "" {
			break
		}
	}
	return secrets, nil
}

// update writes a Secret.
func (r *secretReader) update(ctx context.Context, secret *corev1.Secret) (*corev1.Secret, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	key := objects.Key(secret)
	written, err := r.client.Secrets(key.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	if err != nil {
		r.drop(key)
		return nil, fmt.Errorf("update Secret %s: %w", key, err)
	}
	r.note(key, written)
	return written, nil
}

// forget drops what was read of Secrets, also what is just being read.
func (r *secretReader) forget(keys ...types.NamespacedName) {
	r.asking.Lock()
	defer r.asking.Unlock()
	r.drop(keys...)
}

func (r *secretReader) drop(keys ...types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		delete(r.read, key)
	}
}

// known returns what was read of a Secret a moment ago.
func (r *secretReader) known(key types.NamespacedName) (secret secretAt, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.read[key]
	return known, ok && r.clock.Since(known.at) <= secretTTL
}

// note remembers a Secret, and forgets those that nobody has asked for in a while.
func (r *secretReader) note(key types.NamespacedName, secret *corev1.Secret) secretAt {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for other, known := range r.read {
		if now.Sub(known.at) > secretTTL {
			delete(r.read, other)
		}
	}
	r.read[key] = secretAt{secret: secret, print: secretwatch.Print(secret), at: now}
	return r.read[key]
}

func (s *classSecrets) add(key types.NamespacedName, read secretAt) {
	if s.prints == nil {
		s.prints = map[types.NamespacedName]string{}
	}
	if s.prints[key] = read.print; read.print == "" {
		s.missing = key.Name
		return
	}
	s.found = append(s.found, read.secret)
}

func (c *Controller) readSecret(ctx context.Context, p *pass) error {
	secrets, err := c.secrets.get(ctx, p.world.Class.Class)
	if err != nil {
		return err
	}
	c.noteSecrets(p, secrets)
	return nil
}

// awaitSecrets has the machine woken when its class' secrets change, if it waits for that.
func (c *Controller) awaitSecrets(p *pass, verdict lifecycle.Verdict) {
	m := p.world.Machine
	if !lifecycle.AwaitsSecrets(p.world, verdict) {
		c.awaited.Forget(m.UID)
		return
	}
	key := objects.Key(m)
	c.awaited.Await(m.UID, p.prints, func() { c.runner.Enqueue(key) })
	if _, known := c.cfg.View.Machines.Get(key); !known { // it is somebody else's since, and nobody would forget it
		c.awaited.Forget(m.UID)
	}
}

// hold puts our finalizers on class and secrets. One pass at a time does so: the machines of a new class come together,
// and would only run into each other's writes.
func (c *Controller) hold(ctx context.Context, p *pass) error {
	c.holding.Lock()
	defer c.holding.Unlock()
	class := p.world.Class.Class
	if cached, known := c.cfg.View.Classes.Get(classKey(p.world.Machine)); known {
		class = cached
	}
	class = c.classes.Newest(class) // others may have held it while this pass waited
	if !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		live, err := c.cfg.Machines.MachineClasses(class.Namespace).Get(ctx, class.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read MachineClass %s before it is held: %w", class.Name, err)
		}
		class = live // machines of other replicas use it, too
	}
	if !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		held := class.DeepCopy()
		held.Finalizers = append(held.Finalizers, v1alpha1.FinalizerName)
		written, err := c.classes.Commit(ctx, class, held)
		if err != nil {
			return fmt.Errorf("put our finalizer on MachineClass: %w", err)
		}
		class = written
		c.secrets.forget(class.SecretKeys()...) // they were let go before the class was
	}
	p.world.Class.Class = class
	secrets, fresh := c.secrets.cached(class)
	if !fresh {
		return c.readSecret(ctx, p)
	}
	for _, secret := range secrets.found {
		if slices.Contains(secret.Finalizers, v1alpha1.SecretFinalizerName) {
			continue
		}
		held := secret.DeepCopy()
		held.Finalizers = append(held.Finalizers, v1alpha1.SecretFinalizerName)
		if _, err := c.secrets.update(ctx, held); err != nil {
			return fmt.Errorf("put our finalizer on it: %w", err)
		}
	}
	return c.readSecret(ctx, p)
}
