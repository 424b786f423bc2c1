package controlplane

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers discovery of two groups, stores writes, and rejects everything else.
type server struct {
	writes []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPatch && strings.HasPrefix(r.URL.Path, "/api"):
		body, _ := io.ReadAll(r.Body)
		s.writes = append(s.writes, r.URL.String()+" "+string(body))
		_, _ = io.WriteString(w, "{}")
	case r.URL.Path == "/api/v1":
		_, _ = io.WriteString(w,
			`{"resources":[{"name":"pods/eviction","kind":"Secret","namespaced":true},{"name":"secrets","kind":"Secret","namespaced":true}]}`)
	case r.URL.Path == "/apis/rbac.authorization.k8s.io/v1":
		_, _ = io.WriteString(w, `{"resources":[{"name":"clusterroles","kind":"ClusterRole"}]}`)
	default:
		http.Error(w, "no such thing", http.StatusNotFound)
	}
}

func newClient(t *testing.T, handler http.Handler) *Client {
	t.Helper()
	ca, err := NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	user, err := ca.Issue(Subject{User: "me"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	// Plain HTTP: the tests of certificates cover TLS.
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	client, err := NewClient(srv.URL, ca.Cert, user)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestApply(t *testing.T) {
	var srv server
	err := newClient(t, &srv).Apply(t.Context(), []byte(`
# only a comment
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "lab:fleet"}
`))
	if err != nil {
		t.Fatal(err)
	}
	const query = "?force=true&fieldManager=lab "
	want := []string{
		"/api/v1/namespaces/kube-system/secrets/token" + query +
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"token","namespace":"kube-system"}}`,
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/lab:fleet" + query +
			`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"lab:fleet"}}`,
	}
	if diff := cmp.Diff(want, srv.writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

func TestApplyRejects(t *testing.T) {
	for name, manifest := range map[string]string{
		"no YAML":           "a: b: c",
		"no namespace":      "{apiVersion: v1, kind: Secret, metadata: {name: x}}",
		"unknown kind":      "{apiVersion: v1, kind: Sceret, metadata: {name: x, namespace: y}}",
		"unknown group":     "{apiVersion: example.com/v1, kind: Secret, metadata: {name: x, namespace: y}}",
		"broken apiVersion": "{apiVersion: a/b/c, kind: Secret, metadata: {name: x, namespace: y}}",
		"no object":         "[1, 2]",
	} {
		t.Run(name, func(t *testing.T) {
			var srv server
			if err := newClient(t, &srv).Apply(t.Context(), []byte(manifest)); err == nil || len(srv.writes) != 0 {
				t.Errorf("error %v, writes %q; want an error and no writes", err, srv.writes)
			}
		})
	}
}

func TestStatusError(t *testing.T) {
	_, err := newClient(t, &server{}).Get(t.Context(), "/readyz")
	var status *StatusError
	if !errors.As(err, &status) {
		t.Fatalf("error %v, want a StatusError", err)
	}
	want := &StatusError{Method: "GET", Path: "/readyz", Code: http.StatusNotFound, Body: "no such thing\n"}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
