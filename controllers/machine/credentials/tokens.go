package credentials

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	machineclient "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned/typed/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/kubeclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/required"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/target"
)

const (
	// tokenNamespace is where the API server looks for bootstrap tokens.
	tokenNamespace = metav1.NamespaceSystem
	// tokenPrefix and the ID of a token are the name of its Secret; the others are keys of its data.
	tokenPrefix      = "bootstrap-token-"
	tokenIDKey       = "token-id"
	tokenKey         = "token-secret"
	tokenDescription = "description"
	tokenExpiration  = "expiration"
	// tokenAlphabet and the lengths of the two parts are the API server's format of a token,
	// "id.secret".
	tokenAlphabet   = "0123456789abcdefghijklmnopqrstuvwxyz"
	tokenIDLength   = 6
	tokenKeyLength  = 16
	tokenIDAttempts = 8
	// freeTokenIDs is how many IDs without a token end the search for the machine's token: the token
	// of another machine, which is gone now, may have had the first ID when the machine's was created.
	freeTokenIDs = 2
)

// TokensConfig is the configuration of Tokens. Machines, Targets and Clock are required.
type TokensConfig struct {
	// Machines reads machines from the API server.
	Machines machineclient.MachineV1alpha1Interface
	Targets  target.Resolver
	Clock    clock.PassiveClock
	// Groups are the auth-extra-groups of the tokens; "" means none.
	Groups string
	// Signing reports whether the tokens may be used for signing, too. VMs need that if they discover
	// their cluster by the token.
	Signing bool
}

// Validate returns an error that names the required fields that are not set.
func (c TokensConfig) Validate() error { return required.Fields(c, "Groups") }

// Tokens are the bootstrap tokens of machines. It remembers those that this process has created or
// read, which may be lost at any time: that costs requests. Create it with NewTokens; it is safe
// for concurrent use.
type Tokens struct {
	cfg TokensConfig

	mu    sync.Mutex
	known map[types.UID]knownToken // by machine
}

// knownToken is a token that this process has created or read.
type knownToken struct {
	*corev1.Secret

	expiry time.Time // see expiryOf
	// deleted reports that this process has deleted the Secret and has to create it again.
	deleted bool
}

// NewTokens returns Tokens that know of none. Errors: those of TokensConfig.Validate.
func NewTokens(cfg TokensConfig) (*Tokens, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Tokens{cfg: cfg, known: map[types.UID]knownToken{}}, nil
}

func (t *Tokens) of(machine types.UID) (token knownToken, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	token, known = t.known[machine]
	return token, known
}

func (t *Tokens) remember(machine types.UID, token knownToken) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[machine] = token
}

// Forget drops what is known of the token of a machine.
func (t *Tokens) Forget(machine types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, machine)
}

// Len returns of how many machines the token is known.
func (t *Tokens) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.known)
}

// tokenID derives the ID of a machine's bootstrap token from its UID, so that a process that takes
// over the machine finds the token. Two machines have the same ID with a probability of one in two
// billion; the next try then gives another ID.
func tokenID(uid types.UID, try int) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", uid, try)
	sum := h.Sum64()
	id := make([]byte, tokenIDLength)
	for i := range id {
		id[i] = tokenAlphabet[sum%uint64(len(tokenAlphabet))]
		sum /= uint64(len(tokenAlphabet))
	}
	return string(id)
}

// newTokenKey draws the secret half of a token. 252 is the largest multiple of 36 in a byte: what
// lies above is drawn again, so that every character is as likely as the others.
func newTokenKey() string {
	key := make([]byte, 0, tokenKeyLength)
	for len(key) < tokenKeyLength {
		var b [tokenKeyLength]byte
		_, _ = rand.Read(b[:]) // never fails: see its documentation
		for _, x := range b {
			if x < 252 && len(key) < tokenKeyLength {
				key = append(key, tokenAlphabet[int(x)%len(tokenAlphabet)])
			}
		}
	}
	return string(key)
}

