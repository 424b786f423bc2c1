package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	fieldManager = "lab"
	maxBody      = 16 << 20
)

// Client sends requests to one server as one user. It may be used from several goroutines.
type Client struct {
	server string
	http   *http.Client

	mu        sync.Mutex
	resources map[string][]metav1.APIResource // by group and version
}

// NewClient returns a client of the server with this URL, which has a certificate of the authority
// ca (PEM).
func NewClient(server string, ca []byte, user Pair) (*Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the authority has no certificate in PEM")
	}
	cert, err := tls.X509KeyPair(user.Cert, user.Key)
	if err != nil {
		return nil, fmt.Errorf("the user's certificate: %w", err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	return &Client{
		server:    strings.TrimSuffix(server, "/"),
		http:      &http.Client{Transport: transport},
		resources: map[string][]metav1.APIResource{},
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// StatusError is an answer of the server other than success.
type StatusError struct {
	Method, Path string
	Code         int
	Body         string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: %d %s: %s", e.Method, e.Path, e.Code, http.StatusText(e.Code), strings.TrimSpace(e.Body))
}

// Get reads a path. An answer other than 2xx is a *StatusError.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, "", nil)
}

// Apply applies the objects of a YAML stream (server-side apply, conflicts forced), in its order.
func (c *Client) Apply(ctx context.Context, manifests []byte) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("splitting manifests: %w", err)
		}
		var object unstructured.Unstructured
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return fmt.Errorf("parsing a manifest: %w", err)
		}
		if len(object.Object) == 0 { // Nothing but comments.
			continue
		}
		if err := c.apply(ctx, &object); err != nil {
			return fmt.Errorf("applying %s %q: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

func (c *Client) apply(ctx context.Context, object *unstructured.Unstructured) error {
	path, err := c.path(ctx, object)
	if err != nil {
		return err
	}
	body, err := json.Marshal(object.Object)
	if err != nil {
		return fmt.Errorf("encoding it: %w", err)
	}
	_, err = c.do(ctx, http.MethodPatch, path+"?force=true&fieldManager="+fieldManager, "application/apply-patch+yaml", body)
	return err
}

// path returns the path of an object, according to the server's discovery.
func (c *Client) path(ctx context.Context, object *unstructured.Unstructured) (string, error) {
	gv, err := schema.ParseGroupVersion(object.GetAPIVersion())
	if err != nil {
		return "", fmt.Errorf("its apiVersion: %w", err)
	}
	prefix := "/apis/" + gv.String()
	if gv.Group == "" {
		prefix = "/api/" + gv.Version
	}
	resources, err := c.discover(ctx, prefix)
	if err != nil {
		return "", err
	}
	for _, resource := range resources {
		if resource.Kind != object.GetKind() || strings.Contains(resource.Name, "/") {
			continue
		}
		if resource.Namespaced {
			if object.GetNamespace() == "" {
				return "", errors.New("it needs a namespace")
			}
			prefix += "/namespaces/" + url.PathEscape(object.GetNamespace())
		}
		return prefix + "/" + resource.Name + "/" + url.PathEscape(object.GetName()), nil
	}
	return "", fmt.Errorf("the server has no kind %s in %s", object.GetKind(), gv)
}

func (c *Client) discover(ctx context.Context, prefix string) ([]metav1.APIResource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.resources[prefix]; ok {
		return known, nil
	}
	body, err := c.do(ctx, http.MethodGet, prefix, "", nil)
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the server's discovery of %s: %w", prefix, err)
	}
	c.resources[prefix] = list.APIResources
	return list.APIResources, nil
}

func (c *Client) do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err // It names method and URL.
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, &StatusError{Method: method, Path: path, Code: resp.StatusCode, Body: string(answer)}
	}
	return answer, nil
}
