package machine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/runner"
)

const (
	// tokenNamespace is where the API server looks for bootstrap tokens.
	tokenNamespace = metav1.NamespaceSystem
	// tokenPrefix and the ID of a token are the name of its Secret, and tokenExpiration is the key of its expiration.
	tokenPrefix     = "bootstrap-token-"
	tokenExpiration = "expiration"
	// tokenAlphabet and the lengths of the two parts are the API server's format of a token, "id.secret".
	tokenAlphabet   = "0123456789abcdefghijklmnopqrstuvwxyz"
	tokenIDLength   = 6
	tokenKeyLength  = 16
	tokenIDAttempts = 8
	// freeTokenIDs is how many IDs without a token end the search for the machine's token: the token of another machine, which is gone
	// now, may have had the first ID when the machine's was created.
	freeTokenIDs = 2
)

// tokenID derives the ID of a machine's bootstrap token from its UID, so that a process that takes over the machine finds the token.
// Two machines have the same ID with a probability of one in two billion; the next try then gives another ID.
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

// newTokenKey draws the secret half of a token. 252 is the largest multiple of 36 in a byte: what lies above is drawn
// again, so that every character is as likely as the others.
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

// makeToken creates the machine's bootstrap token, or finds the one that it has.
func (c *Controller) makeToken(ctx context.Context, p *pass) error {
	m := p.world.Machine
	secrets := p.cluster.Client.CoreV1().Secrets(tokenNamespace)
	for try := range tokenIDAttempts {
		wanted := c.tokenSecret(m, tokenID(m.UID, try))
		secret, err := secrets.Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			secret, err = readToken(ctx, secrets, wanted.Name)
		}
		if err != nil {
			return fmt.Errorf("make bootstrap token %s: %w", wanted.Name, err)
		}
		if secret.Annotations[v1alpha1.AnnotationMachineUID] != string(m.UID) {
			continue // the token of another machine
		}
		if err := c.keepValid(ctx, p, secret); err != nil {
			return err
		}
		p.token = string(secret.Data["token-id"]) + "." + string(secret.Data["token-secret"])
		return nil
	}
	return fmt.Errorf("make bootstrap token: the %d IDs of machine %s/%s all belong to other tokens", tokenIDAttempts, m.Namespace, m.Name)
}

// readToken reads a bootstrap token by a patch that changes nothing. RBAC cannot limit a right to read the Secrets of kube-system to
// bootstrap tokens, so the fleet does without it; the admission policy of the chart limits its patches to bootstrap tokens.
func readToken(ctx context.Context, secrets corev1client.SecretInterface, name string) (*corev1.Secret, error) {
	return secrets.Patch(ctx, name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
}

// prolongToken makes the token of a machine whose VM has not joined yet valid for longer.
func (c *Controller) prolongToken(ctx context.Context, p *pass) error {
	m := p.world.Machine
	if secret := c.memory.of(m.UID).token; secret != nil {
		if err := c.keepValid(ctx, p, secret); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	found, err := findTokens(ctx, p.cluster.Client.CoreV1().Secrets(tokenNamespace), m.UID)
	if err != nil {
		return err
	}
	p.world.Token = lifecycle.TokenAbsent
	for _, secret := range found {
		if err := c.keepValid(ctx, p, secret); err != nil {
			return err
		}
	}
	return nil
}

// keepValid sets the expiration of a token to TokenLife from now if less than half of TokenLife is left, because a VM that boots
// with an expired token never joins, or if more than TokenLife is left. It records the token for this process and in the world.
// Errors: the request; NotFound and Conflict mean that this token does not exist any more.
func (c *Controller) keepValid(ctx context.Context, p *pass, secret *corev1.Secret) error {
	m, now := p.world.Machine, c.cfg.Clock.Now()
	life := lifecycle.TokenLife(m, c.cfg.Limits)
	expiry := expiryOf(secret)
	if !expiry.After(now.Add(life/2)) || expiry.After(now.Add(life)) {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": secret.UID},
			"data":     map[string][]byte{tokenExpiration: formatExpiry(now.Add(life))},
		})
		if err != nil {
			return fmt.Errorf("encode patch of bootstrap token %s: %w", secret.Name, err)
		}
		secrets := p.cluster.Client.CoreV1().Secrets(tokenNamespace)
		secret, err = secrets.Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the Secret is gone, or another one has its name
			c.memory.change(m.UID, func(is *remembered) { is.token = nil })
		}
		if err != nil {
			return fmt.Errorf("prolong bootstrap token: %w", err)
		}
	}
	c.memory.change(m.UID, func(is *remembered) { is.token = secret })
	p.world.Token, p.world.TokenExpiry = lifecycle.TokenPresent, expiryOf(secret)
	return nil
}

