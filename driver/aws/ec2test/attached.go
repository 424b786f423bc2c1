package ec2test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// status is the state of a network interface or a volume.
func (a *Attached) status() string {
	if a.Instance == "" {
		return "available"
	}
	return "in-use"
}

// show is how a network interface is shown.
func (a *Attached) show() nicItem {
	shown := nicItem{ID: a.ID, Status: a.status(), SourceDestCheck: a.SourceDestCheck, Tags: showTags(a.Tags)}
	if a.Instance != "" {
		shown.DeviceIndex, shown.CardIndex = &a.device, &a.card
	}
	for i := range a.Prefixes {
		shown.Prefixes = append(shown.Prefixes, prefixItem{fmt.Sprintf("2001:db8:%x::/80", i)})
	}
	return shown
}

// some returns a page of the network interfaces or volumes that meet the filters of a request.
func (c *Cloud) some(form url.Values, isNIC bool) (found []*Attached, next string, refused *refusal) {
	by := filters(elements(form, "Filter"))
	var keys []string
	for _, id := range slices.Sorted(maps.Keys(c.attached)) {
		a := c.attached[id]
		has, refused := by.matches(a.Tags, a.status())
		if refused != nil {
			return nil, "", refused
		}
		if has && a.isNIC == isNIC {
			keys = append(keys, id)
		}
	}
	keys, next, refused = c.page(form, keys)
	for _, id := range keys {
		found = append(found, c.attached[id])
	}
	return found, next, refused
}

// describeNetworkInterfaces shows network interfaces.
func (c *Cloud) describeNetworkInterfaces(form url.Values) (answer any, refused *refusal) {
	found, next, refused := c.some(form, true)
	out := describeNICsAnswer{RequestID: requestID, NextToken: next}
	for _, a := range found {
		out.NICs.Items = append(out.NICs.Items, a.show())
	}
	return out, refused
}

// describeVolumes shows volumes.
func (c *Cloud) describeVolumes(form url.Values) (answer any, refused *refusal) {
	found, next, refused := c.some(form, false)
	out := describeVolumesAnswer{RequestID: requestID, NextToken: next}
	for _, a := range found {
		out.Volumes.Items = append(out.Volumes.Items, volumeItem{ID: a.ID, Status: a.status(), Tags: showTags(a.Tags)})
	}
	return out, refused
}

// nic returns the network interface that a request names.
func (c *Cloud) nic(form url.Values) (*Attached, *refusal) {
	id := form.Get("NetworkInterfaceId")
	if a := c.attached[id]; a != nil && a.isNIC {
		return a, nil
	}
	return nil, refuse(http.StatusBadRequest, "InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '%s' does not exist", id)
}

// deleteNetworkInterface deletes a network interface that no instance uses.
func (c *Cloud) deleteNetworkInterface(form url.Values) (answer any, refused *refusal) {
	a, refused := c.nic(form)
	switch {
	case refused != nil:
		return nil, refused
	case a.Instance != "":
		return nil, refuse(http.StatusBadRequest, "InvalidNetworkInterface.InUse", "Network interface '%s' is currently in use.", a.ID)
	}
	delete(c.attached, a.ID)
	return doneAnswer{requestID, true}, nil
}

// deleteVolume deletes a volume that no instance uses.
func (c *Cloud) deleteVolume(form url.Values) (answer any, refused *refusal) {
	id := form.Get("VolumeId")
	a := c.attached[id]
	switch {
	case a == nil || a.isNIC:
		return nil, refuse(http.StatusBadRequest, "InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
	case a.Instance != "":
		return nil, refuse(http.StatusBadRequest, "VolumeInUse", "Volume %s is currently attached to %s", id, a.Instance)
	}
	delete(c.attached, id)
	return doneAnswer{requestID, true}, nil
}

// modifyNetworkInterface sets whether a network interface checks source and destination.
func (c *Cloud) modifyNetworkInterface(form url.Values) (answer any, refused *refusal) {
	a, refused := c.nic(form)
	if refused != nil {
		return nil, refused
	}
	a.SourceDestCheck = form.Get("SourceDestCheck.Value") == "true"
	return doneAnswer{requestID, true}, nil
}

// assignPrefixes adds IPv6 prefixes to a network interface.
func (c *Cloud) assignPrefixes(form url.Values) (answer any, refused *refusal) {
	a, refused := c.nic(form)
	if refused != nil {
		return nil, refused
	}
	a.Prefixes += number(form.Get("Ipv6PrefixCount"))
	return prefixesAnswer{RequestID: requestID, NIC: a.ID}, nil
}
