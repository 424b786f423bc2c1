package apianswers_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"

	machineclientset "github.com/machine-controller-fleet/machine-controller-fleet/client/clientset/versioned"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/apianswers"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/decode"
)

// given is an answer to each request.
type given struct {
	status      int
	contentType string
	body        string
	retryAfter  string
}

// RoundTrip is http.RoundTripper's.
func (g given) RoundTrip(r *http.Request) (*http.Response, error) {
	header := http.Header{}
	for name, value := range map[string]string{"Content-Type": g.contentType, "Retry-After": g.retryAfter, "Location": "/login"} {
		if value != "" {
			header.Set(name, value)
		}
	}
	return &http.Response{StatusCode: g.status, Header: header, Body: io.NopCloser(strings.NewReader(g.body)), Request: r}, nil
}

// requests sends one request of each verb by each client, and returns their errors.
func requests(t *testing.T, through http.RoundTripper) map[string]error {
	t.Helper()
	config := apianswers.Check(&rest.Config{Host: "http://server", Transport: through, QPS: -1, ContentConfig: rest.ContentConfig{
		AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
	}})
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	names, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	machines, err := rest.RESTClientFor(decode.Config(config))
	if err != nil {
		t.Fatal(err)
	}
	nodes, ctx := core.CoreV1().Nodes(), t.Context()
	errs := map[string]error{
		"delete": nodes.Delete(ctx, "n", metav1.DeleteOptions{}),
		"evict": core.PolicyV1().Evictions("default").
			Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}),
	}
	_, errs["get"] = nodes.Get(ctx, "n", metav1.GetOptions{})
	_, errs["list"] = core.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	_, errs["create"] = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	_, errs["update"] = nodes.Update(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.UpdateOptions{})
	_, errs["patch"] = nodes.Patch(ctx, "n", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	_, errs["list of metadata"] = names.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(ctx, metav1.ListOptions{})
	_, errs["get of a machine"] = machineclientset.New(machines).MachineV1alpha1().Machines("n").Get(ctx, "m", metav1.GetOptions{})
	_, errs["list of machines"] = machineclientset.New(machines).MachineV1alpha1().Machines("n").List(ctx, metav1.ListOptions{})
	return errs
}

// proofs returns what an answer of the API server proves.
func proofs() map[string]func(error) bool {
	return map[string]func(error) bool{
		"NotFound": apierrors.IsNotFound, "Gone": apierrors.IsGone, "Conflict": apierrors.IsConflict, "AlreadyExists": apierrors.IsAlreadyExists,
		"Forbidden": apierrors.IsForbidden, "Unauthorized": apierrors.IsUnauthorized, "Invalid": apierrors.IsInvalid,
		"BadRequest":      apierrors.IsBadRequest,
		"TooManyRequests": apierrors.IsTooManyRequests, "ResourceExpired": apierrors.IsResourceExpired,
	}
}

// An answer that no API server has written is an error of each request, and proves nothing.
func TestInventedAnswers(t *testing.T) {
	const page = "<!doctype html><title>404</title>"
	for name, answer := range map[string]given{
		"a page that is not found":         {404, "text/html; charset=utf-8", page, ""},
		"no route":                         {404, "text/plain; charset=utf-8", "404 page not found\n", ""},
		"no type":                          {404, "", "", ""},
		"a type that cannot be read":       {404, ";", page, ""},
		"JSON of a gateway":                {404, "application/json", `{"message":"no Route matched"}`, ""},
		"JSON with a code":                 {404, "application/json", `{"code":404,"reason":"NotFound","status":"Failure"}`, ""},
		"JSON with another kind":           {404, "application/json", `{"kind":"Error","apiVersion":"v1","code":404,"reason":"NotFound"}`, ""},
		"HTML that claims to be JSON":      {404, "application/json", page, ""},
		"HTML that claims to be an object": {404, "application/vnd.kubernetes.protobuf", page, ""},
		"another object":                   {404, "application/vnd.kubernetes.protobuf", "k8s\x00\x0a\x0a\x0a\x02v1\x12\x04Node", ""},
		"a conflict":                       {409, "text/html", page, ""},
		"gone":                             {410, "text/html", page, ""},
		"forbidden by a firewall":          {403, "text/html", page, ""},
		"a login":                          {401, "text/html", page, ""},
		"a redirect to a login":            {302, "text/html", page, ""},
		"invalid":                          {422, "application/json", `{"error":"x"}`, ""},
		"a bad request":                    {400, "text/plain", "bad request", ""},
		"too many":                         {429, "text/plain", "later", ""},
		"unavailable":                      {503, "text/html", page, ""},
		"a page":                           {200, "text/html", page, ""},
		"a page instead of a new object":   {201, "text/html", page, ""},
		"nothing":                          {204, "", "", ""},
		"an empty body":                    {200, "application/json", "", ""},
		"an empty object":                  {200, "application/json", "{}", ""},
		"another JSON":                     {200, "application/json", `{"status":"ok"}`, ""},
		"a list of JSON":                   {200, "application/json", `[]`, ""},
		"an empty message":                 {200, "application/vnd.kubernetes.protobuf", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for request, err := range requests(t, answer) {
				if err == nil {
					t.Errorf("%s succeeds", request)
				}
				for what, proves := range proofs() {
					if proves(err) {
						t.Errorf("%s is %s: %v", request, what, err)
					}
				}
			}
		})
	}
}

