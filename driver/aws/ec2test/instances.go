package ec2test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
)

// runInstances creates one instance.
func (c *Cloud) runInstances(form url.Values) (answer any, refused *refusal) {
	token, parameters := form.Get("ClientToken"), maps.Clone(form)
	parameters.Del("ClientToken")
	if record, known := c.tokens[token]; known && token != "" {
		i, exists := c.instances[record.instance]
		switch {
		case record.parameters != parameters.Encode():
			return nil, refuse(http.StatusBadRequest, "IdempotentParameterMismatch",
				"Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
		case !exists || i.State == stateTerminated:
			return nil, refuse(http.StatusBadRequest, "IdempotentInstanceTerminated",
				"The client token you have provided is associated with a resource that is already terminated. Please use a different client token.")
		}
		return c.ran(i), nil
	}
	if refused := c.invalid(form); refused != nil {
		return nil, refused
	}
	instance := ""
	isPartly := c.failure != nil && c.failure.Partly
	var i *Instance
	if !isPartly {
		i = c.newInstance(Instance{
			Image: form.Get("ImageId"), MachineType: form.Get("InstanceType"), Tags: tagsOf(form, "instance"),
			Zone: c.settings.Subnets[elements(form, "NetworkInterface")[0].Get("SubnetId")],
		})
		instance = i.ID
	}
	for _, nic := range elements(form, "NetworkInterface") {
		c.attach(Attached{
			isNIC: true, Instance: instance, Tags: tagsOf(form, "network-interface"), SourceDestCheck: true,
			endsWithOwner: nic.Get("DeleteOnTermination") == "true",
			device:        number(nic.Get("DeviceIndex")), card: number(nic.Get("NetworkCardIndex")),
		})
	}
	for _, device := range elements(form, "BlockDeviceMapping") {
		c.attach(Attached{Instance: instance, Tags: tagsOf(form, "volume"), endsWithOwner: device.Get("Ebs.DeleteOnTermination") == "true"})
	}
	if isPartly {
		return nil, refuse(http.StatusInternalServerError, "InternalError", "An internal error has occurred")
	}
	if token != "" {
		c.tokens[token] = tokenRecord{parameters: parameters.Encode(), instance: i.ID, created: c.clock.Now()}
	}
	return c.ran(i), nil
}

// ran is the answer with an instance.
func (c *Cloud) ran(i *Instance) runAnswer {
	shown := c.show(i)
	if c.settings.LateTags {
		shown.Tags = tagSet{}
	}
	return runAnswer{RequestID: requestID, ID: "r-" + i.ID[2:], Instances: instanceSet{[]instanceItem{shown}}}
}

// number returns a number of a form, 0 for none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// invalid refuses a create that cannot work.
func (c *Cloud) invalid(form url.Values) *refusal {
	if form.Get("MinCount") != "1" || form.Get("MaxCount") != "1" {
		return refuse(http.StatusBadRequest, "InvalidParameterValue", "expected one instance")
	}
	if len(form.Get("ClientToken")) > 64 {
		return refuse(http.StatusBadRequest, "InvalidParameterValue", "Invalid client token: it has more than 64 characters")
	}
	if image := form.Get("ImageId"); c.settings.Images[image] == "" {
		return refuse(http.StatusBadRequest, "InvalidAMIID.NotFound", "The image id '[%s]' does not exist", image)
	}
	if machineType := form.Get("InstanceType"); len(c.settings.MachineTypes) > 0 && !slices.Contains(c.settings.MachineTypes, machineType) {
		return refuse(http.StatusBadRequest, "InvalidParameterValue", "Invalid value '%s' for InstanceType.", machineType)
	}
	nics := elements(form, "NetworkInterface")
	if len(nics) == 0 {
		return refuse(http.StatusBadRequest, "MissingParameter", "expected a network interface")
	}
	for _, nic := range nics {
		if subnet := nic.Get("SubnetId"); c.settings.Subnets[subnet] == "" {
			return refuse(http.StatusBadRequest, "InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", subnet)
		}
	}
	living := 0
	for _, i := range c.instances {
		if i.State != stateTerminated {
			living++
		}
	}
	if len(c.instances) >= maxInstances || c.settings.Quota > 0 && living >= c.settings.Quota {
		return refuse(http.StatusBadRequest, "VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit allows.")
	}
	return nil
}

// isShown reports whether the cloud shows an instance yet.
func (c *Cloud) isShown(i *Instance) bool { return !c.hides && !c.clock.Now().Before(i.visible) }

// isID matches the IDs of instances.
var isID = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

// named returns the instances of IDs.
func (c *Cloud) named(ids []string) (found []*Instance, refused *refusal) {
	for _, id := range ids {
		if !isID.MatchString(id) {
			return nil, refuse(http.StatusBadRequest, "InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		}
		i := c.instances[id]
		if i == nil || !c.isShown(i) {
			return nil, refuse(http.StatusBadRequest, "InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
		}
		found = append(found, i)
	}
	return found, nil
}

// describeInstances shows instances, each in its own reservation.
func (c *Cloud) describeInstances(form url.Values) (answer any, refused *refusal) {
	ids := values(form, "InstanceId")
	if len(ids) > 0 && form.Has("MaxResults") {
		return nil, refuse(http.StatusBadRequest, "InvalidParameterCombination",
			"The parameter instancesSet cannot be used with the parameter maxResults")
	}
	shown, refused := c.named(ids)
	if refused != nil {
		return nil, refused
	}
	if len(ids) == 0 {
		shown = slices.DeleteFunc(c.inOrder(), func(i *Instance) bool { return !c.isShown(i) })
	}
	by := filters(elements(form, "Filter"))
	var keys []string
	for _, i := range shown {
		has, refused := by.matches(i.Tags, i.State)
		if refused != nil {
			return nil, refused
		}
		if has {
			keys = append(keys, i.ID) // IDs are in the order of creation
		}
	}
	page, next, refused := c.page(form, keys)
	if refused != nil {
		return nil, refused
	}
	out := describeInstancesAnswer{RequestID: requestID, NextToken: next}
	for _, id := range page {
		out.Reservations.Items = append(out.Reservations.Items, reservationItem{
			ID: "r-" + id[2:], Instances: instanceSet{[]instanceItem{c.show(c.instances[id])}},
		})
	}
	return out, nil
}

// terminateInstances begins to end instances: all, or none if one does not exist.
func (c *Cloud) terminateInstances(form url.Values) (answer any, refused *refusal) {
	found, refused := c.named(values(form, "InstanceId"))
	if refused != nil {
		return nil, refused
	}
	out := terminateAnswer{RequestID: requestID}
	for _, i := range found {
		before := i.State
		c.terminate(i, c.settings.StopTime)
		out.Changes.Items = append(out.Changes.Items, changeItem{ID: i.ID, Current: stateOf(i.State), Previous: stateOf(before)})
	}
	return out, nil
}

// stateOf is how a state is shown.
func stateOf(name string) stateItem {
	return stateItem{Name: name, Code: map[string]int{statePending: 0, stateRunning: 16, stateShutting: 32, stateTerminated: 48}[name]}
}

// show is how an instance is shown.
func (c *Cloud) show(i *Instance) instanceItem {
	shown := instanceItem{ID: i.ID, Image: i.Image, State: stateOf(i.State), MachineType: i.MachineType, Zone: i.Zone, Tags: showTags(i.Tags)}
	if i.State != stateTerminated {
		shown.PrivateIP = fmt.Sprintf("10.%d.%d.%d", i.number>>16&0xff, i.number>>8&0xff, i.number&0xff)
		shown.PrivateDNSName = fmt.Sprintf("ip-10-%d-%d-%d.%s.compute.internal",
			i.number>>16&0xff, i.number>>8&0xff, i.number&0xff, c.settings.Region)
	}
	if i.Reason != "" {
		shown.Reason = &reasonItem{Code: "Client.UserInitiatedShutdown", Message: i.Reason}
	}
	for _, id := range slices.Sorted(maps.Keys(c.attached)) {
		if a := c.attached[id]; a.isNIC && a.Instance == i.ID {
			shown.NICs.Items = append(shown.NICs.Items, a.show())
		}
	}
	return shown
}

// showTags is how tags are shown.
func showTags(tags map[string]string) (set tagSet) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		set.Items = append(set.Items, tagItem{key, tags[key]})
	}
	return set
}

// describeImages shows images.
func (c *Cloud) describeImages(form url.Values) (answer any, refused *refusal) {
	out := describeImagesAnswer{RequestID: requestID}
	for _, id := range values(form, "ImageId") {
		root, known := c.settings.Images[id]
		if !known {
			return nil, refuse(http.StatusBadRequest, "InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
		out.Images.Items = append(out.Images.Items, imageItem{ID: id, RootDevice: root})
	}
	return out, nil
}
