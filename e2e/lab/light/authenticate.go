package light

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Names of Kubernetes' users and groups.
const (
	bootstrapUser  = "system:bootstrap:"
	bootstrapGroup = "system:bootstrappers"
	accountUser    = "system:serviceaccount:"
	accountGroup   = "system:serviceaccounts"
)

// authenticate returns the user of a request. Errors: 401.
func (c *Cluster) authenticate(r *http.Request) (authenticationv1.UserInfo, error) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		subject := r.TLS.VerifiedChains[0][0].Subject
		return authenticationv1.UserInfo{Username: subject.CommonName, Groups: subject.Organization}, nil
	}
	if bearer, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); found {
		if user, ok := c.bearer(bearer); ok {
			return user, nil
		}
	}
	return authenticationv1.UserInfo{}, apierrors.NewUnauthorized("Unauthorized")
}

// bearer returns the user of a token.
func (c *Cluster) bearer(bearer string) (user authenticationv1.UserInfo, ok bool) {
	c.mu.Lock()
	is, known := c.tokens[bearer]
	c.mu.Unlock()
	if known {
		secret := c.api().Get("secrets", is.secret.Namespace, is.secret.Name)
		if secret == nil || secret.GetUID() != is.secretUID {
			return user, false
		}
		user.Username = accountUser + is.namespace + ":" + is.account
		user.Groups = []string{accountGroup, accountGroup + ":" + is.namespace}
		return user, true
	}
	id, secret, found := strings.Cut(bearer, ".")
	if !found || !c.isBootstrapToken(id, secret) {
		return user, false
	}
	return authenticationv1.UserInfo{Username: bootstrapUser + id, Groups: []string{bootstrapGroup}}, true
}

// isBootstrapToken reports whether a Secret has the token, and it has not expired.
func (c *Cluster) isBootstrapToken(id, secret string) bool {
	o := c.api().Get("secrets", metav1.NamespaceSystem, "bootstrap-token-"+id)
	if o == nil {
		return false
	}
	kind, _, _ := unstructured.NestedString(o.Object, "type")
	value := func(key string) string {
		encoded, _, _ := unstructured.NestedString(o.Object, "data", key)
		decoded, _ := base64.StdEncoding.DecodeString(encoded)
		return string(decoded)
	}
	until, err := time.Parse(time.RFC3339, value("expiration"))
	expired := value("expiration") != "" && (err != nil || !until.After(c.clock.Now()))
	return kind == string(corev1.SecretTypeBootstrapToken) && value("token-id") == id && value("usage-bootstrap-authentication") == "true" &&
		subtle.ConstantTimeCompare([]byte(value("token-secret")), []byte(secret)) == 1 && !expired
}

// review answers who the user is.
func (c *Cluster) review(user authenticationv1.UserInfo) any {
	return &authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectReview"},
		Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: user},
	}
}

// issueToken creates a token of a service account, which need not exist. Errors: those of the
// request.
func (c *Cluster) issueToken(
	user authenticationv1.UserInfo, namespace, account string, request *authenticationv1.TokenRequest,
) (any, error) {
	if !slices.Contains(user.Groups, mastersGroup) {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts/token"}, account,
			fmt.Errorf("%s is not in group %s", user.Username, mastersGroup))
	}
	bound := request.Spec.BoundObjectRef
	if bound == nil || bound.Kind != "Secret" {
		return nil, apierrors.NewBadRequest("boundObjectRef: expected a Secret: a light cluster has no other tokens")
	}
	secret := c.api().Get("secrets", namespace, bound.Name)
	if secret == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, bound.Name)
	}
	request.Status.Token = "light-" + rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tokens[request.Status.Token] = token{
		namespace: namespace, account: account, secret: types.NamespacedName{Namespace: namespace, Name: bound.Name}, secretUID: secret.GetUID(),
	}
	return request, nil
}
