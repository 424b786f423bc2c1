package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/machine-controller-fleet/machine-controller-fleet/lab/supervise"
)

// Client talks to the launcher of a lab.
type Client struct {
	folder Folder
}

// NewClient makes a client for the lab in a folder.
func NewClient(folder Folder) Client { return Client{folder: folder} }

// Processes lists the processes.
func (c Client) Processes(ctx context.Context) ([]supervise.Process, error) {
	var list ProcessList
	err := c.do(ctx, http.MethodGet, "/v1/processes", &list)
	return list.Processes, err
}

// Health asks which processes answer.
func (c Client) Health(ctx context.Context) (Health, error) {
	var health Health
	err := c.do(ctx, http.MethodGet, "/v1/health", &health)
	return health, err
}

// Act does something to a process, and says how it is afterwards. See Launcher.ServeHTTP for the actions.
func (c Client) Act(ctx context.Context, name, action string) (supervise.Process, error) {
	var p supervise.Process
	err := c.do(ctx, http.MethodPost, "/v1/processes/"+url.PathEscape(name)+"/"+url.PathEscape(action), &p)
	return p, err
}

func (c Client) do(ctx context.Context, method, path string, into any) error {
	var endpoints map[string]string
	if err := c.folder.readJSON(endpointsFile, &endpoints); err != nil && !absent(err) {
		return err
	}
	base, ok := endpoints[launcherName]
	if !ok {
		return fmt.Errorf("no lab runs in %s (lab up starts one)", c.folder)
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, nil)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the launcher does not answer (lab down ends what it has left): %w", err)
	}
	defer resp.Body.Close()
	decoder := json.NewDecoder(resp.Body)
	if resp.StatusCode != http.StatusOK {
		var body ErrorBody
		if err := decoder.Decode(&body); err != nil {
			return fmt.Errorf("%s %s: %s", method, path, resp.Status)
		}
		return fmt.Errorf("the launcher refuses: %s", body.Error)
	}
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("the launcher's answer to %s %s: %w", method, path, err)
	}
	return nil
}
