package httpclient

import (
	"strings"
	"testing"
)

func TestChooseAnEndpoint(t *testing.T) {
	allowed, err := ParseEndpoints([]string{"http://cloud:8080", "https://Cloud.Example.ORG/v2/", "http://[FD00::1]"})
	if err != nil {
		t.Fatal(err)
	}
	for configured, want := range map[string]string{
		"":                                   "http://cloud:8080",
		"http://cloud:8080":                  "http://cloud:8080",
		"http://cloud:8080/":                 "http://cloud:8080",
		"HTTP://CLOUD:8080":                  "http://cloud:8080",
		"https://cloud.example.org/v2":       "https://cloud.example.org:443/v2",
		"https://cloud.example.org:443/v2//": "https://cloud.example.org:443/v2",
		"http://[fd00::1]:80":                "http://[fd00::1]:80",

		"https://cloud:8080":                      "",
		"http://cloud":                            "",
		"http://cloud:8081":                       "",
		"http://cloud:8080/v1":                    "",
		"http://cloud:8080/..":                    "",
		"http://cloud:8080%2f":                    "",
		"http://cloud.:8080":                      "",
		"http://cloud:8080.evil.org":              "",
		"http://evil.org/http://cloud:8080":       "",
		"http://evil.org#@cloud:8080":             "",
		"http://evil.org\\@cloud:8080":            "",
		"http://me:secret@cloud:8080":             "",
		"http://@cloud:8080":                      "",
		"http://cloud:8080?":                      "",
		"http://cloud:8080?a=b":                   "",
		"http://cloud:8080#f":                     "",
		"https://cloud.example.org":               "",
		"https://cloud.example.org/v2/x":          "",
		"https://cloud.example.org/V2":            "",
		"https://cloud.example.org/%76%32":        "",
		"http://169.254.169.254/latest/meta-data": "",
		"file:///etc/passwd":                      "",
		"gopher://cloud:8080":                     "",
		"//cloud:8080":                            "",
		"cloud:8080":                              "",
		"http://":                                 "",
		"http://:8080":                            "",
		"\u0020http://cloud:8080":                 "",
		"http://cloud:8080\n":                     "",
		"http://cl\x00oud:8080":                   "",
	} {
		got, err := allowed.Choose(configured)
		if (err == nil) != (want != "") || got != nil && got.String() != want {
			t.Errorf("%q: %v, %v; want %q", configured, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error has the password: %v", configured, err)
		}
	}
}

func TestNoEndpoints(t *testing.T) {
	for _, configured := range []string{"", "http://cloud"} {
		if got, err := (Endpoints{}).Choose(configured); err == nil {
			t.Errorf("%q: %v of an empty list", configured, got)
		}
	}
	for _, bad := range []string{"", "cloud", "http://", "http://a b", "ftp://cloud", "http://u@cloud"} {
		if _, err := ParseEndpoints([]string{"http://good", bad}); err == nil || !strings.Contains(err.Error(), "https://host:port") {
			t.Errorf("%q: %v, want an error with what is expected", bad, err)
		}
	}
}

func FuzzChoose(f *testing.F) {
	for _, seed := range []string{"http://cloud:80", "http://cloud%3a80", "HTTP://cloud#", "http://u@cloud"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, configured string) {
		allowed, err := ParseEndpoints([]string{"http://cloud"})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := allowed.Choose(configured); err == nil && got.String() != "http://cloud:80" {
			t.Errorf("%q chose %s", configured, got)
		}
	})
}
