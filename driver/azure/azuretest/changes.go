package azuretest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"
)

// put creates or changes a resource.
func (c *Cloud) put(r *http.Request, p path, body []byte, found *resource) func(http.ResponseWriter) {
	var sent struct {
		Location   string            `json:"location"`
		Tags       map[string]string `json:"tags"`
		Zones      []string          `json:"zones"`
		Properties map[string]any    `json:"properties"`
	}
	if err := json.Unmarshal(body, &sent); err != nil || sent.Properties == nil || sent.Location == "" {
		return badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized.")
	}
	switch {
	case found != nil && found.state == stateDeleting:
		return conflict("AnotherOperationInProgress", "The resource is being deleted.")
	case found != nil && r.Header.Get("If-None-Match") == "*":
		return (&refusal{
			status: http.StatusPreconditionFailed, code: "PreconditionFailed", message: "The precondition given in the request is not met.",
		}).write
	case found != nil:
		found.tags = sent.Tags
		return writeJSON(http.StatusOK, c.show(found))
	case len(c.resources) >= maxResources:
		return conflict("QuotaExceeded", "The number of resources exceeds the quota.")
	}
	created := &resource{
		id:         r.URL.Path,
		kind:       p.kind,
		location:   sent.Location,
		tags:       sent.Tags,
		zones:      sent.Zones,
		properties: sent.Properties,
		state:      stateCreating,
	}
	now, status := c.cfg.Clock.Now(), http.StatusCreated
	due := now.Add(c.cfg.CreateTime)
	switch p.kind {
	case kindNIC:
		due, created.state = now, stateSucceeded
		c.giveAddress(created)
	case kindDisk:
		status = http.StatusAccepted
		if c.cfg.CreateTime == 0 {
			created.state = stateSucceeded
		}
	case kindVM:
		if refused := c.assemble(created); refused != nil {
			return refused
		}
		c.register(created)
	}
	if created.state == stateCreating {
		created.due = due
	}
	c.resources[strings.ToLower(created.id)] = created
	shown := c.show(created)
	if p.kind == kindDisk { // the real one shows no more until the disk exists
		delete(shown, "id")
		delete(shown, "tags")
	}
	return c.begin(r, status, shown, due, created.reason)
}

// register completes a new VM. What the cloud shows of a VM has no custom data.
func (c *Cloud) register(vm *resource) {
	c.created++
	vm.properties["vmId"] = fmt.Sprintf("00000000-0000-4000-8000-%012x", c.created)
	vm.reason = c.shortage
	if profile, ok := vm.properties["osProfile"].(map[string]any); ok {
		vm.customData, _ = profile["customData"].(string)
		delete(profile, "customData")
	}
	c.stats.VMs++
	if len(c.everCreated) < maxResources {
		c.everCreated = append(c.everCreated, Resource{ID: vm.id, Tags: maps.Clone(vm.tags)})
	}
}

// giveAddress gives a network interface an address.
func (c *Cloud) giveAddress(nic *resource) {
	c.created++
	configurations, _ := nic.properties["ipConfigurations"].([]any)
	for _, configuration := range configurations {
		if properties, ok := at(configuration, "properties").(map[string]any); ok {
			properties["privateIPAddress"] = fmt.Sprintf("10.%d.%d.%d", c.created>>16&255, c.created>>8&255, c.created&255)
		}
	}
}

// assemble attaches network interfaces and disks to a new VM, and creates those disks that do not
// exist. It returns a refusal, before it has changed anything, if one of them cannot be attached.
func (c *Cloud) assemble(vm *resource) func(http.ResponseWriter) {
	nics, _ := at(vm.properties, "networkProfile", "networkInterfaces").([]any)
	dataDisks, _ := at(vm.properties, "storageProfile", "dataDisks").([]any)
	osDisk := at(vm.properties, "storageProfile", "osDisk")
	if len(nics) == 0 || osDisk == nil {
		return badRequest("InvalidParameter", "A VM needs a network interface and an OS disk.")
	}
	var attached, created []*resource
	for _, nic := range nics {
		id, _ := at(nic, "id").(string)
		found := c.resources[strings.ToLower(id)]
		switch {
		case found == nil:
			return badRequest("InvalidResourceReference", "Resource "+id+" referenced by the VM was not found.")
		case found.user != "":
			return badRequest("NicInUse", "Network interface "+id+" is used by another VM.")
		}
		found.deletedWith = at(nic, "properties", "deleteOption") == "Delete"
		attached = append(attached, found)
	}
	for _, disk := range append([]any{osDisk}, dataDisks...) {
		name, _ := at(disk, "name").(string)
		group, _, _ := strings.Cut(vm.id, "/providers/")
		id := group + "/providers/Microsoft.Compute/disks/" + name
		found := c.resources[strings.ToLower(id)]
		attach := at(disk, "createOption") == "Attach"
		switch {
		case attach && (found == nil || found.state != stateSucceeded || found.user != ""):
			return conflict("ReferencedResourceNotProvisioned", "Disk "+id+" cannot be attached.")
		case !attach && found != nil:
			return conflict("ConflictingUserInput", "Disk "+id+" already exists.")
		case !attach:
			found = &resource{
				id: id, kind: kindDisk, location: vm.location, tags: vm.tags, zones: vm.zones, properties: map[string]any{}, state: stateSucceeded,
			}
			created = append(created, found)
		}
		found.deletedWith = at(disk, "deleteOption") == "Delete"
		attached = append(attached, found)
	}
	for _, disk := range created {
		c.resources[strings.ToLower(disk.id)] = disk
	}
	for _, part := range attached {
		part.user = vm.id
	}
	return nil
}

// remove begins to delete a resource.
func (c *Cloud) remove(r *http.Request, found *resource) func(http.ResponseWriter) {
	switch {
	case found.user != "" && found.kind == kindNIC:
		return badRequest("NicInUse", "Network interface "+found.id+" is used by a VM.")
	case found.user != "":
		return conflict("OperationNotAllowed", "Disk "+found.id+" is attached to a VM.")
	case found.state == stateDeleting:
		return c.begin(r, http.StatusAccepted, nil, found.due, "")
	}
	due := c.cfg.Clock.Now()
	if found.kind != kindNIC {
		due = due.Add(c.cfg.DeleteTime)
	}
	found.state, found.due, found.reason = stateDeleting, due, ""
	return c.begin(r, http.StatusAccepted, nil, due, "")
}

// start starts a VM that has failed.
func (c *Cloud) start(r *http.Request, found *resource) func(http.ResponseWriter) {
	if found.state == stateDeleting {
		return conflict("AnotherOperationInProgress", "The VM is being deleted.")
	}
	due := c.cfg.Clock.Now().Add(max(c.cfg.CreateTime, time.Nanosecond))
	found.state, found.due, found.reason = stateUpdating, due, c.shortage
	return c.begin(r, http.StatusAccepted, nil, due, c.shortage)
}

// at returns a value inside of decoded JSON; nil when there is none.
func at(from any, keys ...string) any {
	for _, key := range keys {
		object, ok := from.(map[string]any)
		if !ok {
			return nil
		}
		from = object[key]
	}
	return from
}
