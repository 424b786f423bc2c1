package light

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	mastersGroup = "system:masters"
	reviewPath   = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	// gitVersion is the version that the API server reports.
	gitVersion = "v1.37.1-light"
)

// ServeHTTP answers a request of a client.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz":
		_, _ = io.WriteString(w, "ok")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	user, err := c.authenticate(r)
	if err == nil {
		isWatch := r.URL.Query().Get("watch") != ""
		c.count(user.Username, r)
		if isWatch {
			defer c.endWatch(user.Username)
		}
		err = c.delay(r)
	}
	if err == nil && strings.HasPrefix(user.Username, bootstrapUser) && r.URL.Path != reviewPath {
		err = apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(user.Username+" may only ask who it is"))
	}
	if err != nil {
		refuse(w, err)
		return
	}
	given, status, err := c.own(user, r)
	switch {
	case err != nil:
		refuse(w, err)
	case given != nil:
		write(w, status, given)
	case c.flood(w, r):
	default:
		c.pass(w, r)
	}
}

// own answers what is no request for an object; nil if it is one. Errors: with a status.
func (c *Cluster) own(user authenticationv1.UserInfo, r *http.Request) (given any, status int, err error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	isAbout := func(resource, subresource string) bool { // an object in a Namespace
		return r.Method == http.MethodPost && len(parts) == 7 && parts[0] == "api" && parts[4] == resource && parts[6] == subresource
	}
	switch {
	case r.URL.Path == "/version":
		return version.Info{Major: "1", Minor: "37", GitVersion: gitVersion}, http.StatusOK, nil
	case r.URL.Path == reviewPath && r.Method == http.MethodPost:
		return c.review(user), http.StatusCreated, nil
	case isAbout("serviceaccounts", "token"):
		request := &authenticationv1.TokenRequest{}
		if err := read(r, request); err != nil {
			return nil, 0, err
		}
		given, err = c.issueToken(user, parts[3], parts[5], request)
		return given, http.StatusCreated, err
	case isAbout("pods", "eviction"):
		eviction := &policyv1.Eviction{}
		if err := read(r, eviction); err != nil {
			return nil, 0, err
		}
		return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated},
			http.StatusCreated, c.evict(r.Context(), parts[3], parts[5], eviction)
	}
	return discover(parts), http.StatusOK, nil
}

// pass has the server in memory answer a request.
func (c *Cluster) pass(w http.ResponseWriter, r *http.Request) {
	answer, err := c.api().RoundTrip(r)
	if err != nil {
		refuse(w, err)
		return
	}
	defer answer.Body.Close()
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	flush := http.NewResponseController(w).Flush
	if r.URL.Query().Get("watch") == "" {
		_, _ = io.Copy(w, answer.Body) // the client may be gone
		return
	}
	buffer := make([]byte, 32<<10)
	for err := flush(); err == nil; err = flush() {
		n, err := answer.Body.Read(buffer)
		if _, failed := w.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// read decodes the body of a request, in JSON or protobuf. Errors: with a status.
func read(r *http.Request, into runtime.Object) error {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
	}
	if err != nil {
		return apierrors.NewBadRequest("decode the body: " + err.Error())
	}
	return nil
}

func write(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the client may be gone
}

// refuse answers with the status of an error.
func refuse(w http.ResponseWriter, err error) {
	known := apierrors.APIStatus(nil)
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	write(w, int(status.Code), status)
}
