package access

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Keys of a Secret. A Secret has either a kubeconfig, or a server with its CA and credentials.
const (
	KeyKubeconfig = "kubeconfig"
	KeyServer     = "server"
	KeyCA         = "ca.crt"
	KeyToken      = "token"
	KeyClientCert = "tls.crt"
	KeyClientKey  = "tls.key"
)

// MaxBytes is the maximum size of one value of a Secret that is read, in bytes. A kubeconfig with a
// bundle of several CAs has about 10 kB.
const MaxBytes = 64 << 10

// maxKey is the maximum size of a private key, in bytes: an RSA key of 4096 bits has 3.3 kB. A
// larger one takes a processor up to minutes of each connection.
const maxKey = 4 << 10

// Access describes how a cluster is reached. Read returns valid ones.
type Access struct {
	// Server is the URL of the API server: https, host and port, and the path if there is one.
	Server string
	// ServerName is the name that the certificate of the server must have; "" means the host of
	// Server.
	ServerName string
	// CA is the bundle of certificates, in PEM, that the certificate of the server is verified with.
	CA string
	// Token is the bearer token; "" with a client certificate.
	Token string
	// ClientCert and ClientKey are the client certificate in PEM; "" with a token.
	ClientCert, ClientKey string
	// Proxy is the URL of an HTTP proxy; "" means none.
	Proxy string
}

// SameCluster reports whether two ways lead to the same server, whose certificate is verified in
// the same way: they differ in credentials only.
func (a Access) SameCluster(b Access) bool {
	return a.Cluster() == b.Cluster()
}

// Cluster returns a text that is the same for two ways of SameCluster, and for no others.
func (a Access) Cluster() string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%q %q %q %q", a.Server, a.ServerName, a.CA, a.Proxy)))
	return hex.EncodeToString(sum[:])
}

// Trim removes from the data of a Secret what Read does not use, so that it can be kept in memory.
// A value that is too large is cut, and stays too large for Read.
func Trim(data map[string][]byte) map[string][]byte {
	trimmed := map[string][]byte{}
	for _, key := range []string{KeyKubeconfig, KeyServer, KeyCA, KeyToken, KeyClientCert, KeyClientKey} {
		if value, ok := data[key]; ok {
			trimmed[key] = slices.Clone(value[:min(len(value), MaxBytes+1)])
		}
	}
	return trimmed
}

// Secret is a Secret of the namespace whose target is read.
type Secret struct {
	Name string
	Data map[string][]byte
}

// Policy describes what every Access must fulfil.
type Policy struct {
	// Refused are networks that no server and no proxy may be in.
	Refused []netip.Prefix
}

// Read returns the Access that a Secret of a namespace describes. token is the Secret whose token
// replaces the token file of a kubeconfig, as Gardener's resource manager renews it; nil means that
// there is none, and then a kubeconfig with a token file is refused.
func (p Policy) Read(namespace string, of Secret, token *Secret) (a Access, err error) {
	if _, ok := of.Data[KeyKubeconfig]; ok {
		a, err = readKubeconfig(of, token)
	} else {
		a, err = readParts(of)
	}
	if err != nil {
		return Access{}, fmt.Errorf("Secret %s: %w", of.Name, err)
	}
	if err := p.check(namespace, &a); err != nil {
		return Access{}, fmt.Errorf("Secret %s: %w", of.Name, err)
	}
	return a, nil
}

// readParts reads a Secret with a key for each part.
func readParts(of Secret) (Access, error) {
	if len(of.Data[KeyServer]) == 0 {
		return Access{}, fmt.Errorf("expected the key %s or %s, got %s", KeyKubeconfig, KeyServer, listed(of.Data))
	}
	var a Access
	for key, field := range map[string]*string{
		KeyServer: &a.Server, KeyCA: &a.CA, KeyToken: &a.Token, KeyClientCert: &a.ClientCert, KeyClientKey: &a.ClientKey,
	} {
		value, err := text(of, key)
		if err != nil {
			return Access{}, err
		}
		*field = value
	}
	return a, nil
}

