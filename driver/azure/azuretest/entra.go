package azuretest

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// tokenLife is how long a token is valid, in seconds: longer than a test.
const tokenLife = 24 * 60 * 60

// serveToken answers as Entra ID.
func (c *Cloud) serveToken(w http.ResponseWriter, r *http.Request, body []byte) {
	tenant, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	authority := origin(r) + "/" + tenant
	switch rest {
	case "discovery/instance": // which clients ask first, for the tenant "common"
		writeJSON(http.StatusOK, map[string]any{
			"api-version": "1.1", "tenant_discovery_endpoint": origin(r) + "/common/v2.0/.well-known/openid-configuration",
			"metadata": []any{map[string]any{"preferred_network": r.Host, "preferred_cache": r.Host, "aliases": []string{r.Host}}},
		})(w)
	case "v2.0/.well-known/openid-configuration":
		writeJSON(http.StatusOK, map[string]any{
			"issuer":                 authority + "/v2.0",
			"authorization_endpoint": authority + "/oauth2/v2.0/authorize",
			"token_endpoint":         authority + "/oauth2/v2.0/token",
		})(w)
	case "oauth2/v2.0/token":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			http.Error(w, "the form cannot be read", http.StatusBadRequest)
			return
		}
		c.issue(form)(w)
	default:
		http.NotFound(w, r)
	}
}

// issue issues a token for a client secret, or for the assertion of a workload identity that is as
// long as one.
func (c *Cloud) issue(form url.Values) func(http.ResponseWriter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	secret, known := c.cfg.Secrets[form.Get("client_id")]
	valid := known && (form.Get("client_secret") == secret || form.Get("client_assertion") == secret)
	if !valid || c.fault == Unauthorized {
		return writeJSON(http.StatusUnauthorized, map[string]any{
			"error":             "invalid_client",
			"error_description": "AADSTS7000215: Invalid client secret provided: " + form.Get("client_secret"),
			"error_codes":       []int{7000215},
		})
	}
	c.created++
	c.stats.Tokens++
	token := "token-" + strconv.Itoa(c.created)
	c.tokens[token] = true
	return writeJSON(http.StatusOK, map[string]any{
		"token_type": "Bearer", "expires_in": tokenLife, "ext_expires_in": tokenLife, "access_token": token,
	})
}
