package machine

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/drain"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/runner"
)

const (
	// tokenNamespace is where the API server looks for bootstrap tokens.
	tokenNamespace = metav1.NamespaceSystem
	// tokenAlphabet and the lengths of the two parts are the API server's format of a token, "id.secret".
	tokenAlphabet   = "0123456789abcdefghijklmnopqrstuvwxyz"
	tokenIDLength   = 6
	tokenKeyLength  = 16
	tokenIDAttempts = 8
	// freeTokenIDs is how many IDs without a token end the search for the machine's: one may have been another's when its was
	// made.
	freeTokenIDs = 2
)

// tokenID derives the ID of a machine's bootstrap token from its UID, so that a process that takes the machine over
// finds the token again. Another machine may, once in two billion, have the same; then the next try gives another.
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

// makeToken makes the machine's bootstrap token, or finds the one that it has.
func (c *Controller) makeToken(ctx context.Context, p *pass) error {
	m := p.world.Machine
	secrets := p.cluster.Client.CoreV1().Secrets(tokenNamespace)
	for try := range tokenIDAttempts {
		wanted := c.tokenSecret(m, tokenID(m.UID, try))
		secret, err := secrets.Create(ctx, wanted, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			secret, err = secrets.Get(ctx, wanted.Name, metav1.GetOptions{})
		}
		if err != nil {
			return fmt.Errorf("make bootstrap token %s: %w", wanted.Name, err)
		}
		if secret.Annotations[v1alpha1.AnnotationMachineUID] != string(m.UID) {
			continue // somebody else's
		}
		if secret, err = c.prolong(ctx, p, secret, wanted); err != nil {
			return err
		}
		c.tokens.Store(m.UID, secret)
		p.token = string(secret.Data["token-id"]) + "." + string(secret.Data["token-secret"])
		p.world.Token = lifecycle.TokenPresent
		return nil
	}
	return fmt.Errorf("make bootstrap token: the %d IDs of machine %s/%s all belong to other tokens", tokenIDAttempts, m.Namespace, m.Name)
}

// prolong gives a token that was made for an earlier try as much time as a new one has, when little of its own is left: a
// VM that boots with a token that has run out never joins.
func (c *Controller) prolong(ctx context.Context, p *pass, secret, wanted *corev1.Secret) (*corev1.Secret, error) {
	expiry, err := time.Parse(time.RFC3339, string(secret.Data["expiration"]))
	half := lifecycle.CreationTimeout(p.world.Machine, c.cfg.Limits) / 2
	if err == nil && expiry.After(c.cfg.Clock.Now().Add(half)) {
		return secret, nil
	}
	longer := secret.DeepCopy()
	longer.Data["expiration"] = wanted.Data["expiration"]
	secret, err = p.cluster.Client.CoreV1().Secrets(tokenNamespace).Update(ctx, longer, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("prolong bootstrap token %s: %w", longer.Name, err)
	}
	return secret, nil
}

func (c *Controller) tokenSecret(m *v1alpha1.Machine, id string) *corev1.Secret {
	expiry := c.cfg.Clock.Now().Add(lifecycle.CreationTimeout(m, c.cfg.Limits)).UTC().Format(time.RFC3339)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "bootstrap-token-" + id, Namespace: tokenNamespace,
			Annotations: map[string]string{v1alpha1.AnnotationMachineUID: string(m.UID)},
		},
		Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"description":                    []byte(fmt.Sprintf("Lets the VM of machine %s/%s join as a Node.", m.Namespace, m.Name)),
			"token-id":                       []byte(id),
			"token-secret":                   []byte(newTokenKey()),
			"expiration":                     []byte(expiry),
			"usage-bootstrap-authentication": []byte("true"),
			"usage-bootstrap-signing":        []byte("true"),
		},
	}
	if c.cfg.BootstrapTokenGroups != "" {
		secret.Data["auth-extra-groups"] = []byte(c.cfg.BootstrapTokenGroups)
	}
	return secret
}

// dropToken removes the machine's bootstrap token, if there is one.
func (c *Controller) dropToken(ctx context.Context, p *pass) error {
	m := p.world.Machine
	secrets := p.cluster.Client.CoreV1().Secrets(tokenNamespace)
	if made, ok := c.tokens.LoadAndDelete(m.UID); ok { // this process has made it, and need not look for it
		secret, _ := made.(*corev1.Secret)
		err := secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
		if err == nil {
			p.world.Token = lifecycle.TokenAbsent
			return nil
		}
	}
	free := 0
	for try := 0; try < tokenIDAttempts && free < freeTokenIDs; try++ {
		name := "bootstrap-token-" + tokenID(m.UID, try)
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			free++
			continue
		}
		if err != nil {
			return fmt.Errorf("read bootstrap token %s: %w", name, err)
		}
		if secret.Annotations[v1alpha1.AnnotationMachineUID] != string(m.UID) {
			continue
		}
		err = secrets.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete bootstrap token %s: %w", name, err)
		}
	}
	p.world.Token = lifecycle.TokenAbsent
	return nil
}

// leaveToken leaves the token of a machine that nobody waits for any longer to its own end, if it cannot be removed: it
// expires, and its cluster may be gone for good.
func (c *Controller) leaveToken(ctx context.Context, p *pass, err error) error {
	m := p.world.Machine
	if err == nil || ctx.Err() != nil || runner.NotOurs(err) || m.DeletionTimestamp == nil || !drain.ForDeletion(m, c.cfg.Limits.Drain).IsOver(c.cfg.Clock.Now()) {
		return err
	}
	klog.FromContext(ctx).Error(err, "The bootstrap token cannot be removed, and is left until it expires")
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
			continue // without a target cluster there is no token
		}
		pairs = append(pairs, placeholder, value, url.QueryEscape(placeholder), url.QueryEscape(value))
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(userData)))
}
