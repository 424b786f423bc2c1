package planted

import (
	"encoding/base64"
	"net/url"
	"testing"
)

func TestFind(t *testing.T) {
	const secret = "a+b/c d=é\"f"
	s := Secrets{"it": secret}
	for name, text := range map[string]string{
		"raw": "x" + secret + "y", "base64": base64.StdEncoding.EncodeToString([]byte(secret)),
		"in base64": base64.StdEncoding.EncodeToString([]byte("xx" + secret + "yyyy")),
		"after one": base64.URLEncoding.EncodeToString([]byte("x" + secret)), "query": url.QueryEscape(secret), "path": url.PathEscape(secret),
		"echo": Echo("other", secret),
	} {
		if len(s.Find(text)) == 0 {
			t.Errorf("%s: not found in %q", name, text)
		}
	}
	if found := s.Find("a+b and nothing else"); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}