// tokenExpiry returns when the bootstrap token expires that this process has created or read for a machine; the zero Time when it has
// not.
func (c *Controller) tokenExpiry(machine types.UID) time.Time {
	if secret := c.memory.of(machine).token; secret != nil {
		return expiryOf(secret)
	}
	return time.Time{}
}

// expiryOf returns when a token expires; the zero Time when its Secret has no valid time.
func expiryOf(secret *corev1.Secret) time.Time {
	expiry, err := time.Parse(time.RFC3339, string(secret.Data[tokenExpiration]))
	if err != nil {
		return time.Time{}
	}
	return expiry
}

func formatExpiry(t time.Time) []byte { return []byte(t.UTC().Format(time.RFC3339)) }

// tokenSecret returns the token of a machine, valid from now on for TokenLife. A VM needs it to authenticate. Signing is needed
// only where VMs discover their cluster by the token, as with kubeadm join.
func (c *Controller) tokenSecret(m *v1alpha1.Machine, id string) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: tokenPrefix + id, Namespace: tokenNamespace,
			Annotations: map[string]string{
				v1alpha1.AnnotationMachineUID: string(m.UID),
				v1alpha1.AnnotationTokenOf:    m.Namespace + "/" + m.Name,
			},
		},
		Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"description":                    []byte(fmt.Sprintf("Lets the VM of machine %s/%s join as a Node.", m.Namespace, m.Name)),
			"token-id":                       []byte(id),
			"token-secret":                   []byte(newTokenKey()),
			tokenExpiration:                  formatExpiry(c.cfg.Clock.Now().Add(lifecycle.TokenLife(m, c.cfg.Limits))),
			"usage-bootstrap-authentication": []byte("true"),
		},
	}
	if c.cfg.BootstrapTokenSigning {
		secret.Data["usage-bootstrap-signing"] = []byte("true")
	}
	if c.cfg.BootstrapTokenGroups != "" {
		secret.Data["auth-extra-groups"] = []byte(c.cfg.BootstrapTokenGroups)
	}
	return secret
}

// dropToken deletes the machine's bootstrap token, if there is one.
func (c *Controller) dropToken(ctx context.Context, p *pass) error {
	m := p.world.Machine
	secrets := p.cluster.Client.CoreV1().Secrets(tokenNamespace)
	if secret := c.memory.of(m.UID).token; secret != nil { // known to this process: no search is necessary
		c.memory.change(m.UID, func(is *remembered) { is.token = nil })
		err := secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
		if err == nil {
			p.world.Token = lifecycle.TokenAbsent
			return nil
		}
	}
	if err := deleteTokens(ctx, secrets, m.UID); err != nil {
		return err
	}
	p.world.Token = lifecycle.TokenAbsent
	return nil
}

// findTokens returns the bootstrap tokens of the machine with that UID. Usually there is one, or none; there are two if the token of
// another machine had the first ID when one of them was created.
func findTokens(ctx context.Context, secrets corev1client.SecretInterface, machine types.UID) (found []*corev1.Secret, err error) {
	free := 0
	for try := 0; try < tokenIDAttempts && free < freeTokenIDs; try++ {
		name := tokenPrefix + tokenID(machine, try)
		secret, err := readToken(ctx, secrets, name)
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
func deleteTokens(ctx context.Context, secrets corev1client.SecretInterface, machine types.UID) error {
	found, err := findTokens(ctx, secrets, machine)
	if err != nil {
		return err
	}
	for _, secret := range found {
		err := secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete bootstrap token %s: %w", secret.Name, err)
		}
	}
	return nil
}

// leaveToken ignores an error of deleting the token of a machine when the time for its drain is over: the token expires, and a target
// cluster that does not exist any more would otherwise block the deletion of the machine.
func (c *Controller) leaveToken(ctx context.Context, p *pass, err error) error {
	m := p.world.Machine
	if err == nil || ctx.Err() != nil || runner.NotOurs(err) || m.DeletionTimestamp == nil || !drain.ForDeletion(m, c.cfg.Limits.Drain).IsOver(c.cfg.Clock.Now()) {
		return err
	}
	klog.FromContext(ctx).Error(err, "Failed to delete bootstrap token; leaving it until it expires")
	p.world.Token = lifecycle.TokenAbsent
	return nil
}

// fillUserData replaces the placeholders, plain and URL-encoded, by the token and the machine's name.
func fillUserData(userData []byte, token, machine string) []byte {
	var pairs []string
	for placeholder, value := range map[string]string{
		v1alpha1.PlaceholderBootstrapToken: token,
		v1alpha1.PlaceholderMachineName:    machine,
	} {
		if value == "" {
			continue // there is no token without a target cluster, or without its placeholder
		}
		pairs = append(pairs, placeholder, value, url.QueryEscape(placeholder), url.QueryEscape(value))
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(userData)))
}
