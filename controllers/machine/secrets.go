package machine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/secretwatch"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/turns"
)

// secretTTL is for how long a Secret that was read is used for further machines. Machines are created in batches, and a change of
// credentials should be used soon.
const secretTTL = 10 * time.Second

// askingTime is how long the reads of a class' Secrets may take together, or the write of one. All machines whose class' Secrets have
// to be read wait in the meantime.
const askingTime = 10 * time.Second

// mostRemembered is how many bytes of Secrets one replica remembers. A Secret usually has some KiB; the API server accepts a MiB.
const mostRemembered = 64 << 20

// mostMissing is how many bytes are shown of the name of a missing Secret: enough for each namespace, slash and name that are valid.
const mostMissing = validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength

// foreignPoll is the time between two reads for a machine that waits for a Secret of another namespace. A watch would reveal whether
// the Secret exists: it would end the wait for one that exists sooner.
const foreignPoll = time.Minute

// secretReader reads Secrets by name and remembers them for secretTTL, as well as that one does not exist. Secrets are watched only
// while machines wait for them: otherwise a fleet that serves a landscape would have all of its credentials in memory.
type secretReader struct {
	client   corev1client.SecretsGetter
	metadata metadata.Interface
	served   string // the only namespace that is served; "" means all
	clock    clock.PassiveClock

	// asking is held during a request and until its answer is remembered. Machines that are created together need the same Secret,
	// which is read only once in this way; and an answer from before a change must not be remembered after it.
	asking turns.Mutex

	mu   sync.Mutex
	read map[secretUse]secretAt
}

// secretUse is a Secret as the classes of one namespace use it. What is remembered for one namespace is not used for another:
// otherwise a faster answer would reveal that another namespace uses the Secret.
type secretUse struct {
	key types.NamespacedName
	by  string // namespace of the class
}

func (u secretUse) isForeign() bool { return u.key.Namespace != u.by }

// secretAt is a Secret as it was read.
type secretAt struct {
	secret *corev1.Secret // nil when there is none that may be used
	print  string
	at     time.Time
	size   int // in bytes
}

// classSecrets are the Secrets of a class as they were read.
type classSecrets struct {
	// found are in the order of SecretKeys.
	found []*corev1.Secret
	// missing names the first one that does not exist, that the class may not use, or that is being deleted without our
	// finalizer: no finalizer can be added to it any more. Those after it were not read.
	missing string
	foreign bool // the missing one is of another namespace
	prints  map[types.NamespacedName]string
}

func newSecretReader(client corev1client.SecretsGetter, metadata metadata.Interface, served string, clock clock.PassiveClock) *secretReader {
	return &secretReader{client: client, metadata: metadata, served: served, clock: clock, read: map[secretUse]secretAt{}}
}

// cached returns the class' Secrets up to the first one that is missing, and reports whether all of these were read within secretTTL.
func (r *secretReader) cached(class *v1alpha1.MachineClass) (classSecrets, bool) {
	if class == nil {
		return classSecrets{}, false
	}
	var secrets classSecrets
	for _, key := range class.SecretKeys() {
		use := secretUse{key, class.Namespace}
		known, fresh := r.known(use)
		if !fresh {
			return classSecrets{}, false
		}
		if secrets.add(use, known); secrets.missing != "" {
			break
		}
	}
	return secrets, true
}

// get returns the class' Secrets. It reads those that were not read within secretTTL.
func (r *secretReader) get(ctx context.Context, class *v1alpha1.MachineClass) (secrets classSecrets, err error) {
	if err := r.asking.LockContext(ctx); err != nil {
		return classSecrets{}, fmt.Errorf("wait for others who read Secrets: %w", err)
	}
	defer r.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	for _, key := range class.SecretKeys() {
		use := secretUse{key, class.Namespace}
		known, fresh := r.known(use)
		if !fresh {
			secret, err := r.ask(ctx, use)
			if err != nil {
				return classSecrets{}, err
			}
			known = r.note(use, secret)
		}
		if secrets.add(use, known); secrets.missing != "" {
			break
		}
	}
	return secrets, nil
}