// Create creates the bootstrap token of a machine in a target cluster, or finds the one that it
// has. The token is valid for life from now on, or for half of that at least.
func (t *Tokens) Create(
	ctx context.Context, cluster *target.Cluster, m *v1alpha1.Machine, life time.Duration,
) (token string, expiry time.Time, err error) {
	for try := range tokenIDAttempts {
		wanted := t.secretOf(cluster, m, tokenID(m.UID, try), life)
		secret, err := cluster.Client.CoreV1().Secrets(tokenNamespace).Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			secret, err = readToken(ctx, cluster.Client, wanted.Name)
		}
		if err != nil {
			return "", time.Time{}, fmt.Errorf("create bootstrap token %s: %w", wanted.Name, err)
		}
		if secret.Annotations[v1alpha1.AnnotationMachineUID] != string(m.UID) {
			continue // the token of another machine
		}
		expiry, err := t.keepValid(ctx, cluster, m.UID, knownToken{Secret: secret}, life)
		if err != nil {
			return "", time.Time{}, err
		}
		return string(secret.Data[tokenIDKey]) + "." + string(secret.Data[tokenKey]), expiry, nil
	}
	return "", time.Time{}, fmt.Errorf("create bootstrap token: the %d IDs of machine %s/%s all belong to other tokens",
		tokenIDAttempts, m.Namespace, m.Name)
}

// readToken reads a bootstrap token by a deletion that is not carried out: a deletion that has to
// wait for dependents is answered with the object, also as a dry run. RBAC cannot limit a right to
// read or to patch the Secrets of kube-system to bootstrap tokens, so the fleet has neither: the
// admission policy of the chart limits its deletions, and no error of a deletion has the content of
// a Secret, as that of a patch which cannot be applied has.
func readToken(ctx context.Context, cluster kubeclient.Interface, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := cluster.CoreV1().RESTClient().Delete().Namespace(tokenNamespace).Resource("secrets").Name(name).
		Param("dryRun", metav1.DryRunAll).Param("propagationPolicy", string(metav1.DeletePropagationForeground)).Do(ctx).Into(secret)
	if err == nil && secret.Name != name {
		return nil,
			fmt.Errorf("expected Secret %s in the answer to a deletion as a dry run, got none: the API server differs from Kubernetes'", name)
	}
	return secret, err
}

// Prolong keeps the token of a machine valid for life from now on, or for half of that at least.
// found is false when the machine has no token.
func (t *Tokens) Prolong(
	ctx context.Context, cluster *target.Cluster, machine types.UID, life time.Duration,
) (expiry time.Time, found bool, err error) {
	if token, known := t.of(machine); known {
		if expiry, err = t.keepValid(ctx, cluster, machine, token, life); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return expiry, true, err
		}
	}
	all, err := findTokens(ctx, cluster.Client, machine)
	if err != nil {
		return time.Time{}, false, err
	}
	for _, secret := range all {
		if expiry, err = t.keepValid(ctx, cluster, machine, knownToken{Secret: secret}, life); err != nil {
			return time.Time{}, false, err
		}
	}
	return expiry, len(all) > 0, nil
}

// keepValid sets the expiration of a token to life from now if less than half of life is left,
// because a VM that boots with an expired token never joins, or if more than life is left. It
// remembers the token. The Secret is deleted and created again, because the fleet may not change
// it: a VM that uses the token in between is rejected, and tries again. Errors: the request;
// NotFound and Conflict mean that this token does not exist any more.
func (t *Tokens) keepValid(
	ctx context.Context, cluster *target.Cluster, machine types.UID, token knownToken, life time.Duration,
) (time.Time, error) {
	now, expiry := t.cfg.Clock.Now(), expiryOf(cluster, token.Secret)
	token.expiry = expiry
	if !token.deleted && expiry.After(now.Add(life/2)) && !expiry.After(now.Add(life)) {
		t.remember(machine, token)
		return expiry, nil
	}
	secrets := cluster.Client.CoreV1().Secrets(tokenNamespace)
	if !token.deleted {
		err := secrets.Delete(ctx, token.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &token.UID}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the Secret is gone, or another one has its name
			t.Forget(machine)
		}
		if err != nil {
			return time.Time{}, fmt.Errorf("prolong bootstrap token: delete it: %w", err)
		}
		t.remember(machine, knownToken{Secret: token.Secret, expiry: expiry, deleted: true})
	}
	again := t.secret(cluster, strings.TrimPrefix(token.Name, tokenPrefix), token.Annotations, life)
	for _, key := range []string{tokenDescription, tokenKey} {
		again.Data[key] = token.Data[key]
	}
	secret, err := secrets.Create(ctx, again, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // created by an attempt whose answer was lost, or for another machine
		t.Forget(machine)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("prolong bootstrap token: create it again: %w", err)
	}
	token = knownToken{Secret: secret, expiry: expiryOf(cluster, secret)}
	t.remember(machine, token)
	return token.expiry, nil
}

