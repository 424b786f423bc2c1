package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// The actions on a process; see Do.
const (
	// Kill ends it at once, and it stays ended until Start.
	Kill  = "kill"
	Start = "start"
	// Stop is SIGTERM, with 30 s of grace for replicas. It stays ended.
	Stop = "stop"
	// Crash ends it at once, and a replica is restarted as by a kubelet: immediately at first, later
	// after a back-off.
	Crash = "crash"
	// Pause is SIGSTOP.
	Pause   = "pause"
	Resume  = "resume"
	Restart = "restart"
)

// Pod is a pod of the fleet, as its kubelet would have it.
type Pod struct {
	// Name is that of the process. It is the replica's, unless the pod is a double.
	Name    string `json:"name"`
	Replica string `json:"replica"`
	UID     string `json:"uid"`
	// Dir is the pod's own volume.
	Dir string `json:"dir"`
	URL string `json:"url"`
}

type podList struct {
	Pods []Pod `json:"pods"`
}

// Do requests an action on a process from the launcher. When it returns, the process has ended and
// been reaped, or runs, but need not be ready.
func (l *Lab) Do(ctx context.Context, process, action string) error {
	return l.send(ctx, http.MethodPost, "/v1/processes/"+url.PathEscape(process)+"/"+action, nil, nil)
}

// SkipBackoff starts a process at once that has ended by itself and waits for its restart. It does
// nothing while the process runs, and where an action has ended it. When the restart is due at the
// same moment the launcher rejects the start.
func (l *Lab) SkipBackoff(ctx context.Context, process string) error {
	var p struct {
		Returns bool `json:"returns"`
	}
	if err := l.send(ctx, http.MethodGet, "/v1/processes/"+url.PathEscape(process), nil, &p); err != nil || !p.Returns {
		return err
	}
	return l.Do(ctx, process, Start)
}

// Restart ends a replica's process at once, starts it again, and waits until it is ready.
func (l *Lab) Restart(ctx context.Context, replica string) error {
	if err := l.Do(ctx, replica, Kill); err != nil {
		return err
	}
	if err := l.Do(ctx, replica, Start); err != nil {
		return err
	}
	return l.Ready(ctx, replica)
}

// Ready waits until a replica reports that it is ready.
func (l *Lab) Ready(ctx context.Context, replica string) error {
	return Eventually(ctx, replica+" is ready", func(ctx context.Context) error {
		return send(ctx, http.MethodGet, l.Endpoint(replica)+"/readyz", nil, nil)
	})
}

// Pods returns the fleet's pods, doubles among them, by replica.
func (l *Lab) Pods(ctx context.Context) ([]Pod, error) {
	var list podList
	err := l.send(ctx, http.MethodGet, "/v1/pods", nil, &list)
	return list.Pods, err
}

// Replicas returns the names of all replicas.
func (l *Lab) Replicas(ctx context.Context) ([]string, error) {
	pods, err := l.Pods(ctx)
	var names []string
	for _, pod := range pods {
		if pod.Name == pod.Replica {
			names = append(names, pod.Name)
		}
	}
	return names, err
}

// Scale sets the number of replicas, as a StatefulSet does, and waits until all are ready. Those
// with the highest numbers are removed, all at once, with 30 s of grace.
func (l *Lab) Scale(ctx context.Context, replicas int) error {
	if err := l.send(ctx, http.MethodPut, "/v1/replicas", map[string]int{"replicas": replicas}, nil); err != nil {
		return err
	}
	for i := range replicas {
		if err := l.Ready(ctx, fmt.Sprintf("fleet-%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// Replace deletes a replica's pod, with grace, and starts the next one: with another UID and an
// empty folder.
func (l *Lab) Replace(ctx context.Context, replica string) error {
	return l.send(ctx, http.MethodPost, "/v1/replicas/"+url.PathEscape(replica)+"/replace", nil, nil)
}

// Double starts a second process of a replica, with the same pod UID and folder, and returns its
// name. It has separate proxies, and is not restarted.
func (l *Lab) Double(ctx context.Context, replica string) (string, error) {
	return replica + "-double", l.send(ctx, http.MethodPost, "/v1/replicas/"+url.PathEscape(replica)+"/double", nil, nil)
}

// DoubleInNewPod is Double in a separate pod, as happens when a pod is deleted by force and its
// process keeps running.
func (l *Lab) DoubleInNewPod(ctx context.Context, replica string) (string, error) {
	return replica + "-double", l.send(ctx, http.MethodPost, "/v1/replicas/"+url.PathEscape(replica)+"/double?pod=new", nil, nil)
}

// Save saves a snapshot of etcd to a new file, an absolute path.
func (l *Lab) Save(ctx context.Context, file string) error {
	return l.send(ctx, http.MethodPost, "/v1/etcd/save", map[string]any{"file": file}, nil)
}

// away is for how long the API servers are away in a restore: longer than the fence, as
// docs/limits.md requires.
const away = 10 * time.Second

// Restore restores the snapshot of Save, and waits for the control plane, which is restarted.
// Revisions are used a second time, unless they are raised by bump: watches that continue from a
// lost one miss new changes.
func (l *Lab) Restore(ctx context.Context, file string, bump uint64) error {
	return l.send(ctx, http.MethodPost, "/v1/etcd/restore", map[string]any{"file": file, "bumpRevision": bump, "away": away}, nil)
}

// send sends a request to the launcher.
func (l *Lab) send(ctx context.Context, method, path string, body, out any) error {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return fmt.Errorf("%s %s: encode what to do: %w", method, path, err)
		}
	}
	return send(ctx, method, l.launcher+path, &content, out)
}