// ask reads a Secret; nil when there is none that may be used. For a Secret of another namespace it reads the metadata first, and the
// Secret only if the metadata declare it as shared: a Secret that does not exist and one that is not shared take the same one request,
// and cannot be distinguished by time. A fleet that serves one namespace usually has no right to read these metadata; then no Secret
// is shared with it.
func (r *secretReader) ask(ctx context.Context, use secretUse) (*corev1.Secret, error) {
	if use.isForeign() {
		about, err := r.metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).
			Namespace(use.key.Namespace).Get(ctx, use.key.Name, metav1.GetOptions{})
		isDenied := apierrors.IsForbidden(err) && r.served != metav1.NamespaceAll
		if isDenied || apierrors.IsNotFound(err) || err == nil && !v1alpha1.SharedWith(about, use.by) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the metadata of Secret %s: %w", use.key, err)
		}
	}
	secret, err := r.client.Secrets(use.key.Namespace).Get(ctx, use.key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !v1alpha1.SharedWith(secret, use.by) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", use.key, err)
	}
	return secret, nil
}

// update writes a Secret that classes of the namespace by use.
func (r *secretReader) update(ctx context.Context, secret *corev1.Secret, by string) (*corev1.Secret, error) {
	if err := r.asking.LockContext(ctx); err != nil {
		return nil, fmt.Errorf("wait for others who read Secrets: %w", err)
	}
	defer r.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	key := objectcache.Key(secret)
	written, err := r.client.Secrets(key.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	r.drop(key)
	if err != nil {
		return nil, fmt.Errorf("update Secret %s: %w", key, err)
	}
	r.note(secretUse{key, by}, written)
	return written, nil
}

// forget drops what was read of Secrets, including the answer of a request that is in flight, for which it waits.
func (r *secretReader) forget(keys ...types.NamespacedName) {
	r.asking.Lock()
	defer r.asking.Unlock()
	r.drop(keys...)
}

func (r *secretReader) drop(keys ...types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.read, func(use secretUse, _ secretAt) bool { return slices.Contains(keys, use.key) })
}

