package lifecycle

import (
	"bytes"
	"net/url"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// tokenLength is the length of a bootstrap token, "id.secret". No character of one is changed by
// URL encoding.
const tokenLength = 6 + 1 + 16

// userDataSize returns how many bytes the user data has once its placeholders, plain and
// URL-encoded, are filled in. It is known before there is a token, so that none is created for a VM
// that no cloud takes.
func userDataSize(w World) int {
	size := len(w.Secret.UserData)
	fill := func(placeholder string, plain, encoded int) {
		size += bytes.Count(w.Secret.UserData, []byte(placeholder)) * (plain - len(placeholder))
		escaped := url.QueryEscape(placeholder)
		size += bytes.Count(w.Secret.UserData, []byte(escaped)) * (encoded - len(escaped))
	}
	name := w.Machine.Name
	fill(v1alpha1.PlaceholderMachineName, len(name), len(url.QueryEscape(name)))
	if !w.NoTarget {
		fill(v1alpha1.PlaceholderBootstrapToken, tokenLength, tokenLength)
	}
	for placeholder, value := range w.Config.Values {
		fill(placeholder, len(value), len(url.QueryEscape(value)))
	}
	return size
}

// wantsConfig reports whether the user data has a placeholder of machine configuration, plain or
// URL-encoded.
func wantsConfig(userData []byte) bool {
	return slices.ContainsFunc(v1alpha1.MachineConfigPlaceholders(), func(placeholder string) bool { return hasPlaceholder(userData, placeholder) })
}

func hasPlaceholder(userData []byte, placeholder string) bool {
	return bytes.Contains(userData, []byte(placeholder)) || bytes.Contains(userData, []byte(url.QueryEscape(placeholder)))
}
