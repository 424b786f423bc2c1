package driver

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

const (
	// leastRun is how many bytes of a text and of a secret have to be equal, one after the other, to
	// be redacted. A shorter secret is redacted as a whole.
	leastRun = 16
	// leastSecret is how many bytes a secret has at least: a shorter one would be found in many words.
	leastSecret = 6
	// mostRedacted is how many bytes of a text are kept: more than are shown of it, see Clean.
	mostRedacted = 8 << 10
	// redactedText stands for what was removed.
	redactedText = "[redacted]"
)

// redactor removes secrets from texts: each run of at least leastRun bytes that occurs in the user
// data or in a value of the Secret, as it is or in base64, hexadecimal digits, URL encoding or a
// string of JSON; and each shorter value as a whole. A cloud may echo a part of what it was sent.
// Not found are secrets in other encodings, and runs that are shorter.
//
// What identifies the machine is not removed although the user data may name it, and neither is the
// URL of a cloud without user and query.
type redactor struct {
	secret   map[string][]byte
	userData []byte
	public   []string
}

// redact returns a text of at most mostRedacted bytes without secrets.
func (r redactor) redact(text string) string {
	if text == "" || len(r.secret) == 0 && len(r.userData) == 0 {
		return text
	}
	if len(text) > mostRedacted {
		text = strings.ToValidUTF8(text[:mostRedacted], "") + "…"
	}
	secrets := r.secrets()
	marked := runsIn(text, secrets, r.public)
	for _, secret := range secrets {
		if len(secret) < leastRun {
			mark(marked, text, secret)
		}
	}
	var clean strings.Builder
	for i := range len(text) {
		switch {
		case !marked[i]:
			clean.WriteByte(text[i])
		case i == 0 || !marked[i-1]:
			clean.WriteString(redactedText)
		}
	}
	return clean.String()
}

// secrets returns all secrets, in all encodings.
func (r redactor) secrets() (all []string) {
	values := []string{strings.TrimSpace(string(r.userData))}
	for _, value := range r.secret {
		if text := strings.TrimSpace(string(value)); !isEndpoint(text) {
			values = append(values, text)
		}
	}
	for _, value := range values {
		if len(value) >= leastSecret {
			all = append(all, encodings(value)...)
		}
	}
	return all
}

// isEndpoint reports whether a value is the URL of a cloud, without anything secret in it.
func isEndpoint(value string) bool {
	u, err := url.Parse(value)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// encodings returns a secret in each of the encodings, once. In base64 the encoding of a text
// depends on its position in what is encoded, so there are three.
func encodings(value string) []string {
	quoted, _ := json.Marshal(value) // a string has no error
	all := []string{value}
	for _, text := range []string{string(quoted[1 : len(quoted)-1]), url.QueryEscape(value), url.PathEscape(value)} {
		if text != value {
			all = append(all, text)
		}
	}
	all = append(all, hex.EncodeToString([]byte(value)))
	for skipped := range 3 {
		if len(value)-skipped < leastSecret {
			break
		}
		encoded := base64.RawStdEncoding.EncodeToString([]byte(value[skipped:]))
		all = append(all, encoded)
		if other := base64.RawURLEncoding.EncodeToString([]byte(value[skipped:])); other != encoded {
			all = append(all, other)
		}
	}
	return all
}

// runsIn returns, for each byte of a text, whether it is in a run of leastRun bytes of a secret.
// Runs that overlap a public text do not count.
func runsIn(text string, secrets, public []string) []bool {
	marked := make([]bool, len(text))
	known := make([]bool, len(text))
	for _, name := range public {
		if len(name) >= leastSecret {
			mark(known, text, name)
		}
	}
	var begins [1 << 16]bool // hashes of the beginnings of the text's runs: user data is long, and has few of them
	for i := 0; i+leastRun <= len(text); i++ {
		begins[hash(text[i:])] = true
	}
	var places map[string][]int // of the text's runs, when they are needed: most texts have nothing of a secret
	for _, secret := range secrets {
		for i := 0; i+leastRun <= len(secret); i++ {
			if !begins[hash(secret[i:])] {
				continue
			}
			if places == nil {
				places = placesOf(text, known)
			}
			for _, at := range places[secret[i:i+leastRun]] {
				for j := range leastRun {
					marked[at+j] = true
				}
			}
		}
	}
	return marked
}

// placesOf returns where each run of a text begins, without those that overlap what is known.
func placesOf(text string, known []bool) map[string][]int {
	places := map[string][]int{}
	for i := 0; i+leastRun <= len(text); i++ {
		if run := text[i : i+leastRun]; !slices.Contains(known[i:i+leastRun], true) {
			places[run] = append(places[run], i)
		}
	}
	return places
}

// hash returns a hash of the first four bytes of a text.
func hash(text string) uint16 {
	const factor = 2654435761 // Knuth's multiplicative hashing
	return uint16((uint32(text[0]) | uint32(text[1])<<8 | uint32(text[2])<<16 | uint32(text[3])<<24) * factor >> 16)
}

// mark marks each occurrence of a secret in a text.
func mark(marked []bool, text, secret string) {
	for from := 0; ; {
		at := strings.Index(text[from:], secret)
		if at < 0 {
			return
		}
		for j := range len(secret) {
			marked[from+at+j] = true
		}
		from += at + len(secret)
	}
}
