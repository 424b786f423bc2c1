package access

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// kubeconfig has the parts of a kubeconfig that name others. What they contain is read by name, so
// that nothing is missed.
type kubeconfig struct {
	CurrentContext string  `yaml:"current-context"`
	Contexts       []entry `yaml:"contexts"`
	Clusters       []entry `yaml:"clusters"`
	Users          []entry `yaml:"users"`
}

// entry is a named part.
type entry struct {
	Name    string         `yaml:"name"`
	Context map[string]any `yaml:"context"`
	Cluster map[string]any `yaml:"cluster"`
	User    map[string]any `yaml:"user"`
}

// Fields of a user that are refused, with what to do instead. Any other field that is not known is
// refused, too.
var refused = map[string]string{ //nolint:gosec // names of fields, and no credentials
	"exec":                     "no program is run for a kubeconfig; use a token or a client certificate",
	"auth-provider":            "no program is run for a kubeconfig; use a token or a client certificate",
	"client-certificate":       "no file is read for a kubeconfig; use client-certificate-data",
	"client-key":               "no file is read for a kubeconfig; use client-key-data",
	"certificate-authority":    "no file is read for a kubeconfig; use certificate-authority-data",
	"tokenFile":                "no file is read for a kubeconfig; use token, or name the Secret with the token by --target-token-secret",
	"username":                 "API servers accept no passwords; use a token or a client certificate",
	"password":                 "API servers accept no passwords; use a token or a client certificate",
	"as":                       "impersonation is not used; use the credentials of the user itself",
	"as-uid":                   "impersonation is not used; use the credentials of the user itself",
	"as-groups":                "impersonation is not used; use the credentials of the user itself",
	"as-user-extra":            "impersonation is not used; use the credentials of the user itself",
	"insecure-skip-tls-verify": "the certificate of the server is always verified; use certificate-authority-data",
}

// readKubeconfig reads what the current context of a kubeconfig names.
func readKubeconfig(of Secret, token *Secret) (Access, error) {
	content, err := text(of, KeyKubeconfig)
	if err != nil {
		return Access{}, err
	}
	var document yaml.Node
	var all kubeconfig
	err = yaml.Unmarshal([]byte(content), &document)
	if err == nil {
		if err := checkPart(&document); err != nil {
			return Access{}, fmt.Errorf("key %s: %w", KeyKubeconfig, err)
		}
		err = document.Decode(&all)
	}
	if err != nil {
		// The error may have a token.
		return Access{}, fmt.Errorf("key %s: expected a kubeconfig in YAML or JSON, got something else", KeyKubeconfig)
	}
	a, err := all.read(token)
	if err != nil {
		return Access{}, fmt.Errorf("key %s: %w", KeyKubeconfig, err)
	}
	return a, nil
}

// maxFields is the maximum number of fields of one part of a kubeconfig; the largest known has ten.
const maxFields = 100

// checkPart refuses what is much larger when it is decoded: an alias stands for another part, and
// the decoder compares each field of a part with each other one and reports every pair of equal
// ones.
func checkPart(part *yaml.Node) error {
	switch part.Kind { //nolint:exhaustive // the others have nothing but their content
	case yaml.AliasNode:
		return errors.New("expected a kubeconfig without aliases of YAML (*name), got one; write each value out")
	case yaml.MappingNode: // its content is a name, a value, a name, a value
		names := map[string]bool{}
		for i := 0; i < len(part.Content); i += 2 {
			names[part.Content[i].Value] = true
		}
		if n := len(part.Content) / 2; n > maxFields || len(names) < n {
			return fmt.Errorf("expected parts with at most %d fields, each once, got one with %d fields, of which %d have different names",
				maxFields, n, len(names))
		}
	}
	for _, inner := range part.Content {
		if err := checkPart(inner); err != nil {
			return err
		}
	}
	return nil
}

func (k kubeconfig) read(token *Secret) (a Access, err error) {
	context, err := named("context", k.CurrentContext, k.Contexts, func(e entry) map[string]any { return e.Context })
	if err != nil {
		return a, fmt.Errorf("current-context: %w", err)
	}
	clusterName, _ := context["cluster"].(string)
	userName, _ := context["user"].(string)
	cluster, err := named("cluster", clusterName, k.Clusters, func(e entry) map[string]any { return e.Cluster })
	if err != nil {
		return a, err
	}
	user, err := named("user", userName, k.Users, func(e entry) map[string]any { return e.User })
	if err != nil {
		return a, err
	}
	if file, _ := user["tokenFile"].(string); file != "" && token != nil {
		value, err := text(*token, KeyToken)
		if err != nil {
			return a, fmt.Errorf("Secret %s: %w", token.Name, err)
		}
		if value == "" {
			return a, fmt.Errorf("Secret %s: expected the key %s, got %s", token.Name, KeyToken, listed(token.Data))
		}
		delete(user, "tokenFile")
		user["token"] = value
	}
	ca, cert, key := "certificate-authority-data", "client-certificate-data", "client-key-data"
	if err := fields(fmt.Sprintf("cluster %q", clusterName), cluster, map[string]*string{
		"server": &a.Server, "tls-server-name": &a.ServerName, ca: &a.CA, "proxy-url": &a.Proxy,
	}); err != nil {
		return a, err
	}
	if err := fields(fmt.Sprintf("user %q", userName), user, map[string]*string{
		"token": &a.Token, cert: &a.ClientCert, key: &a.ClientKey,
	}); err != nil {
		return a, err
	}
	for field, value := range map[string]*string{ca: &a.CA, cert: &a.ClientCert, key: &a.ClientKey} {
		decoded, err := base64.StdEncoding.DecodeString(*value)
		if err != nil {
			return a, fmt.Errorf("%s: expected base64, got something else", field)
		}
		*value = string(decoded)
	}
	return a, nil
}

// named returns the content of the only part of a name.
func named(kind, name string, all []entry, content func(entry) map[string]any) (map[string]any, error) {
	var found []map[string]any
	for _, e := range all {
		if e.Name == name {
			found = append(found, content(e))
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("expected one %s %q, got %d", kind, name, len(found))
	}
	return found[0], nil
}

// fields sets what a part has. Errors: a field that is refused or not known, and one that is no
// string.
func fields(part string, has map[string]any, known map[string]*string) error {
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if isEmpty(has[name]) || name == "extensions" || name == "disable-compression" {
			continue
		}
		field, ok := known[name]
		if !ok {
			if why := refused[name]; why != "" {
				return fmt.Errorf("%s: %s is refused: %s", part, name, why)
			}
			return fmt.Errorf("%s: %s is refused: it is no field that is known", part, name)
		}
		value, ok := has[name].(string)
		if !ok {
			return fmt.Errorf("%s: %s: expected a string", part, name)
		}
		*field = value
	}
	return nil
}

// isEmpty reports whether a field has the value that it has without being set.
func isEmpty(value any) bool {
	return value == nil || value == "" || value == false
}
