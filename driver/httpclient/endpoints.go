package httpclient

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Endpoints are the URLs of clouds that a fleet may send requests and credentials to. The first is
// the default. The zero value allows none.
type Endpoints struct{ allowed []*url.URL }

// ParseEndpoints returns the allow-list of these URLs. Errors: a text that is no http or https URL
// of a host, or that has more than scheme, host, port and path.
func ParseEndpoints(texts []string) (Endpoints, error) {
	var e Endpoints
	for _, text := range texts {
		endpoint, err := parse(text)
		if err != nil {
			return Endpoints{}, err
		}
		e.allowed = append(e.allowed, endpoint)
	}
	return e, nil
}

// Choose returns the endpoint of the list that a class or a Secret names, or the default for "".
// Scheme, host, port and path have to be the same, so that no spelling of a URL refers to another
// server than the one that was allowed. Errors: an empty list, a text that is no endpoint, and one
// that is not in the list.
func (e Endpoints) Choose(text string) (*url.URL, error) {
	if len(e.allowed) == 0 {
		return nil, errors.New("no endpoint is allowed; the flags of the fleet list those that are")
	}
	if text == "" {
		return e.allowed[0], nil
	}
	configured, err := parse(text)
	if err != nil {
		return nil, err
	}
	for _, allowed := range e.allowed {
		if *configured == *allowed {
			return allowed, nil
		}
	}
	return nil,
		fmt.Errorf("the endpoint %s is not one of those that the flags of the fleet allow; remove it, or ask the fleet's operator to allow it",
			configured)
}

// parse reads an endpoint in a normal form: lower case, the port always there, no slash at the end.
func parse(text string) (*url.URL, error) {
	wrong := func(what string) error {
		return fmt.Errorf("an endpoint with %s; expected http://host:port or https://host:port", what)
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, wrong("a URL that cannot be parsed") // the parser's error has the text, in which there may be a password
	}
	ports := map[string]string{"http": "80", "https": "443"}
	port, known := ports[u.Scheme]
	switch {
	case !known:
		return nil, wrong("another scheme than http and https")
	case u.Hostname() == "":
		return nil, wrong("no host")
	case u.User != nil:
		return nil, wrong("a user or password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, wrong("a query or fragment")
	case strings.Contains(u.EscapedPath(), "%"):
		return nil, wrong("an encoded path")
	}
	if own := u.Port(); own != "" {
		port = own
	}
	host := strings.ToLower(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return &url.URL{Scheme: u.Scheme, Host: host + ":" + port, Path: strings.TrimRight(u.Path, "/")}, nil
}
