package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/azure/azuretest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

const (
	// requestTime bounds a request to cloudsim.
	requestTime = 10 * time.Second
	// maxAnswer bounds its answer.
	maxAnswer = 1 << 20
	// stateOn is the state in which a VM runs.
	stateOn = "Succeeded"
)

// guests runs the VMs of the cloud at cloudsim: it starts one there when the cloud has created it,
// and stops it when its deletion begins. A VM without custom data runs nowhere.
type guests struct {
	cloud    *azuretest.Cloud
	cloudsim string
	boot     cloudapi.BootMode
	client   *http.Client
	log      *slog.Logger
	running  map[string]string // the IDs at cloudsim, by vmId
}

func newGuests(cloud *azuretest.Cloud, o options, log *slog.Logger) *guests {
	return &guests{
		cloud: cloud, cloudsim: o.cloudsim, boot: o.boot, client: &http.Client{Timeout: requestTime}, log: log, running: map[string]string{},
	}
}

// run brings cloudsim up to date with each tick, until ctx ends.
func (g *guests) run(ctx context.Context, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			g.client.CloseIdleConnections()
			return
		case <-tick:
		}
		if err := g.sync(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn("Failed to start or stop VMs at cloudsim; trying again", "err", err)
		}
	}
}

// sync starts and stops VMs. What fails is tried again with the next call: cloudsim starts each
// vmId once.
func (g *guests) sync(ctx context.Context) (err error) {
	on := map[string]bool{}
	for _, vm := range g.cloud.VMs() {
		id, _ := vm.Properties["vmId"].(string)
		if vm.CustomData == "" || vm.State != stateOn {
			continue
		}
		on[id] = true
		if _, runs := g.running[id]; !runs {
			err = errors.Join(err, g.start(ctx, id, vm))
		}
	}
	for id, at := range g.running {
		if !on[id] {
			err = errors.Join(err, g.stop(ctx, id, at))
		}
	}
	return err
}

// start starts a VM.
func (g *guests) start(ctx context.Context, id string, vm azuretest.Resource) error {
	userData, err := base64.StdEncoding.DecodeString(vm.CustomData)
	if err != nil {
		return fmt.Errorf("the custom data of VM %s: %w", vm.ID, err)
	}
	profile, _ := vm.Properties["osProfile"].(map[string]any)
	name, _ := profile["computerName"].(string)
	var created cloudapi.Instance
	err = g.send(ctx, cloudapi.PathAllInstances, cloudapi.HostedInstance{
		CreateInstanceRequest: cloudapi.CreateInstanceRequest{
			Name: strings.ToLower(name), ClientToken: id, Tags: vm.Tags, Boot: g.boot, UserData: userData,
		},
		ProviderID: providerID(vm.ID),
	}, &created)
	if err != nil {
		return err
	}
	g.running[id] = created.ID
	return nil
}

// stop stops a VM. One that has ended by itself cannot be stopped, and is stopped.
func (g *guests) stop(ctx context.Context, id, at string) error {
	path := strings.Replace(cloudapi.PathInstanceActions, "{id}", url.PathEscape(at), 1)
	err := g.send(ctx, path, cloudapi.InstanceAction{Action: cloudapi.ActionDie}, nil)
	if refused, ok := errors.AsType[*refusal](err); ok && (refused.status == http.StatusConflict || refused.status == http.StatusNotFound) {
		err = nil
	}
	if err == nil {
		delete(g.running, id)
	}
	return err
}

// providerID returns the provider ID of a VM's Node, as cloud-provider-azure has it: the resource
// group is in lower case.
func providerID(vm string) string {
	parts := strings.Split(vm, "/")
	for i := range parts[1:] {
		if strings.EqualFold(parts[i], "resourceGroups") {
			parts[i+1] = strings.ToLower(parts[i+1])
		}
	}
	return "azure://" + strings.Join(parts, "/")
}

// refusal is an answer of cloudsim that is no success.
type refusal struct {
	status int
	body   cloudapi.ErrorBody
}

// Error returns cloudsim's message.
func (r *refusal) Error() string {
	return fmt.Sprintf("cloudsim: %d %s: %s", r.status, r.body.Code, r.body.Message)
}

// send posts a body to cloudsim, and decodes the answer into out, unless that is nil.
func (g *guests) send(ctx context.Context, path string, body, out any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	//nolint:gosec // the lab names its own cloudsim
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.cloudsim+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	resp, err := g.client.Do(req) //nolint:gosec // as above
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		refused := &refusal{status: resp.StatusCode}
		_ = json.Unmarshal(answer, &refused.body) // without one the status is all that is known
		return refused
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
