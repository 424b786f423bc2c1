package cloudsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/cloudsim/guest"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// admin returns a handler for the operator of the cloud: no latency, no faults, no call log.
func (c *Cloud) admin(do func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		body, err := do(r)
		if err != nil {
			answer(w, c.refused(err))
			return
		}
		answer(w, outcome{body: body})
	}
}

// patchSettings changes the settings by a JSON merge patch. All VMs are stepped again: zones may
// have failed.
func (c *Cloud) patchSettings(r *http.Request) (any, error) {
	patch, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, invalid("the body cannot be read: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	patched, err := mergeSettings(c.settings.Current, patch)
	if err != nil {
		return nil, err
	}
	if err := validate(patched, c.offers); err != nil {
		return nil, invalid("%v", err)
	}
	if err := c.commit(change{settings: &savedSettings{Start: c.settings.Start, Current: patched}}); err != nil {
		return nil, err
	}
	for _, id := range c.order {
		c.life.Wake(id)
	}
	c.cfg.Log.Info("The settings were changed", "patch", string(patch))
	return patched, nil
}

func mergeSettings(current cloudapi.Settings, patch []byte) (cloudapi.Settings, error) {
	raw, err := json.Marshal(current)
	if err != nil {
		return cloudapi.Settings{}, fmt.Errorf("encode the settings: %w", err)
	}
	merged, err := jsonpatch.MergePatch(raw, patch)
	if err != nil {
		return cloudapi.Settings{}, invalid("the body is no JSON merge patch: %v", err)
	}
	var patched cloudapi.Settings
	decoder := json.NewDecoder(bytes.NewReader(merged))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&patched); err != nil {
		return cloudapi.Settings{}, invalid("expected settings: %v", err)
	}
	return patched, nil
}

// sameSettings compares settings as they are written.
func sameSettings(a, b cloudapi.Settings) bool {
	left, errLeft := json.Marshal(a)
	right, errRight := json.Marshal(b)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}

// allInstances returns every VM that is not forgotten.
func (c *Cloud) allInstances() cloudapi.InstanceList {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := cloudapi.InstanceList{Items: make([]cloudapi.Instance, 0, len(c.order))}
	for _, id := range c.order {
		list.Items = append(list.Items, c.instances[id].API)
	}
	return list
}

// hostInstance creates the VM of another cloud, or finds the one that its token created. Quotas and
// failed zones do not matter.
func (c *Cloud) hostInstance(r *http.Request) (any, error) {
	var body cloudapi.HostedInstance
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	if body.ProviderID == "" || body.ClientToken == "" {
		return nil, invalid("expected a providerID and a clientToken, got %q and %q", body.ProviderID, body.ClientToken)
	}
	params, err := c.checkCreate(&body.CreateInstanceRequest)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, used := c.byToken[body.ClientToken]; used {
		return c.instances[id].API, nil
	}
	created, volumes, err := c.newInstance(body.CreateInstanceRequest, params, 0)
	if err != nil {
		return nil, err
	}
	created.API.ProviderID = body.ProviderID
	if err := c.commit(change{instances: []*instance{created}, volumes: volumes}); err != nil {
		return nil, err
	}
	c.life.Wake(created.API.ID)
	return created.API, nil
}

// actOnInstance does an action on a VM.
func (c *Cloud) actOnInstance(r *http.Request) (any, error) {
	var body cloudapi.InstanceAction
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i, err := c.lookUp(r.PathValue("id"), &cloudapi.Call{})
	if err != nil {
		return nil, err
	}
	if !i.alive() {
		return nil, refuse(cloudapi.CodeConflict, "%s is %s", i.API.ID, i.API.State)
	}
	now, after := c.cfg.Clock.Now(), i.clone()
	switch body.Action {
	case cloudapi.ActionDie:
		after.end(now, "it died: the action was requested")
	case cloudapi.ActionLoseReady:
		after.Health = guest.NotReady
	case cloudapi.ActionFreeze:
		after.Health = guest.Frozen
	case cloudapi.ActionRecover:
		after.Health, after.Fate.LoseReadyAt = guest.Healthy, time.Time{}
	default:
		return nil, invalid("unknown action %q", body.Action)
	}
	if err := c.commit(c.replace(after)); err != nil {
		return nil, err
	}
	c.life.Wake(i.API.ID)
	return after.API, nil
}
