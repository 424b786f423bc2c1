package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Cloud is the lab's simulated cloud, as its operator sees it.
type Cloud struct{ endpoint, log string }

// Set changes settings while the cloud runs; patch is a JSON merge patch of cloudapi.Settings.
func (c *Cloud) Set(ctx context.Context, patch string) error {
	return send(ctx, http.MethodPatch, c.endpoint+cloudapi.PathSettings, strings.NewReader(patch), nil)
}

// Act applies an action to one VM.
func (c *Cloud) Act(ctx context.Context, id string, action cloudapi.Action) error {
	body, err := json.Marshal(cloudapi.InstanceAction{Action: action})
	if err != nil {
		return fmt.Errorf("encode the action: %w", err)
	}
	path := strings.Replace(cloudapi.PathInstanceActions, "{id}", url.PathEscape(id), 1)
	return send(ctx, http.MethodPost, c.endpoint+path, bytes.NewReader(body), nil)
}

// Create creates a VM, as a client that is not part of the fleet.
func (c *Cloud) Create(ctx context.Context, request cloudapi.CreateInstanceRequest) (created cloudapi.Instance, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return created, fmt.Errorf("encode the request: %w", err)
	}
	err = send(ctx, http.MethodPost, c.endpoint+cloudapi.PathInstances, bytes.NewReader(body), &created)
	return created, err
}

// VMs returns all VMs that have not ended, only those of the namespace if one is given.
func (c *Cloud) VMs(ctx context.Context, namespace string) ([]cloudapi.Instance, error) {
	query := url.Values{cloudapi.QueryPageSize: {strconv.Itoa(cloudapi.MaxPageSize)}}
	if namespace != "" {
		query.Set(cloudapi.QueryTag, TagCluster+"="+namespace)
	}
	var all []cloudapi.Instance
	for {
		var page cloudapi.InstanceList
		if err := send(ctx, http.MethodGet, c.endpoint+cloudapi.PathInstances+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		for _, vm := range page.Items {
			if vm.State != cloudapi.StateTerminated && vm.State != cloudapi.StateStopping {
				all = append(all, vm)
			}
		}
		if page.NextPageToken == "" {
			return all, nil
		}
		query.Set(cloudapi.QueryPageToken, page.NextPageToken)
	}
}

// History returns all VMs of a namespace that the cloud has stored, also those that have ended. It
// is not recorded in the call log, and faults do not apply to it.
func (c *Cloud) History(ctx context.Context, namespace string) ([]cloudapi.Instance, error) {
	var all cloudapi.InstanceList
	if err := send(ctx, http.MethodGet, c.endpoint+cloudapi.PathAllInstances, nil, &all); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all.Items, func(vm cloudapi.Instance) bool { return vm.Tags[TagCluster] != namespace }), nil
}

// AllVMs returns all VMs that the cloud has stored, ended ones too.
func (c *Cloud) AllVMs(ctx context.Context) ([]cloudapi.Instance, error) {
	var all cloudapi.InstanceList
	err := send(ctx, http.MethodGet, c.endpoint+cloudapi.PathAllInstances, nil, &all)
	return all.Items, err
}

// Leftovers returns what creates that failed have left for machines of a namespace: network
// interfaces and disks without a VM. Like History it is not recorded in the call log.
func (c *Cloud) Leftovers(ctx context.Context, namespace string) ([]cloudapi.Leftover, error) {
	var all cloudapi.LeftoverList
	if err := send(ctx, http.MethodGet, c.endpoint+cloudapi.PathAllLeftovers, nil, &all); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all.Items, func(l cloudapi.Leftover) bool { return l.Tags[TagCluster] != namespace }), nil
}

// Calls returns the call log.
func (c *Cloud) Calls() ([]cloudapi.Call, error) {
	var calls []cloudapi.Call
	err := eachLine(c.log, 0, func(line []byte) error {
		var call cloudapi.Call
		if err := json.Unmarshal(line, &call); err != nil {
			return err
		}
		calls = append(calls, call)
		return nil
	})
	return calls, err
}

// eachLine reads a file of JSON lines from an offset on. A last line without an end is being
// written and left out.
func eachLine(file string, offset int64, f func(line []byte) error) error {
	in, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	defer in.Close()
	if _, err := in.Seek(max(offset-1, 0), io.SeekStart); err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	lines := bufio.NewReaderSize(in, 1<<20)
	if offset > 0 { // the end of a line, or of one that was partly written then
		if _, err := lines.ReadBytes('\n'); err != nil && err != io.EOF {
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if err := f(line); err != nil {
			return fmt.Errorf("read %s: %w in line %q", file, err, line)
		}
	}
}

// send sends one HTTP request and decodes the answer into out, unless that is nil.
func send(ctx context.Context, method, url string, body io.Reader, out any) error {
	return sendBy(ctx, http.DefaultClient, method, url, body, out)
}

// sendBy is send by another client.
func sendBy(ctx context.Context, client *http.Client, method, url string, body io.Reader, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, bytes.TrimSpace(answer))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s %s: decode the answer: %w", method, url, err)
	}
	return nil
}
