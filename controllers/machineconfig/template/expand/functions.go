package expand

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	texttemplate "text/template"

	corev1 "k8s.io/api/core/v1"
)

// functionNames are the functions of this package that templates can call.
var functionNames = []string{"b64", "get", "has", "indent", "join", "quote", "sha256", "toJSON"}

// maxIndent is how far indent can indent.
const maxIndent = 64

// functions returns the functions, which take their results from the budget.
func (b *budget) functions() texttemplate.FuncMap {
	return texttemplate.FuncMap{
		stepName: b.step,
		// b64 TEXT: base64.
		"b64": func(text string) (string, error) {
			return b.produced(base64.StdEncoding.EncodeToString([]byte(text)))
		},
		// get MAP KEY DEFAULT: the value of a key, and the default if the map does not have it.
		"get": func(values map[string]any, key string, byDefault any) any {
			if value, has := values[key]; has {
				return value
			}
			return byDefault
		},
		// has MAP KEY: whether the map has the key.
		"has": func(values map[string]any, key string) bool {
			_, has := values[key]
			return has
		},
		// indent N TEXT: all lines but the first indented by N spaces, for block scalars of YAML.
		"indent": func(n int, text string) (string, error) {
			if n < 0 || n > maxIndent {
				return "", fmt.Errorf("expected an indent from 0 to %d, got %d", maxIndent, n)
			}
			if size := len(text) + n*strings.Count(text, "\n"); size > maxResult {
				return "", errTooMuch
			}
			return b.produced(strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", n)))
		},
		// join SEPARATOR LIST: the values of a list, which are strings.
		"join": func(separator string, list []any) (string, error) {
			texts := make([]string, 0, len(list))
			size := 0
			for _, value := range list {
				text, ok := value.(string)
				if !ok {
					return "", errors.New("expected a list of strings")
				}
				if size += len(text) + len(separator); size > maxResult {
					return "", errTooMuch
				}
				texts = append(texts, text)
			}
			return b.produced(strings.Join(texts, separator))
		},
		// quote TEXT: a string of JSON, which is one of YAML.
		"quote": func(text string) (string, error) { return b.json(text) },
		// sha256 TEXT: the hash in hexadecimal digits.
		"sha256": func(text string) (string, error) {
			sum := sha256.Sum256([]byte(text))
			return b.produced(hex.EncodeToString(sum[:]))
		},
		// toJSON VALUE: the value as JSON, which is YAML.
		"toJSON": func(value any) (string, error) { return b.json(value) },
	}
}

func (b *budget) json(value any) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", errors.New("expected a value that JSON can express")
	}
	return b.produced(strings.TrimSuffix(out.String(), "\n"))
}

// valuesOf returns the values that templates are rendered with. All are values of JSON: no template
// can call a method. Errors: a *Error.
func valuesOf(w World) (map[string]any, error) {
	spec := w.Config.Spec
	invalid := func(fact string) error { return &Error{Template: "of all names", Fact: fact} }
	own, err := decode(spec.Values.Raw)
	if err != nil {
		return nil, invalid("spec.values of the ControllerConfig must be an object")
	}
	bundles := make([]any, 0, len(spec.CABundles))
	for _, bundle := range spec.CABundles {
		bundles = append(bundles, map[string]any{"Name": bundle.Name, "PEM": bundle.PEM})
	}
	dns := make([]any, 0, len(spec.ClusterDNS))
	for _, address := range spec.ClusterDNS {
		dns = append(dns, address)
	}
	images := map[string]any{}
	for name, image := range spec.Images {
		images[name] = image
	}
	secret := ""
	if w.PullSecret != "" {
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(w.PullSecret)) != nil {
			return nil,
				invalid("the Secret that spec.pullSecretRef of the ControllerConfig names must have JSON under " + corev1.DockerConfigJsonKey)
		}
		secret = compact.String()
	}
	return map[string]any{
		"Role": "", "ClusterDNS": dns, "ClusterDomain": spec.ClusterDomain, "CABundles": bundles, "Images": images, "OSImageURL": spec.OSImageURL,
		"Values": own, "PullSecret": secret,
	}, nil
}

// decode returns an object of JSON, in which numbers are integers where they can be.
func decode(document []byte) (map[string]any, error) {
	document = bytes.TrimSpace(document)
	if len(document) == 0 || string(document) == "null" {
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value map[string]any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return plain(value).(map[string]any), nil //nolint:forcetypeassert,errcheck // it returns the type that it gets
}

// plain replaces numbers by integers where they can be, and by floats elsewhere.
func plain(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = plain(value[key])
		}
	case []any:
		for i := range value {
			value[i] = plain(value[i])
		}
	case json.Number:
		if n, err := value.Int64(); err == nil {
			return int(n)
		}
		if f, err := value.Float64(); err == nil {
			return f
		}
		return value.String()
	}
	return value
}