// What API servers write arrives as it is, in both encodings.
func TestAnswersOfAPIServersArrive(t *testing.T) {
	encode := func(contentType string, obj runtime.Object) string {
		t.Helper()
		info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
		raw, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), obj)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	missing := apierrors.NewNotFound(corev1.Resource("nodes"), "n").Status()
	long := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"long": strings.Repeat("x", 100_000)}}}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			for request, err := range requests(t, given{status: 404, contentType: contentType, body: encode(contentType, &missing)}) {
				if !apierrors.IsNotFound(err) {
					t.Errorf("%s: got %v, want NotFound", request, err)
				}
			}
			get := func(ctx context.Context, body string) (*corev1.Node, error) {
				core, err := kubernetes.NewForConfig(apianswers.Check(&rest.Config{
					Host: "http://s", Transport: given{status: 200, contentType: contentType, body: body},
				}))
				if err != nil {
					t.Fatal(err)
				}
				return core.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
			}
			if node, err := get(t.Context(), encode(contentType, long)); err != nil || len(node.Annotations["long"]) != 100_000 {
				t.Errorf("got %v, %v, want all of the Node", node, err)
			}
		})
	}
	for name, body := range map[string]string{
		"indented": "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\", \"status\": \"Failure\", \"reason\": \"NotFound\", " +
			"\"code\": 404}",
		"sorted":         `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`,
		"without fields": `{"kind":"Status","status":"Failure","reason":"NotFound","code":404}`,
	} {
		if err := requests(t, given{status: 404, contentType: "application/json", body: body})["get"]; !apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want NotFound", name, err)
		}
	}
}

// Custom resources, and lists of them, are encoded with sorted fields; metadata of all resources in
// both encodings.
func TestCustomResourcesAndMetadataArrive(t *testing.T) {
	custom := func(kind string, more map[string]any) string {
		fields := map[string]any{
			"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "m", "resourceVersion": "1"},
		}
		maps.Copy(fields, more)
		var obj runtime.Object = &unstructured.Unstructured{Object: fields}
		if more != nil {
			obj = &unstructured.UnstructuredList{Object: fields, Items: []unstructured.Unstructured{}}
		}
		raw, err := runtime.Encode(unstructured.UnstructuredJSONScheme, obj)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	answered := func(request, contentType, body string) {
		t.Helper()
		if err := requests(t, given{status: 200, contentType: contentType, body: body})[request]; err != nil {
			t.Errorf("%s as %s: %v", request, contentType, err)
		}
	}
	answered("get of a machine", runtime.ContentTypeJSON, custom("Machine", nil))
	answered("list of machines", runtime.ContentTypeJSON, custom("MachineList", map[string]any{}))
	names := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	asJSON, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	answered("list of metadata", runtime.ContentTypeJSON, string(asJSON))
	asProtobuf, err := runtime.Encode(protobuf.NewSerializer(metadatafake.NewTestScheme(), metadatafake.NewTestScheme()), names)
	if err != nil {
		t.Fatal(err)
	}
	answered("list of metadata", runtime.ContentTypeProtobuf, string(asProtobuf))
}

// A watch begins before its first event, and a page is none.
func TestWatches(t *testing.T) {
	watch := func(transport http.RoundTripper) error {
		core, err := kubernetes.NewForConfig(apianswers.Check(&rest.Config{Host: "http://server", Transport: transport, QPS: -1}))
		if err != nil {
			t.Fatal(err)
		}
		w, err := core.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
		if err == nil {
			w.Stop()
		}
		return err
	}
	silent, _ := io.Pipe()
	if err := watch(roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json;stream=watch"}}, Body: silent, Request: r,
		}, nil
	})); err != nil {
		t.Errorf("a watch without an event: %v", err)
	}
	for _, answer := range []given{{200, "text/html", "<html>", ""}, {410, "text/html", "<html>", ""}} {
		if err := watch(answer); err == nil || apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			t.Errorf("%d: got %v, want an error that proves nothing", answer.status, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip is http.RoundTripper's.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The rejection says what has answered, and when to try again, and has nothing of the body.
func TestRejection(t *testing.T) {
	config := apianswers.Check(&rest.Config{Transport: given{429, "text/html", "<html>secret", "7"}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/api/v1/nodes", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := config.WrapTransport(config.Transport).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if answer.StatusCode != http.StatusBadGateway || answer.Header.Get("Retry-After") != "7" || !strings.Contains(text, "429") ||
		!strings.Contains(text, "text/html") || strings.Contains(text, "secret") {
		t.Errorf("got %d %v %s", answer.StatusCode, answer.Header, text)
	}
}

// brokenBody fails after some bytes.
type brokenBody struct{ io.Reader }

func (brokenBody) Close() error { return nil }

// A body that breaks off is an error of the connection.
func TestBrokenBody(t *testing.T) {
	broken := brokenBody{io.MultiReader(strings.NewReader(`{"ki`), failing{})}
	err := requests(t, roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"application/json"}}, Body: broken, Request: r,
		}, nil
	}))["get"]
	if err == nil || !strings.Contains(err.Error(), io.ErrClosedPipe.Error()) {
		t.Errorf("got %v, want the error of the connection", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
