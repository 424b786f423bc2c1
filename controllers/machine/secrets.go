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
)

// secretTTL is how long a Secret that was read is used for further machines. Machines come in batches, and a change of
// credentials should reach the cloud soon.
const secretTTL = 10 * time.Second

// secretReader reads Secrets by name and remembers them for a moment. Secrets are not watched: a fleet that serves a
// landscape would hold all of its credentials.
type secretReader struct {
	client corev1client.SecretsGetter
	clock  clock.PassiveClock

	reading sync.Mutex // one at a time: machines come together and want the same Secret

	mu   sync.Mutex
	read map[types.NamespacedName]secretAt
}

type secretAt struct {
	secret *corev1.Secret
	at     time.Time
}

func newSecretReader(client corev1client.SecretsGetter, clock clock.PassiveClock) *secretReader {
	return &secretReader{client: client, clock: clock, read: map[types.NamespacedName]secretAt{}}
}

// cached returns the class' secrets if all of them were read a moment ago.
func (r *secretReader) cached(class *v1alpha1.MachineClass) ([]*corev1.Secret, bool) {
	if class == nil {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var secrets []*corev1.Secret
	for _, key := range class.SecretKeys() {
		known, ok := r.read[key]
		if !ok || r.clock.Since(known.at) > secretTTL {
			return nil, false
		}
		secrets = append(secrets, known.secret)
	}
	return secrets, true
}

// get reads the class' secrets. missing names the first one that does not exist, or that is being deleted without our
// finalizer: no finalizer can be added to it any more.
func (r *secretReader) get(ctx context.Context, class *v1alpha1.MachineClass) (secrets []*corev1.Secret, missing string, err error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if secrets, ok := r.cached(class); ok {
		return secrets, "", nil
	}
	for _, key := range class.SecretKeys() {
		secret, err := r.client.Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && secret.DeletionTimestamp != nil && !slices.Contains(secret.Finalizers, v1alpha1.SecretFinalizerName) {
			return secrets, key.Name, nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("read Secret %s: %w", key, err)
		}
		r.note(secret)
		secrets = append(secrets, secret)
	}
	return secrets, "", nil
}

// drop forgets what was read of the class' secrets.
func (r *secretReader) drop(class *v1alpha1.MachineClass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range class.SecretKeys() {
		delete(r.read, key)
	}
}

// note remembers a Secret, and forgets those that nobody has asked for in a while.
func (r *secretReader) note(secret *corev1.Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for key, known := range r.read {
		if now.Sub(known.at) > secretTTL {
			delete(r.read, key)
		}
	}
	r.read[types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}] = secretAt{secret: secret, at: now}
}

func (c *Controller) readSecret(ctx context.Context, p *pass) error {
	secrets, missing, err := c.secrets.get(ctx, p.world.Class.Class)
	if err != nil {
		return err
	}
	c.noteSecrets(p, secrets, missing)
	return nil
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
		c.secrets.drop(class) // they were let go before the class was
	}
	p.world.Class.Class = class
	secrets, fresh := c.secrets.cached(class)
	if !fresh {
		return c.readSecret(ctx, p)
	}
	for i, secret := range secrets {
		if slices.Contains(secret.Finalizers, v1alpha1.SecretFinalizerName) {
			continue
		}
		held := secret.DeepCopy()
		held.Finalizers = append(held.Finalizers, v1alpha1.SecretFinalizerName)
		written, err := c.cfg.Secrets.Secrets(secret.Namespace).Update(ctx, held, metav1.UpdateOptions{})
		if err != nil {
			c.secrets.drop(class)
			return fmt.Errorf("put our finalizer on Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
		c.secrets.note(written)
		secrets[i] = written
	}
	c.noteSecrets(p, secrets, "")
	return nil
}
