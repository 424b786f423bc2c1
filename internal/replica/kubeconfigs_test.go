package replica

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func TestKubeconfigsThatCannotBeReadAreNamedByTheirFlag(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tc := range []struct {
		from Kubeconfigs
		want string
	}{
		{Kubeconfigs{Target: "/nope"}, "--target-kubeconfig=/nope: read the kubeconfig: open /nope"},
		{Kubeconfigs{Control: "/nope", Target: NoTarget}, "--control-kubeconfig=/nope: read the kubeconfig: open /nope"},
		{Kubeconfigs{}, "--target-kubeconfig=: read the kubeconfig: unable to load in-cluster configuration"},
	} {
		if _, err := tc.from.Open(); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("want an error that begins with %s, got: %v", tc.want, err)
		}
	}
}

func TestCredentialsOfAChangedKubeconfigAreUsed(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s", r.Proto, r.Header.Get("Authorization"))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := func(server, user string) {
		t.Helper()
		write("kubeconfig", "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],\n"+
			"clusters: [{name: a, cluster: {certificate-authority: ca.crt, server: '"+server+"'}}], users: [{name: a, user: {"+user+"}}]}")
	}
	write("ca.crt", string(ca))
	write("token", "of a file")
	kubeconfig(server.URL, "token: first")
	clusters, err := Kubeconfigs{Control: filepath.Join(dir, "kubeconfig"), Target: NoTarget}.Open()
	if err != nil {
		t.Fatal(err)
	}
	want := func(token string) {
		t.Helper()
		clusters.files[0].reload(klog.NewKlogr())
		for proto, config := range map[string]*rest.Config{"HTTP/2.0": clusters.Control, "HTTP/1.1": clusters.Leases} {
			if got, want := answerTo(t, config), proto+" Bearer "+token; got != want {
				t.Errorf("got %q, want %q; problem: %s", got, want, clusters.files[0].problem)
			}
		}
	}
	want("first")
	kubeconfig(server.URL, "token: second")
	want("second")
	write("kubeconfig", "{")
	want("second")
	kubeconfig("https://127.0.0.1:1", "token: other")
	want("second")
	if problem := clusters.files[0].problem; !strings.Contains(problem, "restart to use another one") {
		t.Errorf("another server: problem %q", problem)
	}
	kubeconfig(server.URL, "tokenFile: token")
	want("of a file")
	write("token", "renewed\n")
	want("renewed")
	write("ca.crt", "nothing")
	want("renewed")
}

// answerTo returns what a server answers to a client.
func answerTo(t *testing.T, config *rest.Config) string {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
