package planted

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Secrets are secrets by what they are, such as "user data".
type Secrets map[string]string

// Find returns where a text has a secret: what it is, in which form, and some text before it.
func (s Secrets) Find(text string) (found []string) {
	const before = 120
	for _, name := range slices.Sorted(maps.Keys(s)) {
		all := forms(s[name])
		for _, form := range slices.Sorted(maps.Keys(all)) {
			if at := strings.Index(text, all[form]); at >= 0 {
				found = append(found, fmt.Sprintf("%s (%s) after %q", name, form, text[max(at-before, 0):at]))
			}
		}
	}
	return found
}

// Echo returns a text with all secrets in all forms, as a careless cloud may return it.
func Echo(secrets ...string) string {
	var echoed []string
	for _, secret := range secrets {
		for form, text := range forms(secret) {
			echoed = append(echoed, form+"="+text)
		}
	}
	slices.Sort(echoed)
	return "cannot use " + strings.Join(echoed, ", ")
}

// forms returns the forms of a secret by their names. In base64 the text depends on the position of
// the secret in what is encoded; its first and last characters depend on what is around it.
func forms(secret string) map[string]string {
	quoted := strconv.Quote(secret)
	all := map[string]string{
		"raw":    secret,
		"quoted": quoted[1 : len(quoted)-1],
		"query":  url.QueryEscape(secret),
		"path":   url.PathEscape(secret),
		"hex":    hex.EncodeToString([]byte(secret)),
	}
	for skipped := range 3 {
		if len(secret) <= skipped+1 {
			break
		}
		whole := (len(secret) - skipped) / 3 * 3 // what follows does not change these characters
		part := []byte(secret[skipped : skipped+whole])
		all[fmt.Sprint("base64 ", skipped)] = base64.RawStdEncoding.EncodeToString(part)
		all[fmt.Sprint("base64url ", skipped)] = base64.RawURLEncoding.EncodeToString(part)
	}
	return all
}
