package credentials

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
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/bounded"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machinefacts"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/pacing"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/secretwatch"
)

// secretTTL is for how long a Secret that was read is used for further machines. Machines are
// created in batches, and a change of credentials should be used soon.
const secretTTL = 10 * time.Second

// askingTime is how long the read or the write of a Secret may take. Machines of the namespace that
// need it wait in the meantime.
const askingTime = 10 * time.Second

// mostRemembered is how many bytes of Secrets one replica remembers. A Secret usually has some KiB;
// the API server accepts a MiB.
const mostRemembered = 64 << 20

// mostMissing is how many bytes are shown of the name of a missing Secret: enough for each
// namespace, slash and name that are valid.
const mostMissing = validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength

// foreignPoll is the time between two reads for a machine that waits for a Secret of another
// namespace. A watch would reveal whether the Secret exists: it would end the wait for one that
// exists sooner.
const foreignPoll = time.Minute

// SecretsConfig is the configuration of Secrets. All fields but Namespace are required.
type SecretsConfig struct {
	Client corev1client.SecretsGetter
	// Metadata reads which namespaces may use a Secret.
	Metadata metadata.Interface
	// Namespace is the only namespace that is served; "" means all.
	Namespace string
	Clock     clock.WithTicker
}

// Validate returns an error that names the required fields that are not set.
func (c SecretsConfig) Validate() error { return required.Fields(c, "Namespace") }

// Secrets reads Secrets by name and remembers them for secretTTL, as well as that one does not
// exist. Secrets are watched only while machines wait for them: otherwise a fleet that serves a
// landscape would have all of its credentials in memory. Create it with NewSecrets; it is safe for
// concurrent use.
type Secrets struct {
	cfg     SecretsConfig
	watches *secretwatch.Watches

	// asking has the turn of a Secret during a request and until its answer is remembered. Machines
	// that are created together need the same Secret, which is read only once in this way. In a
	// landscape each namespace has its own, and requests for these do not wait for each other.
	asking pacing.Turns[secretUse]

	mu   sync.Mutex
	read map[secretUse]secretAt
	// current are those that are being requested, and were not dropped since. The answer for another
	// one may be from before a change, and is not remembered.
	current map[secretUse]bool
}

// secretUse is a Secret as the classes of one namespace use it. What is remembered for one
// namespace is not used for another: otherwise a faster answer would reveal that another namespace
// uses the Secret.
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

// ClassSecrets are the Secrets of a class as they were read.
type ClassSecrets struct {
	// Missing names the first one that does not exist, that the class may not use, or that is being
	// deleted without our finalizer: no finalizer can be added to it any more. Those after it were not
	// read. It is "" when all are found.
	Missing string
	// Foreign reports whether the missing one is of another namespace.
	Foreign bool
	// Prints are checksums of the data of those that were read; that of the missing one is "".
	Prints map[types.NamespacedName]string

	found []*corev1.Secret // in the order of SecretKeys
}

// NewSecrets returns Secrets that have read none. Errors: those of SecretsConfig.Validate.
func NewSecrets(cfg SecretsConfig) (*Secrets, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Secrets{cfg: cfg, read: map[secretUse]secretAt{}, current: map[secretUse]bool{}}
	var err error
	s.watches, err = secretwatch.New(secretwatch.Config{
		Client: cfg.Client, Clock: cfg.Clock, Changed: func(key types.NamespacedName) { s.Forget(key) },
	})
	return s, err
}

// Run watches the Secrets that machines wait for until ctx ends.
func (s *Secrets) Run(ctx context.Context) { s.watches.Run(ctx) }

// Cached returns the class' Secrets up to the first one that is missing, and reports whether all of
// these were read within secretTTL.
func (s *Secrets) Cached(class *v1alpha1.MachineClass) (ClassSecrets, bool) {
	if class == nil {
		return ClassSecrets{}, false
	}
	var secrets ClassSecrets
	for _, key := range class.SecretKeys() {
		use := secretUse{key, class.Namespace}
		known, fresh := s.known(use)
		if !fresh {
			return ClassSecrets{}, false
		}
		if secrets.add(use, known); secrets.Missing != "" {
			break
		}
	}
	return secrets, true
}

