package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Member is a target cluster of a landscape. Its namespace in the control cluster has its name.
type Member struct {
	Name string
	// Kind is "real" for a kube-apiserver, or "light".
	Kind string
	// Proxy is the URL by which the fleet reaches the API server.
	Proxy string
}

// IsLight reports whether the API server is one in memory.
func (m Member) IsLight() bool { return m.Kind == "light" }

// Members returns the target clusters of the landscape, real ones first.
func (l *Lab) Members() (all []Member, err error) {
	text, err := os.ReadFile(filepath.Join(l.Dir, "targets.json"))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("target clusters of lab %s: %w", l.Dir, err)
	}
	return all, nil
}

// Of returns the lab with one of the target clusters of the landscape as Target, and the path of
// its administrator's kubeconfig.
func (l *Lab) Of(m Member) (of *Lab, kubeconfig string, err error) {
	file := filepath.Join("targets", m.Name+".kubeconfig")
	is := *l
	if is.TargetConfig, err = config(l.Dir, file); err == nil {
		is.Target, err = kubernetes.NewForConfig(is.TargetConfig)
	}
	if err != nil {
		return nil, "", fmt.Errorf("target cluster %s: %w", m.Name, err)
	}
	return &is, filepath.Join(l.Dir, file), nil
}

// Rotate gives the fleet other credentials for a target cluster, or for all without a name.
func (l *Lab) Rotate(ctx context.Context, name string) error {
	return l.send(ctx, http.MethodPost, "/v1/targets/rotate?name="+url.QueryEscape(name), nil, nil)
}

// LightFault describes a fault of the API server of a light cluster; the zero value is nothing.
type LightFault struct {
	// Throttled has requests answered with 429.
	Throttled bool `json:"throttled,omitempty"`
	// DelayMillis is how late requests are answered; negative means never.
	DelayMillis int64 `json:"delayMillis,omitempty"`
	// Nodes is how many Nodes of 4 kB each list has, AnswerBytes the size of a Node that it has in
	// their place.
	Nodes       int   `json:"nodes,omitempty"`
	AnswerBytes int64 `json:"answerBytes,omitempty"`
	// Events has watches of Nodes that begin deliver changes without a pause.
	Events bool `json:"events,omitempty"`
}

// SetLightFault sets what is wrong with a light cluster.
func (l *Lab) SetLightFault(ctx context.Context, name string, fault LightFault) error {
	body, err := json.Marshal(fault)
	if err != nil {
		return fmt.Errorf("encode a fault: %w", err)
	}
	return send(ctx, http.MethodPut, l.Endpoint("light")+"/clusters/"+url.PathEscape(name)+"/fault", bytes.NewReader(body), nil)
}

// ReplaceLight replaces a light cluster by an empty one with the same address, CA and credentials.
// Connections stay open.
func (l *Lab) ReplaceLight(ctx context.Context, name string) error {
	return send(ctx, http.MethodPost, l.Endpoint("light")+"/clusters/"+url.PathEscape(name)+"/replace", nil, nil)
}

// Usage counts the requests of one user to a light cluster: how many requests, and how many watches
// that are open.
type Usage struct {
	Requests int64 `json:"requests"`
	Watches  int64 `json:"watches"`
	// NodeWatches are the latest watches of Nodes that were begun.
	NodeWatches []struct {
		Begun     time.Time `json:"begun"`
		UserAgent string    `json:"userAgent"`
	} `json:"nodeWatches"`
}

// LightUsage returns the Usage by cluster and user.
func (l *Lab) LightUsage(ctx context.Context) (all map[string]map[string]Usage, err error) {
	return all, send(ctx, http.MethodGet, l.Endpoint("light")+"/clusters", nil, &all)
}
