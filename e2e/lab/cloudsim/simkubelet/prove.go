package simkubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
)

// NewProver returns a Config.Prove for the cluster of cfg. It reads the user of the token from the
// API server; the credentials in cfg are not used.
func NewProver(cfg *rest.Config) (func(ctx context.Context, token string) error, error) {
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(cfg))
	if err != nil {
		return nil, fmt.Errorf("create a client without credentials: %w", err)
	}
	url := strings.TrimSuffix(cfg.Host, "/") + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	const body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	return func(ctx context.Context, token string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
		if err != nil {
			return fmt.Errorf("create the request: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("reach the API server: %w", err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			return fmt.Errorf("read the API server's answer: %w", err)
		}
		return checkIdentity(token, resp.StatusCode, answer)
	}, nil
}

// checkIdentity reports whether the API server authenticates the bearer as the bootstrap token's
// user.
func checkIdentity(token string, code int, answer []byte) error {
	id, _, _ := strings.Cut(token, ".")
	if code != http.StatusCreated {
		return fmt.Errorf("token %s.…: the API server answered %d %s", id, code, http.StatusText(code))
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return fmt.Errorf("read the API server's answer: %w", err)
	}
	if user, want := review.Status.UserInfo.Username, "system:bootstrap:"+id; user != want {
		return fmt.Errorf("token %s.…: expected the API server to authenticate its bearer as %q, got %q", id, want, user)
	}
	return nil
}
