package access

import (
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"
)

var policy = Policy{Refused: Local()}

// encoded returns a value as a kubeconfig has it.
func encoded(value string) string { return base64.StdEncoding.EncodeToString([]byte(value)) }

// kubeconfigWith returns a kubeconfig with further lines of its cluster and its user.
func kubeconfigWith(server, cluster, user string) []byte {
	return []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: a, user: b, namespace: kube-system}}]
clusters:
- name: a
  cluster:
    server: ` + server + `
    ` + cluster + `
users:
- name: b
  user:
    ` + user + `
`)
}

func TestRead(t *testing.T) {
	ca := "certificate-authority-data: " + encoded("CA")
	config := func(server, cluster, user string) map[string][]byte {
		return map[string][]byte{KeyKubeconfig: kubeconfigWith(server, cluster, user)}
	}
	parts := func(change ...string) map[string][]byte {
		data := map[string][]byte{KeyServer: []byte("https://a.example"), KeyCA: []byte("CA\n"), KeyToken: []byte("T\n")}
		for i := 0; i < len(change); i += 2 {
			data[change[i]] = []byte(change[i+1])
		}
		return data
	}
	valid := Access{Server: "https://a.example", CA: "CA", Token: "T"}
	renewed := map[string][]byte{KeyToken: []byte("renewed")}
	const file = "tokenFile: /var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/token"
	for name, tc := range map[string]struct {
		data  map[string][]byte
		token map[string][]byte // of the other Secret
		want  Access
		fails string // part of the error
	}{
		"kubeconfig": {data: config("https://a.example", ca, "token: T"), want: valid},
		"parts":      {data: parts(), want: valid},
		"client certificate": {
			data: config("https://a.example:6443/x", ca, "client-certificate-data: "+encoded("cert")+"\n    client-key-data: "+encoded("key")),
			want: Access{Server: "https://a.example:6443/x", CA: "CA", ClientCert: "cert", ClientKey: "key"},
		},
		"name, proxy, extensions": {
			data: config("https://1.2.3.4",
				ca+"\n    tls-server-name: b\n    proxy-url: http://proxy.example:3128\n    extensions: []\n    insecure-skip-tls-verify: false",
				"token: T"),
			want: Access{Server: "https://1.2.3.4", ServerName: "b", CA: "CA", Token: "T", Proxy: "http://proxy.example:3128"},
		},
		"fields without values": {
			data: config("https://a.example", ca+"\n    disable-compression: true", "token: T\n    username: ''\n    password: null"), want: valid,
		},
		"a user that the context does not name": {
			data: map[string][]byte{
				KeyKubeconfig: append(kubeconfigWith("https://a.example", ca, "token: T"), "- {name: other, user: {exec: {}}}"...),
			},
			want: valid,
		},
		"own token, next to the other Secret": {data: config("https://a.example", ca, "token: T"), token: renewed, want: valid},
		"largest values": {
			data: parts(KeyCA, strings.Repeat("x", MaxBytes), KeyToken, "", KeyClientCert, "x", KeyClientKey, strings.Repeat("x", maxKey)),
			want: Access{Server: "https://a.example", CA: strings.Repeat("x", MaxBytes), ClientCert: "x", ClientKey: strings.Repeat("x", maxKey)},
		},
		"characters of a token": {data: parts(KeyToken, "!~"), want: Access{Server: "https://a.example", CA: "CA", Token: "!~"}},
		"address in IPv6": {
			data: parts(KeyServer, "https://[2001:db8::1]:6443"), want: Access{Server: "https://[2001:db8::1]:6443", CA: "CA", Token: "T"},
		},
		"name that has svc": {
			data: parts(KeyServer, "https://api.svc.a~b.example"), want: Access{Server: "https://api.svc.a~b.example", CA: "CA", Token: "T"},
		},
		"Gardener's form": {
			data: config("https://kube-apiserver", ca, file), token: renewed,
			want: Access{Server: "https://kube-apiserver.mine.svc", ServerName: "kube-apiserver", CA: "CA", Token: "renewed"},
		},
		"proxy that is a Service of the namespace": {
			data: config("https://a.example", ca+"\n    proxy-url: http://proxy:3128", "token: T"),
			want: Access{Server: "https://a.example", CA: "CA", Token: "T", Proxy: "http://proxy.mine.svc:3128"},
		},
		"Service of the namespace": {
			data: parts(KeyServer, "https://api.mine.svc:443"), want: Access{Server: "https://api.mine.svc:443", CA: "CA", Token: "T"},
		},
		"Service of the namespace by its name and port": {
			data: parts(KeyServer, "https://api:6443"),
			want: Access{Server: "https://api.mine.svc:6443", ServerName: "api", CA: "CA", Token: "T"},
		},
		"localhost, whose address is refused": {
			data: parts(KeyServer, "https://localhost"), want: Access{Server: "https://localhost", CA: "CA", Token: "T"},
		},
		"token file without a Secret": {data: config("https://a.example", ca, file), fails: "tokenFile is refused: no file is read"},
		"token file, Secret without a token": {
			data: config("https://a.example", ca, file), token: map[string][]byte{"x": nil}, fails: "Secret token: expected the key token, got x",
		},
		"token file next to a program": {
			data: config("https://a.example", ca, file+"\n    exec: {command: sh}"), token: renewed, fails: "exec is refused",
		},
		"program": {
			data: config("https://a.example", ca, "exec: {command: sh}"), fails: `user "b": exec is refused`,
		},
		"auth provider": {
			data: config("https://a.example", ca, "auth-provider: {name: gcp}"), fails: "auth-provider is refused",
		},
		"file of a CA": {
			data:  config("https://a.example", "certificate-authority: /etc/x", "token: T"),
			fails: "certificate-authority is refused: no file is read",
		},
		"file of a key": {
			data: config("https://a.example", ca, "client-key: /etc/x"), fails: "client-key is refused: no file is read",
		},
		"impersonation": {
			data: config("https://a.example", ca, "token: T\n    as: admin"), fails: "as is refused: impersonation",
		},
		"password": {
			data: config("https://a.example", ca, "username: u\n    password: p"), fails: "password is refused",
		},
		"unverified server": {
			data: config("https://a.example", "insecure-skip-tls-verify: true", "token: T"), fails: "insecure-skip-tls-verify is refused",
		},
		"field that is not known": {
			data: config("https://a.example", ca, "token: T\n    spiffe: x"), fails: "spiffe is refused: it is no field that is known",
		},
		"token that is a number": {data: config("https://a.example", ca, "token: 7"), fails: "token: expected a string"},
		"CA that is no base64": {
			data: config("https://a.example", "certificate-authority-data: '%'", "token: T"), fails: "certificate-authority-data: expected base64",
		},
		"no YAML": {
			data: map[string][]byte{KeyKubeconfig: []byte("\tsecret-token")}, fails: "expected a kubeconfig",
		},
		"aliases": {
			data:  config("https://a.example", ca+"\n    extensions: [&a [x, x], [*a, *a]]", "token: T"),
			fails: "expected a kubeconfig without aliases of YAML",
		},
		"a field twice": {
			data:  config("https://a.example", ca, "token: T\n    token: U"),
			fails: "expected parts with at most 100 fields, each once, got one with 2 fields, of which 1 have different names",
		},
		"fields that take long to compare": {
			data:  map[string][]byte{KeyKubeconfig: []byte("{" + strings.Repeat("a,", 30_000) + "}")},
			fails: "got one with 30000 fields",
		},
		"no context": {
			data: map[string][]byte{KeyKubeconfig: []byte("{}")}, fails: `current-context: expected one context "", got 0`,
		},
		"two users of a name": {
			data:  map[string][]byte{KeyKubeconfig: append(kubeconfigWith("https://a.example", ca, "token: T"), "- {name: b, user: {}}"...)},
			fails: `expected one user "b", got 2`,
		},
		"no key that is known": {
			data: map[string][]byte{"value": nil}, fails: "expected the key kubeconfig or server, got value",
		},
		"no key":    {fails: "got no key"},
		"some keys": {data: map[string][]byte{"a": nil, "b": nil, "c": nil, "d": nil, "e": nil}, fails: "got a, b, c, d, e"},
		"many keys": {
			data:  map[string][]byte{"a": nil, "b": nil, "c": nil, "d": nil, "e": nil, "f": nil, "g": nil},
			fails: "got a, b, c, d, e and 2 others",
		},
		"too large": {
			data: map[string][]byte{KeyKubeconfig: make([]byte, 1<<20)}, fails: "expected at most 65536 bytes, got more",
		},
		"no CA":                       {data: parts(KeyCA, ""), fails: "expected the certificate of the CA"},
		"no credentials":              {data: parts(KeyToken, ""), fails: "expected a token or a client certificate, got neither"},
		"certificate without its key": {data: parts(KeyClientCert, "x"), fails: "got one of the two"},
		"key without its certificate": {data: parts(KeyClientKey, "x"), fails: "got one of the two"},
		"token with a line break":     {data: parts(KeyToken, "a\nb"), fails: "token: expected printable characters"},
		"token with a space":          {data: parts(KeyToken, "a b"), fails: "token: expected printable characters"},
		"token that is no ASCII":      {data: parts(KeyToken, "\u00e4"), fails: "token: expected printable characters"},
		"without TLS": {
			data: parts(KeyServer, "http://a.example"), fails: "server: expected a URL that begins with https://",
		},
		"no host":                {data: parts(KeyServer, "https://"), fails: "has a host"},
		"server with a password": {data: parts(KeyServer, "https://u:p@a.example"), fails: "without user and password"},
		"server with a query":    {data: parts(KeyServer, "https://a.example?x=y"), fails: "without a query"},
		"server with a fragment": {data: parts(KeyServer, "https://a.example#x"), fails: "without a query and a fragment"},
		"no URL":                 {data: parts(KeyServer, "https://a\x7f"), fails: "got one that cannot be parsed"},
		"metadata service": {
			data: parts(KeyServer, "https://169.254.169.254"), fails: "169.254.169.254 is in a network that no target cluster may be in",
		},
		"metadata service in IPv6":   {data: parts(KeyServer, "https://[::ffff:169.254.169.254]"), fails: "is in a network"},
		"loopback":                   {data: parts(KeyServer, "https://127.0.0.1:10258"), fails: "127.0.0.1 is in a network"},
		"loopback in IPv6":           {data: parts(KeyServer, "https://[::1]"), fails: "::1 is in a network"},
		"this host":                  {data: parts(KeyServer, "https://0.0.0.0"), fails: "0.0.0.0 is in a network"},
		"metadata service by a zone": {data: parts(KeyServer, "https://[fe80::1%25eth0]"), fails: "is in a network"},
		"proxy to the metadata service": {
			data:  config("https://a.example", ca+"\n    proxy-url: http://169.254.169.254", "token: T"),
			fails: "proxy-url: 169.254.169.254 is in a network",
		},
		"proxy that is no HTTP": {
			data:  config("https://a.example", ca+"\n    proxy-url: socks5://a", "token: T"),
			fails: "proxy-url: expected a URL that begins with http:// or https://",
		},
		"Service of another namespace": {
			data:  parts(KeyServer, "https://api.other.svc.cluster.local"),
			fails: "is in namespace other of the control cluster; expected a Service of namespace mine",
		},
		"Service of another namespace, rooted": {data: parts(KeyServer, "https://api.OTHER.svc."), fails: "is in namespace other"},
		"Pod of a Service of another namespace": {
			data: parts(KeyServer, "https://etcd-0.etcd.other.svc.cluster.local"), fails: "is in namespace other",
		},
		"port of a Service of another one": {data: parts(KeyServer, "https://_https._tcp.api.other.svc"), fails: "is in namespace other"},
		"zone with a space": {
			data: parts(KeyServer, "https://[2001:db8::1%25a%20b]"), fails: "server: expected a host of ASCII characters",
		},
		"letters that become ASCII": {
			data: parts(KeyServer, "https://api.other.\uff53vc"), fails: "server: expected a host of ASCII characters",
		},
		"proxy in another namespace": {
			data:  config("https://a.example", ca+"\n    proxy-url: http://proxy.other.svc:3128", "token: T"),
			fails: "proxy-url: proxy.other.svc is in namespace other",
		},
		"large client key": {
			data:  parts(KeyToken, "", KeyClientCert, "x", KeyClientKey, strings.Repeat("x", maxKey+1)),
			fails: "client key: expected at most 4096 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var token *Secret
			if tc.token != nil {
				token = &Secret{Name: "token", Data: tc.token}
			}
			got, err := policy.Read("mine", Secret{Name: "target", Data: tc.data}, token)
			if tc.fails == "" {
				if err != nil || got != tc.want {
					t.Errorf("got %+v, %v, want %+v", got, err, tc.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.fails) || !strings.HasPrefix(err.Error(), "Secret target: ") {
				t.Errorf("got %v, want an error of Secret target with %q", err, tc.fails)
			}
			if strings.Contains(err.Error(), "secret-token") {
				t.Errorf("the error shows the token: %v", err)
			}
			if got != (Access{}) {
				t.Errorf("got %+v with the error", got)
			}
		})
	}
}

// An address of IPv6 that leads to one of IPv4 is refused as that is, and no other.
func TestRefusedAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"169.254.169.254": true, "192.0.2.1": false, "2001:db8::1": false, "fd00:ec2::254": true, "fd00:ec2::23": true,
		"fe80::1%eth0": true, "::": true, "::1": true,
		"::ffff:169.254.169.254": true, "::ffff:192.0.2.1": false, "::ffff:127.0.0.1%eth0": true,
		"::169.254.169.254": true, "::192.0.2.1": false,
		"::ffff:0:169.254.169.254": true, "::ffff:0:192.0.2.1": false,
		"64:ff9b::169.254.169.254": true, "64:ff9b::a9fe:a9fe": true, "64:ff9b::192.0.2.1": false,
		"64:ff9b:1:2:3::127.0.0.1": true, "64:ff9b:1::192.0.2.1": false, "64:ff9b:2::127.0.0.1": false,
		"2002:a9fe:a9fe::1": true, "2002:7f00:1::": true, "2002:c000:201::7f00:1": false,
	} {
		if got := policy.Refuses(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is refused: %t, want %t", text, got, want)
		}
	}
}

// Of a Secret what is read is kept, and as much of a value that is too large that it stays so.
func TestTrim(t *testing.T) {
	got := Trim(map[string][]byte{KeyToken: []byte("T"), KeyKubeconfig: make([]byte, 1<<20), "other": []byte("x")})
	if string(got[KeyToken]) != "T" || len(got[KeyKubeconfig]) != MaxBytes+1 || len(got) != 2 {
		t.Errorf("got %d keys, the token %s and a kubeconfig of %d bytes", len(got), got[KeyToken], len(got[KeyKubeconfig]))
	}
}

func TestSameCluster(t *testing.T) {
	a := Access{Server: "https://a", ServerName: "b", CA: "c", Token: "d", ClientCert: "e", ClientKey: "f", Proxy: "g"}
	for name, tc := range map[string]struct {
		change func(*Access)
		same   bool
	}{
		"credentials": {func(b *Access) { b.Token, b.ClientCert, b.ClientKey = "1", "2", "3" }, true},
		"server":      {func(b *Access) { b.Server = "https://b" }, false},
		"server name": {func(b *Access) { b.ServerName = "" }, false},
		"CA":          {func(b *Access) { b.CA = "d" }, false},
		"proxy":       {func(b *Access) { b.Proxy = "" }, false},
	} {
		b := a
		if tc.change(&b); a.SameCluster(b) != tc.same {
			t.Errorf("other %s: the same is %t, want %t", name, !tc.same, tc.same)
		}
	}
}

// FuzzRead reads what anyone may write: it does not panic, and what it accepts is complete.
func FuzzRead(f *testing.F) {
	f.Add(string(kubeconfigWith("https://a.example", "certificate-authority-data: Q0E=", "token: credential")))
	f.Add(`{"users":[{"user":{"token":{}}}]}`)
	f.Fuzz(func(t *testing.T, content string) {
		got, err := policy.Read("mine", Secret{Name: "target", Data: map[string][]byte{KeyKubeconfig: []byte(content)}}, nil)
		if err == nil && (!strings.HasPrefix(got.Server, "https://") || got.CA == "" || got.Token == "" && got.ClientKey == "") {
			t.Errorf("accepted %+v", got)
		}
	})
}