// text returns the value of a key, "" for none. Errors: one that is too large.
func text(of Secret, key string) (string, error) {
	if len(of.Data[key]) > MaxBytes {
		return "", fmt.Errorf("key %s: expected at most %d bytes, got more", key, MaxBytes)
	}
	return strings.TrimSpace(string(of.Data[key])), nil
}

// listed returns the names of the keys of a Secret, of which there may be many.
func listed(data map[string][]byte) string {
	const most = 5
	keys := slices.Sorted(maps.Keys(data))
	switch {
	case len(keys) == 0:
		return "no key"
	case len(keys) > most:
		return fmt.Sprintf("%s and %d others", strings.Join(keys[:most], ", "), len(keys)-most)
	}
	return strings.Join(keys, ", ")
}

// check returns an error if an Access cannot be used, and completes its server.
func (p Policy) check(namespace string, a *Access) error {
	server, err := p.checkURL("server", a.Server, "https")
	if err != nil {
		return err
	}
	if server.RawQuery != "" || server.Fragment != "" {
		return fmt.Errorf("server: expected a URL without a query and a fragment")
	}
	given, err := inNamespace("server", namespace, server)
	if err != nil {
		return err
	}
	a.Server, a.ServerName = server.String(), cmp.Or(a.ServerName, given)
	if a.Proxy != "" {
		proxy, err := p.checkURL("proxy-url", a.Proxy, "http", "https")
		if err != nil {
			return err
		}
		if _, err := inNamespace("proxy-url", namespace, proxy); err != nil {
			return err
		}
		a.Proxy = proxy.String()
	}
	switch hasToken, hasCert := a.Token != "", a.ClientCert != "" || a.ClientKey != ""; {
	case a.CA == "":
		return fmt.Errorf("expected the certificate of the CA of the server (certificate-authority-data or %s), got none", KeyCA)
	case !hasToken && !hasCert:
		return fmt.Errorf("expected a token or a client certificate, got neither")
	case hasCert && (a.ClientCert == "" || a.ClientKey == ""):
		return fmt.Errorf("expected a client certificate and its key, got one of the two")
	case len(a.ClientKey) > maxKey:
		return fmt.Errorf("client key: expected at most %d bytes, got more; use a key of at most 4096 bits", maxKey)
	case strings.ContainsFunc(a.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Errorf("token: expected printable characters without spaces")
	}
	return nil
}

// checkURL returns a URL whose scheme and address are allowed.
func (p Policy) checkURL(field, text string, schemes ...string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: expected a URL, got one that cannot be parsed", field) // the error has the text, which may have a password
	case !slices.Contains(schemes, u.Scheme) || u.Hostname() == "":
		return nil, fmt.Errorf("%s: expected a URL that begins with %s:// and has a host", field, strings.Join(schemes, ":// or "))
	case u.User != nil:
		return nil, fmt.Errorf("%s: expected a URL without user and password", field)
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }): // which names may become when it is connected to
		return nil, fmt.Errorf("%s: expected a host of ASCII characters; write an international name in its form that begins with xn--", field)
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil && p.Refuses(address) {
		return nil, fmt.Errorf("%s: %s is in a network that no target cluster may be in; name the server by an address that the fleet may reach",
			field, address)
	}
	return u, nil
}

// inNamespace completes the name of a Service in a URL, which a Pod of the namespace could write
// without it, and returns the name that was given then. Errors: a Service of another namespace, or
// a Pod of it, by its name: it would get what is meant for this one.
func inNamespace(field, namespace string, u *url.URL) (given string, err error) {
	host := strings.TrimSuffix(u.Hostname(), ".")
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return "", nil
	}
	labels := strings.Split(strings.ToLower(host), ".")
	if len(labels) == 1 {
		name := host + "." + namespace + ".svc"
		if port := u.Port(); port != "" {
			name += ":" + port
		}
		u.Host = name
		return host, nil
	}
	for i, label := range labels[1:] { // a Pod of a Service has labels before those of the Service
		if of := labels[i]; i > 0 && label == "svc" && of != namespace {
			return "", fmt.Errorf("%s: %s is in namespace %s of the control cluster; expected a Service of namespace %s, or the public address",
				field, host, of, namespace)
		}
	}
	return "", nil
}