// Read returns the class' Secrets. It reads those that were not read within secretTTL. Errors: the
// requests, and the end of ctx.
func (s *Secrets) Read(ctx context.Context, class *v1alpha1.MachineClass) (secrets ClassSecrets, err error) {
	for _, key := range class.SecretKeys() {
		use := secretUse{key, class.Namespace}
		known, err := s.readOne(ctx, use)
		if err != nil {
			return ClassSecrets{}, err
		}
		if secrets.add(use, known); secrets.Missing != "" {
			break
		}
	}
	return secrets, nil
}

// readOne returns a Secret, which it reads unless that was done within secretTTL.
func (s *Secrets) readOne(ctx context.Context, use secretUse) (secretAt, error) {
	end, err := s.turn(ctx, use)
	if err != nil {
		return secretAt{}, err
	}
	defer end()
	known, fresh := s.known(use)
	if fresh {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	secret, err := s.ask(ctx, use)
	if err != nil {
		return secretAt{}, err
	}
	return s.note(use, secret), nil
}

// turn waits until no other request for a Secret is in flight, and keeps others waiting until end
// is called. Errors: the end of ctx.
func (s *Secrets) turn(ctx context.Context, use secretUse) (end func(), err error) {
	unlock, err := s.asking.Lock(ctx, use)
	if err != nil {
		return nil, fmt.Errorf("wait for another request for the Secret: %w", err)
	}
	s.setCurrent(use, true)
	return func() {
		s.setCurrent(use, false)
		unlock()
	}, nil
}

func (s *Secrets) setCurrent(use secretUse, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.current, use); is {
		s.current[use] = true
	}
}

// ask reads a Secret; nil when there is none that may be used. For a Secret of another namespace it
// reads the metadata first, and the Secret only if the metadata declare it as shared: a Secret that
// does not exist and one that is not shared take the same one request, and cannot be distinguished
// by time. A fleet that serves one namespace usually has no right to read these metadata; then no
// Secret is shared with it.
func (s *Secrets) ask(ctx context.Context, use secretUse) (*corev1.Secret, error) {
	if use.isForeign() {
		about, err := s.cfg.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).
			Namespace(use.key.Namespace).Get(ctx, use.key.Name, metav1.GetOptions{})
		isDenied := apierrors.IsForbidden(err) && s.cfg.Namespace != metav1.NamespaceAll
		if isDenied || apierrors.IsNotFound(err) || err == nil && !v1alpha1.SharedWith(about, use.by) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the metadata of Secret %s: %w", use.key, err)
		}
	}
	secret, err := s.cfg.Client.Secrets(use.key.Namespace).Get(ctx, use.key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !v1alpha1.SharedWith(secret, use.by) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", use.key, err)
	}
	return secret, nil
}

// AddFinalizers adds our finalizer to those of the class' Secrets that lack it, if all of them were
// read within secretTTL.
func (s *Secrets) AddFinalizers(ctx context.Context, class *v1alpha1.MachineClass) error {
	secrets, _ := s.Cached(class) // none if one of them was not
	for _, secret := range secrets.found {
		if hasFinalizer(secret) {
			continue
		}
		changed := secret.DeepCopy()
		changed.Finalizers = append(changed.Finalizers, v1alpha1.SecretFinalizerName)
		if _, err := s.update(ctx, changed, class.Namespace); err != nil {
			return fmt.Errorf("put our finalizer on it: %w", err)
		}
	}
	return nil
}

func hasFinalizer(s *corev1.Secret) bool {
	return slices.Contains(s.Finalizers, v1alpha1.SecretFinalizerName)
}

// update writes a Secret that classes of the namespace by use.
func (s *Secrets) update(ctx context.Context, secret *corev1.Secret, by string) (*corev1.Secret, error) {
	key := objectcache.Key(secret)
	end, err := s.turn(ctx, secretUse{key, by})
	if err != nil {
		return nil, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, askingTime)
	defer cancel()
	written, err := s.cfg.Client.Secrets(key.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	s.Forget(key)
	if err != nil {
		return nil, fmt.Errorf("update Secret %s: %w", key, err)
	}
	s.setCurrent(secretUse{key, by}, true) // the answer shows the change
	s.note(secretUse{key, by}, written)
	return written, nil
}

// Forget drops what was read of Secrets. The answers of requests that are in flight are not
// remembered.
func (s *Secrets) Forget(keys ...types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.read, func(use secretUse, _ secretAt) bool { return slices.Contains(keys, use.key) })
	maps.DeleteFunc(s.current, func(use secretUse, _ bool) bool { return slices.Contains(keys, use.key) })
}

