package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/proxy"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// Client sends requests to the launcher of a lab.
type Client struct {
	folder Folder
}

// NewClient returns a client for the lab in a folder.
func NewClient(folder Folder) Client { return Client{folder: folder} }

// Processes lists the processes.
func (c Client) Processes(ctx context.Context) ([]supervise.Process, error) {
	var list ProcessList
	err := c.do(ctx, http.MethodGet, "/v1/processes", nil, &list)
	return list.Processes, err
}

// Health returns which processes answer.
func (c Client) Health(ctx context.Context) (Health, error) {
	var health Health
	err := c.do(ctx, http.MethodGet, "/v1/health", nil, &health)
	return health, err
}

// Act does an action on a process, and returns its state after that. See Launcher.ServeHTTP for the
// actions.
func (c Client) Act(ctx context.Context, name, action string) (supervise.Process, error) {
	var p supervise.Process
	err := c.do(ctx, http.MethodPost, "/v1/processes/"+url.PathEscape(name)+"/"+url.PathEscape(action), nil, &p)
	return p, err
}

// Pods lists the fleet's pods.
func (c Client) Pods(ctx context.Context) ([]Pod, error) {
	var list PodList
	err := c.do(ctx, http.MethodGet, "/v1/pods", nil, &list)
	return list.Pods, err
}

// Scale sets the number of replicas of the fleet. It returns when the surplus ones have ended, and
// the others run.
func (c Client) Scale(ctx context.Context, replicas int) ([]Pod, error) {
	var list PodList
	err := c.do(ctx, http.MethodPut, "/v1/replicas", Scale{Replicas: replicas}, &list)
	return list.Pods, err
}

// Replace deletes a replica's pod, and starts the next one.
func (c Client) Replace(ctx context.Context, replica string) ([]Pod, error) {
	var list PodList
	err := c.do(ctx, http.MethodPost, "/v1/replicas/"+url.PathEscape(replica)+"/replace", nil, &list)
	return list.Pods, err
}

// Double starts a second process of a replica, in the same pod or in a new one.
func (c Client) Double(ctx context.Context, replica string, newPod bool) ([]Pod, error) {
	path := "/v1/replicas/" + url.PathEscape(replica) + "/double"
	if newPod {
		path += "?pod=new"
	}
	var list PodList
	err := c.do(ctx, http.MethodPost, path, nil, &list)
	return list.Pods, err
}

// Rotate gives the fleet other credentials for a target cluster of a landscape, or for all without
// a name.
func (c Client) Rotate(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/targets/rotate?name="+url.QueryEscape(name), nil, &struct{}{})
}

// Links lists the proxies of the fleet's processes.
func (c Client) Links(ctx context.Context) ([]Link, error) {
	var list LinkList
	err := c.do(ctx, http.MethodGet, "/v1/links", nil, &list)
	return list.Links, err
}

// SetFault sets the fault of one link of a process.
func (c Client) SetFault(ctx context.Context, process, link string, fault proxy.Fault) (Link, error) {
	var changed Link
	err := c.do(ctx, http.MethodPut, "/v1/links/"+url.PathEscape(process)+"/"+url.PathEscape(link), fault, &changed)
	return changed, err
}

// Save saves the content of etcd to a new file.
func (c Client) Save(ctx context.Context, snapshot Snapshot) error {
	return c.do(ctx, http.MethodPost, "/v1/etcd/save", snapshot, &snapshot)
}

// Restore restores etcd from a file. It returns when the control plane is ready.
func (c Client) Restore(ctx context.Context, snapshot Snapshot) error {
	return c.do(ctx, http.MethodPost, "/v1/etcd/restore", snapshot, &snapshot)
}

// do sends a request with a body, unless that is nil, and reads the answer.
func (c Client) do(ctx context.Context, method, path string, body, into any) error {
	var endpoints map[string]string
	if err := c.folder.readJSON(endpointsFile, &endpoints); err != nil && !absent(err) {
		return err
	}
	base, ok := endpoints[launcherName]
	if !ok {
		return fmt.Errorf("no lab runs in %s (lab up starts one)", c.folder)
	}
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return fmt.Errorf("%s %s: encoding the request: %w", method, path, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, &content)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the launcher does not answer (lab down ends the remaining processes): %w", err)
	}
	defer resp.Body.Close()
	decoder := json.NewDecoder(resp.Body)
	if resp.StatusCode != http.StatusOK {
		var refusal ErrorBody
		if err := decoder.Decode(&refusal); err != nil {
			return fmt.Errorf("%s %s: %s", method, path, resp.Status)
		}
		return fmt.Errorf("the launcher rejected the request: %s", refusal.Error)
	}
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("the launcher's answer to %s %s: %w", method, path, err)
	}
	return nil
}
