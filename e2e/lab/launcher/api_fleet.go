package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/proxy"
)

// PodList is the answer to GET /v1/pods: the fleet's pods by name, doubles among them.
type PodList struct {
	Pods []Pod `json:"pods"`
}

// Scale is the body of PUT /v1/replicas.
type Scale struct {
	// Replicas is the number of replicas of the fleet. Those with the highest numbers are removed
	// first.
	Replicas int `json:"replicas"`
}

// LinkList is the answer to GET /v1/links.
type LinkList struct {
	Links []Link `json:"links"`
}

// errBadRequest: the request is invalid.
var errBadRequest = errors.New("bad request")

// read reads the body of a request; unknown fields are rejected.
func read(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errBadRequest, err)
	}
	return nil
}

func (l *Launcher) handleFleet(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/pods", func(w http.ResponseWriter, _ *http.Request) { l.answerPods(w, nil) })
	mux.HandleFunc("PUT /v1/replicas", func(w http.ResponseWriter, r *http.Request) {
		var scale Scale
		err := read(r, &scale)
		if err == nil {
			err = l.Scale(context.WithoutCancel(r.Context()), scale.Replicas)
		}
		l.log.Info("scale", "replicas", scale.Replicas, "err", err)
		l.answerPods(w, err)
	})
	mux.HandleFunc("POST /v1/replicas/{name}/replace", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		err := l.Replace(context.WithoutCancel(r.Context()), name)
		l.log.Info("replace", "replica", name, "err", err)
		l.answerPods(w, err)
	})
	mux.HandleFunc("POST /v1/replicas/{name}/double", func(w http.ResponseWriter, r *http.Request) {
		name, newPod := r.PathValue("name"), r.URL.Query().Get("pod") == "new"
		err := l.Double(context.WithoutCancel(r.Context()), name, newPod)
		l.log.Info("double", "replica", name, "newPod", newPod, "err", err)
		l.answerPods(w, err)
	})
	mux.HandleFunc("GET /v1/links", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, LinkList{Links: l.links()}) })
	mux.HandleFunc("PUT /v1/links/{process}/{link}", l.putFault)
}

// answerPods answers with an error, or else with all pods.
func (l *Launcher) answerPods(w http.ResponseWriter, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	l.mu.Lock()
	pods := make([]Pod, 0, len(l.pods))
	for _, pod := range l.pods {
		pods = append(pods, pod)
	}
	l.mu.Unlock()
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(len(a.Replica), len(b.Replica)), cmp.Compare(a.Name, b.Name))
	})
	answer(w, http.StatusOK, PodList{Pods: pods})
}

func (l *Launcher) putFault(w http.ResponseWriter, r *http.Request) {
	var fault proxy.Fault
	err := read(r, &fault)
	if err == nil {
		if invalid := fault.Validate(); invalid != nil {
			err = fmt.Errorf("%w: %w", errBadRequest, invalid)
		}
	}
	var link Link
	if err == nil {
		link, err = l.setFault(context.WithoutCancel(r.Context()), r.PathValue("process"), r.PathValue("link"), fault)
	}
	l.log.Info("fault", "process", r.PathValue("process"), "link", r.PathValue("link"), "fault", fault.String(), "err", err)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, http.StatusOK, link)
}

func (l *Launcher) handleEtcd(mux *http.ServeMux) {
	for action, do := range map[string]func(context.Context, Snapshot) error{"save": l.Save, "restore": l.Restore} {
		mux.HandleFunc("POST /v1/etcd/"+action, func(w http.ResponseWriter, r *http.Request) {
			var snapshot Snapshot
			err := read(r, &snapshot)
			if err == nil && !filepath.IsAbs(snapshot.File) {
				err = fmt.Errorf("%w: file: expected an absolute path, got %q", errBadRequest, snapshot.File)
			}
			if err == nil {
				err = do(context.WithoutCancel(r.Context()), snapshot)
			}
			l.log.Info("etcd "+action, "file", snapshot.File, "err", err)
			if err != nil {
				fail(w, err)
				return
			}
			answer(w, http.StatusOK, snapshot)
		})
	}
}