// known returns what was read of a Secret; fresh reports whether that was within secretTTL. For a
// name that no Secret can have it is always true: there is no such Secret.
func (s *Secrets) known(use secretUse) (secret secretAt, fresh bool) {
	if !v1alpha1.MayExist(use.key) {
		return secretAt{}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.read[use] // one that was not read has the zero time
	return known, s.cfg.Clock.Since(known.at) <= secretTTL
}

// note remembers a Secret as read now, in a turn that the caller holds, unless it was dropped
// since.
func (s *Secrets) note(use secretUse, secret *corev1.Secret) secretAt {
	noted := secretAt{secret: secret, print: secretwatch.Print(secret), at: s.cfg.Clock.Now(), size: secret.Size()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current[use] {
		s.remember(use, noted)
	}
	return noted
}

// remember remembers what was read now. It drops what was read before secretTTL, and what exceeds
// mostRemembered. The caller holds the lock.
func (s *Secrets) remember(use secretUse, noted secretAt) {
	maps.DeleteFunc(s.read, func(_ secretUse, known secretAt) bool { return noted.at.Sub(known.at) > secretTTL })
	for _, drop := range tooMany(s.read, mostRemembered-noted.size) {
		delete(s.read, drop)
	}
	s.read[use] = noted
}

// tooMany returns the Secrets to drop so that the others have at most that many bytes: those of the
// namespace that has most bytes, and of these the ones that were read first. So a namespace cannot
// cause the Secrets of another one to be dropped that has fewer bytes.
func tooMany(read map[secretUse]secretAt, most int) (drop []secretUse) {
	total, sizes, uses := 0, map[string]int{}, map[string][]secretUse{}
	for use, known := range read {
		total += known.size
		sizes[use.by] += known.size
	}
	for total > max(most, 0) {
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

func (s *ClassSecrets) add(use secretUse, read secretAt) {
	if s.Prints == nil {
		s.Prints = map[types.NamespacedName]string{}
	}
	if s.Prints[use.key] = read.print; read.print != "" {
		s.found = append(s.found, read.secret)
		return
	}
	if s.Missing, s.Foreign = use.key.Name, use.isForeign(); s.Foreign {
		s.Missing = use.key.String()
	}
	s.Missing = bounded.Text(s.Missing, mostMissing)
}

// Credentials returns the data of the one Secret that has the credentials: the last one that the
// class names. The data of several Secrets are not merged: otherwise a class could cause the token
// of one Secret to be sent to the endpoint in another.
func (s *ClassSecrets) Credentials() map[string][]byte {
	if s.Missing != "" || len(s.found) == 0 {
		return nil
	}
	return s.found[len(s.found)-1].Data
}

// UserData returns the user data that a VM boots with: that of the last Secret that has some.
func (s *ClassSecrets) UserData() []byte {
	for _, secret := range slices.Backward(s.found) {
		if userData, has := secret.Data[v1alpha1.SecretKeyUserData]; has {
			return userData
		}
	}
	return nil
}

// HaveFinalizer reports whether all of the class' Secrets exist and have our finalizer.
func (s *ClassSecrets) HaveFinalizer() bool {
	return s.Missing == "" && !slices.ContainsFunc(s.found, func(s *corev1.Secret) bool { return !hasFinalizer(s) })
}

// Await watches the Secrets with these prints for a machine that waits for another content of them;
// wake is called once for each change, until StopAwaiting, and must return soon. Those of other
// namespaces are not watched, nor are too many of one: again is the time after which to read these
// again, 0 for never.
func (s *Secrets) Await(m *v1alpha1.Machine, prints map[types.NamespacedName]string, wake func()) (again time.Duration) {
	own := maps.Clone(prints)
	maps.DeleteFunc(own, func(key types.NamespacedName, _ string) bool {
		return key.Namespace != m.Namespace || !v1alpha1.MayExist(key)
	})
	if len(own) < len(prints) {
		again = foreignPoll
	}
	return machinefacts.Sooner(again, s.watches.Await(m.UID, own, wake))
}

// StopAwaiting records that a machine waits for no Secrets any more.
func (s *Secrets) StopAwaiting(machine types.UID) { s.watches.Forget(machine) }

// Awaited returns how many Secrets are watched.
func (s *Secrets) Awaited() int { return s.watches.Len() }