// Expiry returns when the bootstrap token expires that this process has created or read for a
// machine; the zero Time when it has not.
func (t *Tokens) Expiry(machine types.UID) time.Time {
	if token, known := t.of(machine); known && !token.deleted {
		return token.expiry
	}
	return time.Time{}
}

// expiryOf returns when a token expires, by the clock of the control cluster; the zero Time when
// its Secret has no valid time. The target cluster compares the time in the Secret with its own.
func expiryOf(cluster *target.Cluster, secret *corev1.Secret) time.Time {
	expiry, err := time.Parse(time.RFC3339, string(secret.Data[tokenExpiration]))
	if err != nil {
		return time.Time{}
	}
	return expiry.Add(-cluster.Ahead())
}

func formatExpiry(t time.Time) []byte { return []byte(t.UTC().Format(time.RFC3339)) }

// secretOf returns the token of a machine, valid for life from now on.
func (t *Tokens) secretOf(cluster *target.Cluster, m *v1alpha1.Machine, id string, life time.Duration) *corev1.Secret {
	secret := t.secret(cluster, id, map[string]string{
		v1alpha1.AnnotationMachineUID: string(m.UID),
		v1alpha1.AnnotationTokenOf:    m.Namespace + "/" + m.Name,
	}, life)
	secret.Data[tokenDescription] = []byte(fmt.Sprintf("Lets the VM of machine %s/%s join as a Node.", m.Namespace, m.Name))
	secret.Data[tokenKey] = []byte(newTokenKey())
	return secret
}

// secret returns a token without its key and description, valid for life from now on. A VM needs it
// to authenticate. Signing is needed only where VMs discover their cluster by the token, as with
// kubeadm join.
func (t *Tokens) secret(cluster *target.Cluster, id string, annotations map[string]string, life time.Duration) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: tokenPrefix + id, Namespace: tokenNamespace, Annotations: annotations},
		Type:       corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			tokenIDKey:                       []byte(id),
			tokenExpiration:                  formatExpiry(t.cfg.Clock.Now().Add(life + cluster.Ahead())),
			"usage-bootstrap-authentication": []byte("true"),
		},
	}
	if t.cfg.Signing {
		secret.Data["usage-bootstrap-signing"] = []byte("true")
	}
	if t.cfg.Groups != "" {
		secret.Data["auth-extra-groups"] = []byte(t.cfg.Groups)
	}
	return secret
}

// Delete deletes the bootstrap token of a machine, if there is one.
func (t *Tokens) Delete(ctx context.Context, cluster kubeclient.Interface, machine types.UID) error {
	if token, known := t.of(machine); known { // no search is necessary
		t.Forget(machine)
		err := cluster.CoreV1().Secrets(tokenNamespace).
			Delete(ctx, token.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &token.UID}})
		if err == nil {
			return nil
		}
	}
	return deleteTokens(ctx, cluster, machine)
}

// findTokens returns the bootstrap tokens of the machine with that UID. Usually there is one, or
// none; there are two if the token of another machine had the first ID when one of them was
// created.
func findTokens(ctx context.Context, cluster kubeclient.Interface, machine types.UID) (found []*corev1.Secret, err error) {
	free := 0
	for try := 0; try < tokenIDAttempts && free < freeTokenIDs; try++ {
		name := tokenPrefix + tokenID(machine, try)
		secret, err := readToken(ctx, cluster, name)
		if apierrors.IsNotFound(err) {
			free++
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read bootstrap token %s: %w", name, err)
		}
		if secret.Annotations[v1alpha1.AnnotationMachineUID] == string(machine) {
			found = append(found, secret)
		}
	}
	return found, nil
}

// deleteTokens deletes the bootstrap tokens of the machine with that UID.
func deleteTokens(ctx context.Context, cluster kubeclient.Interface, machine types.UID) error {
	found, err := findTokens(ctx, cluster, machine)
	if err != nil {
		return err
	}
	for _, secret := range found {
		err := cluster.CoreV1().Secrets(tokenNamespace).
			Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete bootstrap token %s: %w", secret.Name, err)
		}
	}
	return nil
}

// FillUserData replaces placeholders, plain and URL-encoded, by their values. One whose value is ""
// stays: there is no token without a target cluster, or without its placeholder.
func FillUserData(userData []byte, values map[string]string) []byte {
	var pairs []string
	for placeholder, value := range values {
		if value != "" {
			pairs = append(pairs, placeholder, value, url.QueryEscape(placeholder), url.QueryEscape(value))
		}
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(userData)))
}
