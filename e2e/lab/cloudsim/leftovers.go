package cloudsim

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// createPartly makes the left-overs of a VM, and not the VM. A create whose token has created
// those, or the VM, before creates nothing.
func (c *Cloud) createPartly(req cloudapi.CreateInstanceRequest, call *cloudapi.Call) error {
	if _, err := c.checkCreate(&req); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := c.byToken[req.ClientToken]; used || len(c.leftoversOf(req.ClientToken)) > 0 {
		return nil
	}
	if err := c.checkRoom(req); err != nil {
		return err
	}
	number, err := c.store.sequence(bucketLeftovers)
	if err != nil {
		return err
	}
	var created []*cloudapi.Leftover
	for _, kind := range []cloudapi.LeftoverKind{cloudapi.LeftoverNetworkInterface, cloudapi.LeftoverDisk} {
		created = append(created, &cloudapi.Leftover{
			ID: fmt.Sprintf("left-%012x-%s", number, kind), Kind: kind, Name: req.Name + "-" + string(kind), Region: req.Region, Zone: req.Zone,
			Tags: req.Tags, ClientToken: req.ClientToken,
		})
	}
	call.Changed = true
	return c.commit(change{leftovers: created, call: call})
}

// leftoversOf returns the IDs of the left-overs of creates with a client token. c.mu is held.
func (c *Cloud) leftoversOf(token string) (ids []string) {
	for id, l := range c.leftovers {
		if token != "" && l.ClientToken == token {
			ids = append(ids, id)
		}
	}
	return ids
}

// deleteLeftovers removes all left-overs that have some tags.
func (c *Cloud) deleteLeftovers(query url.Values, call *cloudapi.Call) (cloudapi.LeftoverList, error) {
	tags := query[cloudapi.QueryTag]
	if len(tags) == 0 {
		return cloudapi.LeftoverList{}, invalid("expected at least one %s: left-overs have several owners", cloudapi.QueryTag)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	removed := cloudapi.LeftoverList{Items: []cloudapi.Leftover{}}
	ch := change{call: call}
	for _, l := range c.listLeftovers().Items {
		if hasTags(l.Tags, tags) {
			removed.Items = append(removed.Items, l)
			ch.forgetLeftovers = append(ch.forgetLeftovers, l.ID)
		}
	}
	if len(removed.Items) == 0 {
		return removed, nil
	}
	call.Changed, call.MachineUID = true, removed.Items[0].ClientToken
	if err := c.commit(ch); err != nil {
		return cloudapi.LeftoverList{}, err
	}
	return removed, nil
}

// deleteLeftover removes one left-over, if it meets the condition.
func (c *Cloud) deleteLeftover(id string, condition url.Values, call *cloudapi.Call) (cloudapi.Leftover, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.leftovers[id]
	if l == nil {
		return cloudapi.Leftover{}, refuse(cloudapi.CodeNotFound, "there is no left-over %q", id)
	}
	call.MachineUID = l.ClientToken
	if err := meets(id, l.Tags, condition); err != nil {
		return cloudapi.Leftover{}, err
	}
	call.Changed = true
	if err := c.commit(change{forgetLeftovers: []string{id}, call: call}); err != nil {
		return cloudapi.Leftover{}, err
	}
	return *l, nil
}

// pageOfLeftovers returns a page of left-overs. Its token names the last one of the page before, as
// that of listInstances.
func (c *Cloud) pageOfLeftovers(query url.Values) (cloudapi.LeftoverList, error) {
	size, last, err := pageOf(query)
	if err != nil {
		return cloudapi.LeftoverList{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := cloudapi.LeftoverList{Items: []cloudapi.Leftover{}}
	for _, id := range following(slices.Sorted(maps.Keys(c.leftovers)), last) {
		l := c.leftovers[id]
		if !hasTags(l.Tags, query[cloudapi.QueryTag]) {
			continue
		}
		if len(list.Items) == size {
			list.NextPageToken = pageToken(list.Items[size-1].ID)
			break
		}
		list.Items = append(list.Items, *l)
	}
	return list, nil
}

// hasTags reports whether there are all tags.
func hasTags(tags map[string]string, all []string) bool {
	return !slices.ContainsFunc(all, func(tag string) bool { return !hasTag(tags, tag) })
}

// hasTag reports whether there is a tag "key=value", or of any value with "key".
func hasTag(tags map[string]string, tag string) bool {
	key, value, exact := strings.Cut(tag, "=")
	has, found := tags[key]
	return found && (!exact || has == value)
}

// allLeftovers returns all left-overs.
func (c *Cloud) allLeftovers() cloudapi.LeftoverList {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listLeftovers()
}

// listLeftovers returns all left-overs in order. c.mu is held.
func (c *Cloud) listLeftovers() cloudapi.LeftoverList {
	list := cloudapi.LeftoverList{Items: []cloudapi.Leftover{}}
	for _, id := range slices.Sorted(maps.Keys(c.leftovers)) {
		list.Items = append(list.Items, *c.leftovers[id])
	}
	return list
}
