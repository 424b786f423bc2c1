package azure

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The keys of the Secret. The second of two is the older one, and counts when the first is missing.
const (
	SecretClientID       = "clientID"
	SecretClientSecret   = "clientSecret"
	SecretSubscriptionID = "subscriptionID"
	SecretTenantID       = "tenantID"
	// SecretTokenFile is the file with a workload identity token, instead of a client secret. It is in
	// Config.TokenDirectory.
	SecretTokenFile = "workloadIdentityTokenFile"

	oldClientID       = "azureClientId"
	oldClientSecret   = "azureClientSecret"
	oldSubscriptionID = "azureSubscriptionId"
	oldTenantID       = "azureTenantId"
)

// credentials are those of a Secret. They are comparable: the same content is the same account.
type credentials struct {
	cloud, subscription, tenant, client string
	secret, tokenFile                   string // one of them
}

// parseSecret reads and validates credentials. tokens is the directory that a token file has to be
// in.
func parseSecret(data map[string][]byte, cloud, tokens string) (credentials, error) {
	first := func(keys ...string) string {
		for _, key := range keys {
			if text := strings.TrimSpace(string(data[key])); text != "" {
				return text
			}
		}
		return ""
	}
	c := credentials{
		cloud: cloud, subscription: first(SecretSubscriptionID, oldSubscriptionID), tenant: first(SecretTenantID, oldTenantID),
		client: first(SecretClientID, oldClientID), secret: first(SecretClientSecret, oldClientSecret), tokenFile: first(SecretTokenFile),
	}
	at := field.NewPath("data")
	errs := slices.Concat(
		identifier(at.Key(SecretSubscriptionID), c.subscription), identifier(at.Key(SecretTenantID), c.tenant),
		identifier(at.Key(SecretClientID), c.client),
	)
	switch {
	case c.secret == "" && c.tokenFile == "":
		errs = append(errs, field.Required(at.Key(SecretClientSecret), "or "+SecretTokenFile))
	case c.secret != "" && c.tokenFile != "":
		errs = append(errs, field.Forbidden(at.Key(SecretTokenFile), "together with "+SecretClientSecret+"; expected one of them"))
	case c.tokenFile != "":
		// A client that can write the Secret chooses the file, and must not have other files of this
		// process sent to the cloud.
		if in, err := filepath.Rel(tokens, filepath.Clean(c.tokenFile)); tokens == "" || err != nil || !filepath.IsLocal(in) || in == "." {
			errs = append(errs,
				field.Forbidden(at.Key(SecretTokenFile), fmt.Sprintf("expected a file in %q, as the fleet's operator has configured", tokens)))
		}
	}
	return c, errs.ToAggregate()
}

// identifier returns what is wrong with the ID of a subscription, tenant or application, which
// becomes a part of paths. Its value is not shown: it may be a secret at the wrong key.
func identifier(at *field.Path, text string) field.ErrorList {
	if errs := required(at, text); errs != nil {
		return errs
	}
	if !isName(text) {
		return field.ErrorList{field.Invalid(at, "…", "expected letters, digits, - and .")}
	}
	return nil
}