// known returns what was read of a Secret; fresh reports whether that was within secretTTL. For a name that no Secret can have it is
// always true: there is no such Secret.
func (r *secretReader) known(use secretUse) (secret secretAt, fresh bool) {
	if !v1alpha1.MayExist(use.key) {
		return secretAt{}, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.read[use]
	return known, ok && r.clock.Since(known.at) <= secretTTL
}

// note remembers a Secret as read now. It drops those that were read before secretTTL, and those that exceed mostRemembered.
func (r *secretReader) note(use secretUse, secret *corev1.Secret) secretAt {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	maps.DeleteFunc(r.read, func(_ secretUse, known secretAt) bool { return now.Sub(known.at) > secretTTL })
	noted := secretAt{secret: secret, print: secretwatch.Print(secret), at: now, size: secret.Size()}
	delete(r.read, use)
	for _, drop := range tooMany(r.read, mostRemembered-noted.size) {
		delete(r.read, drop)
	}
	r.read[use] = noted
	return noted
}

// tooMany returns the Secrets to drop so that the others have at most that many bytes: those of the namespace that has most bytes, and
// of these the ones that were read first. So a namespace cannot cause the Secrets of another one to be dropped that has fewer bytes.
func tooMany(read map[secretUse]secretAt, most int) (drop []secretUse) {
	total, sizes, uses := 0, map[string]int{}, map[string][]secretUse{}
	for use, known := range read {
		total += known.size
		sizes[use.by] += known.size
	}
	for total > most && len(drop) < len(read) {
		largest := slices.MaxFunc(slices.Sorted(maps.Keys(sizes)), func(a, b string) int { return cmp.Compare(sizes[a], sizes[b]) })
		if uses[largest] == nil {
			for use := range read {
				if use.by == largest {
					uses[largest] = append(uses[largest], use)
				}
			}
			slices.SortFunc(uses[largest], func(a, b secretUse) int { return read[a].at.Compare(read[b].at) })
		}
		first := uses[largest][0]
		drop, uses[largest] = append(drop, first), uses[largest][1:]
		total -= read[first].size
		sizes[largest] -= read[first].size
	}
	return drop
}

func (s *classSecrets) add(use secretUse, read secretAt) {
	if s.prints == nil {
		s.prints = map[types.NamespacedName]string{}
	}
	if s.prints[use.key] = read.print; read.print != "" {
		s.found = append(s.found, read.secret)
		return
	}
	if s.missing, s.foreign = use.key.Name, use.isForeign(); s.foreign {
		s.missing = use.key.String()
	}
	s.missing = bounded.Text(s.missing, mostMissing)
}

// credentials returns the data of the one Secret that has the credentials: the last one that the class names. The data of several
// Secrets are not merged: otherwise a class could cause the token of one Secret to be sent to the endpoint in another.
func (s *classSecrets) credentials() map[string][]byte {
	if s.missing != "" || len(s.found) == 0 {
		return nil
	}
	return s.found[len(s.found)-1].Data
}

// userData returns the user data that a VM boots with: that of the last Secret that has some.
func (s *classSecrets) userData() []byte {
	for _, secret := range slices.Backward(s.found) {
		if userData, has := secret.Data[v1alpha1.SecretKeyUserData]; has {
			return userData
		}
	}
	return nil
}

func (c *Controller) readSecret(ctx context.Context, p *pass) error {
	secrets, err := c.secrets.get(ctx, p.world.Class.Class)
	if err != nil {
		return err
	}
	c.noteSecrets(p, secrets)
	return nil
}

// awaitSecrets watches the class' Secrets of a machine that waits for them: a change enqueues the machine. Those of other namespaces
// are not watched, nor are too many of one: again is the time after which to read these again, 0 for never.
func (c *Controller) awaitSecrets(p *pass, verdict lifecycle.Verdict) (again time.Duration) {
	m := p.world.Machine
	if !lifecycle.AwaitsSecrets(p.world, verdict) {
		c.awaited.Forget(m.UID)
		return 0
	}
	own := maps.Clone(p.prints)
	maps.DeleteFunc(own, func(key types.NamespacedName, _ string) bool {
		return key.Namespace != m.Namespace || !v1alpha1.MayExist(key)
	})
	if len(own) < len(p.prints) {
		again = foreignPoll
	}
	key := objectcache.Key(m)
	again = machinefacts.Sooner(again, c.awaited.Await(m.UID, own, func() { c.runner.Enqueue(key) }))
	if _, known := c.cfg.View.Machines.Get(key); !known { // the machine is gone or another replica's: no later event would end the watch
		c.awaited.Forget(m.UID)
	}
	return again
}

// hold adds our finalizers to the class and its Secrets. One pass at a time does so: the machines of a new class are created together,
// and their writes would conflict.
func (c *Controller) hold(ctx context.Context, p *pass) error {
	if err := c.holding.LockContext(ctx); err != nil {
		return fmt.Errorf("wait for others who hold classes and Secrets: %w", err)
	}
	defer c.holding.Unlock()
	class := p.world.Class.Class
	if cached, known := c.cfg.View.Classes.Get(classKey(p.world.Machine)); known {
		class = cached
	}
	class = c.classes.Newest(class) // another pass may have added the finalizer while this one waited
	if !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		live, err := c.cfg.Machines.MachineClasses(class.Namespace).Get(ctx, class.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read MachineClass %s before it is held: %w", class.Name, err)
		}
		class = live // other replicas, which reconcile other machines of the class, may have added it
	}
	if !slices.Contains(class.Finalizers, v1alpha1.FinalizerName) {
		held := class.DeepCopy()
		held.Finalizers = append(held.Finalizers, v1alpha1.FinalizerName)
		written, err := c.classes.Commit(ctx, class, held)
		if err != nil {
			return fmt.Errorf("put our finalizer on MachineClass: %w", err)
		}
		class = written
		c.secrets.forget(class.SecretKeys()...) // remembered ones may show finalizers that were removed before that of the class
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
		if _, err := c.secrets.update(ctx, held, class.Namespace); err != nil {
			return fmt.Errorf("put our finalizer on it: %w", err)
		}
	}
	return c.readSecret(ctx, p)
}
