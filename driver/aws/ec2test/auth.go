package ec2test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// session is temporary credentials.
type session struct {
	secret, token string
	expires       time.Time
}

// assume answers a request of STS.
func (c *Cloud) assume(form url.Values) (answer any, refused *refusal) {
	token, known := c.settings.Roles[form.Get("RoleArn")]
	if !known {
		return nil, refuse(http.StatusForbidden, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
	}
	if form.Get("WebIdentityToken") != token {
		return nil, refuse(http.StatusBadRequest, "InvalidIdentityToken", "Couldn't retrieve verification key")
	}
	c.created++
	id := fmt.Sprintf("ASIA%016d", c.created)
	s := session{secret: "secret-of-" + id, token: "session-of-" + id, expires: c.clock.Now().Add(SessionLife)}
	c.sessions[id] = s
	return assumeAnswer{
		AccessKeyID: id, SecretAccessKey: s.secret, SessionToken: s.token, Expiration: s.expires.UTC().Format(time.RFC3339), RequestID: requestID,
	}, nil
}

// authenticate checks the signature of a request.
func (c *Cloud) authenticate(r *http.Request, body []byte) *refusal {
	failed := refuse(http.StatusUnauthorized, "AuthFailure", "AWS was not able to validate the provided access credentials")
	given := r.Header.Get("Authorization")
	_, rest, ok := strings.Cut(given, "Credential=")
	scope, _, _ := strings.Cut(rest, ",")
	parts := strings.Split(scope, "/")
	if !ok || len(parts) != 5 || parts[2] != c.settings.Region {
		return failed
	}
	credentials := sdk.Credentials{AccessKeyID: parts[0], SecretAccessKey: c.settings.AccessKeys[parts[0]]}
	if s, isTemporary := c.sessions[parts[0]]; isTemporary {
		credentials.SecretAccessKey, credentials.SessionToken = s.secret, s.token
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if credentials.SecretAccessKey == "" || err != nil {
		return failed
	}
	//nolint:gosec // it is signed, and not sent
	expected, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+r.Host+"/", bytes.NewReader(body))
	if err != nil {
		return failed
	}
	_, rest, _ = strings.Cut(given, "SignedHeaders=")
	signed, _, _ := strings.Cut(rest, ",")
	for name := range strings.SplitSeq(signed, ";") {
		if name = http.CanonicalHeaderKey(name); name != "X-Amz-Security-Token" && name != "X-Amz-Date" && name != "Host" {
			expected.Header[name] = r.Header[name]
		}
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), credentials, expected, hex.EncodeToString(sum[:]), parts[3], parts[2], at); err != nil ||
		expected.Header.Get("Authorization") != given {
		return failed
	}
	return nil
}
