package cloudsim

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// createInstance creates a VM, or finds the one that its token created. The answer follows after
// latency.
func (c *Cloud) createInstance(req cloudapi.CreateInstanceRequest, latency time.Duration, call *cloudapi.Call) (cloudapi.Instance, error) {
	params, err := c.checkCreate(&req)
	if err != nil {
		return cloudapi.Instance{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, used := c.byToken[req.ClientToken]; used {
		i := c.instances[id]
		about(call, i)
		if i.Params != params {
			return cloudapi.Instance{},
				refuse(cloudapi.CodeIdempotencyMismatch, "client token %q has created %s with other parameters", req.ClientToken, id)
		}
		return i.API, nil
	}
	if err := c.checkRoom(req); err != nil {
		return cloudapi.Instance{}, err
	}
	created, volumes, err := c.newInstance(req, params, latency)
	if err != nil {
		return cloudapi.Instance{}, err
	}
	about(call, created)
	call.Changed = true
	if err := c.commit(change{
		instances: []*instance{created}, volumes: volumes, forgetLeftovers: c.leftoversOf(req.ClientToken), call: call,
	}); err != nil {
		return cloudapi.Instance{}, err
	}
	c.life.Wake(created.API.ID)
	return created.API, nil
}

// checkCreate fills in what the request leaves out and returns the digest of it.
func (c *Cloud) checkCreate(req *cloudapi.CreateInstanceRequest) (params string, err error) {
	if problems := validation.IsDNS1123Subdomain(req.Name); len(problems) > 0 {
		return "", invalid("name %q: %s", req.Name, problems[0])
	}
	if err := c.offers.complete(req); err != nil {
		return "", err
	}
	if _, ok := c.cfg.Hosts[req.Boot]; !ok {
		return "", invalid("boot mode: expected one of those that this cloud has, got %q; there are %v%s",
			req.Boot, slices.Sorted(maps.Keys(c.cfg.Hosts)), kubeletHint(req.Boot))
	}
	for at, v := range req.DataVolumes {
		if v.Name == "" || v.SizeGiB <= 0 {
			return "", invalid("dataVolumes[%d]: expected a name and a positive sizeGiB, got %q and %d", at, v.Name, v.SizeGiB)
		}
	}
	return digest(*req)
}

func kubeletHint(mode cloudapi.BootMode) string {
	if mode == cloudapi.BootKubelet {
		return " (start it with --kubelet-command and --kubeconfig)"
	}
	return ""
}

// checkRoom returns why there is no room for another VM. c.mu is held.
func (c *Cloud) checkRoom(req cloudapi.CreateInstanceRequest) error {
	settings := c.settings.Current
	if slices.Contains(settings.FailedZones, req.Zone) {
		return refuse(cloudapi.CodeNoCapacity, "zone %s has failed", req.Zone)
	}
	ofRegion, hasRegion := settings.Quotas.InstancesByRegion[req.Region]
	ofType, hasType := settings.Quotas.InstancesByType[req.InstanceType]
	if !hasRegion && !hasType {
		return nil
	}
	inRegion, thatType := 0, 0
	for _, i := range c.instances {
		if i.ended() {
			continue
		}
		if i.API.Region == req.Region {
			inRegion++
		}
		if i.API.InstanceType == req.InstanceType {
			thatType++
		}
	}
	if hasRegion && inRegion >= ofRegion {
		return refuse(cloudapi.CodeQuotaExceeded, "region %s has %d VMs; its quota is %d", req.Region, inRegion, ofRegion)
	}
	if hasType && thatType >= ofType {
		return refuse(cloudapi.CodeQuotaExceeded, "there are %d VMs of type %s; the quota is %d", thatType, req.InstanceType, ofType)
	}
	return nil
}

// newInstance decides the state of the new VM. c.mu is held.
func (c *Cloud) newInstance(
	req cloudapi.CreateInstanceRequest, params string, latency time.Duration,
) (*instance, []*cloudapi.Volume, error) {
	number, err := c.store.sequence(bucketInstances)
	if err != nil {
		return nil, nil, err
	}
	now, id := c.cfg.Clock.Now(), fmt.Sprintf("i-%012x", number)
	ip, err := c.addressOf(req, number)
	if err != nil {
		return nil, nil, err
	}
	created := &instance{
		API: cloudapi.Instance{
			ID: id, ProviderID: cloudapi.ProviderIDPrefix + req.Region + "/" + req.Zone + "/" + id, Name: req.Name,
			Region: req.Region, Zone: req.Zone, InstanceType: req.InstanceType, Image: req.Image, Network: req.Network,
			Tags: req.Tags, Boot: req.Boot, State: cloudapi.StatePending, PrivateIP: ip, CreatedAt: now,
			ClientToken: req.ClientToken, SourceDestCheck: true,
		},
		Params:         params,
		BootstrapToken: findBootstrapToken(req.UserData),
		Server:         findServer(req.UserData),
		Fate:           newDice(c.cfg.Seed, number).fate(c.settings.Current, now, latency),
	}
	if req.Boot == cloudapi.BootKubelet {
		created.UserData = req.UserData
	}
	var volumes []*cloudapi.Volume
	for at, v := range req.DataVolumes {
		volume := &cloudapi.Volume{
			ID: fmt.Sprintf("vol-%012x-%d", number, at), Name: v.Name, Region: req.Region, Zone: req.Zone,
			SizeGiB: v.SizeGiB, Tags: req.Tags, AttachedTo: id,
		}
		created.API.VolumeIDs = append(created.API.VolumeIDs, volume.ID)
		volumes = append(volumes, volume)
	}
	return created, volumes, nil
}

// addressOf decides the address of a new VM. c.mu is held.
func (c *Cloud) addressOf(req cloudapi.CreateInstanceRequest, number uint64) (string, error) {
	if req.Boot == cloudapi.BootKubelet {
		return c.loopbackAddress(number)
	}
	network, _ := c.offers.network(req.Region, req.Network)
	return address(network, number)
}

// deleteInstance begins to terminate a VM, if it meets the condition.
func (c *Cloud) deleteInstance(id string, condition url.Values, call *cloudapi.Call) (cloudapi.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, err := c.lookUp(id, call)
	if err == nil {
		err = i.meets(condition)
	}
	if err != nil {
		return cloudapi.Instance{}, err
	}
	if !i.alive() {
		return i.API, nil
	}
	now, after := c.cfg.Clock.Now(), i.clone()
	const reason = "its deletion was requested"
	if stop := c.dice.duration(c.settings.Current.StopTime); stop > 0 {
		after.API.State, after.API.StateReason = cloudapi.StateStopping, reason
		after.StopAt = now.Add(stop)
		after.say(now, "shutting down")
	} else {
		after.end(now, reason)
	}
	call.Changed = true
	ch := c.replace(after)
	ch.call = call
	if err := c.commit(ch); err != nil {
		return cloudapi.Instance{}, err
	}
	c.reportHost(after, now)
	c.life.Wake(id)
	return after.API, nil
}

// getInstance describes a VM.
func (c *Cloud) getInstance(id string, call *cloudapi.Call) (cloudapi.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, err := c.lookUp(id, call)
	if err != nil {
		return cloudapi.Instance{}, err
	}
	return i.API, nil
}

// modifyInstance changes attributes of a VM, if it meets the condition.
func (c *Cloud) modifyInstance(
	id string, attributes cloudapi.InstanceAttributes, condition url.Values, call *cloudapi.Call,
) (cloudapi.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, err := c.lookUp(id, call)
	if err == nil {
		err = i.meets(condition)
	}
	if err != nil {
		return cloudapi.Instance{}, err
	}
	if !i.alive() {
		return cloudapi.Instance{}, refuse(cloudapi.CodeConflict, "%s is %s", id, i.API.State)
	}
	if attributes.SourceDestCheck == nil || *attributes.SourceDestCheck == i.API.SourceDestCheck {
		return i.API, nil
	}
	after := i.clone()
	after.API.SourceDestCheck = *attributes.SourceDestCheck
	call.Changed = true
	if err := c.commit(change{instances: []*instance{after}, call: call}); err != nil {
		return cloudapi.Instance{}, err
	}
	return after.API, nil
}

// meets returns a refusal when a VM that has not ended does not have the tags of the query.
func (i *instance) meets(condition url.Values) error {
	if i.ended() {
		return nil
	}
	return meets(i.API.ID, i.API.Tags, condition)
}

// meets returns a refusal when what has these tags does not have those of the query.
func meets(id string, tags map[string]string, condition url.Values) error {
	for _, tag := range condition[cloudapi.QueryIfTag] {
		key, value, _ := strings.Cut(tag, "=")
		if has, ok := tags[key]; !ok || has != value {
			return refuse(cloudapi.CodePreconditionFailed, "%s does not have the tag %q", id, tag)
		}
	}
	for _, key := range condition[cloudapi.QueryIfNoTag] {
		if _, has := tags[key]; has {
			return refuse(cloudapi.CodePreconditionFailed, "%s has a tag %q", id, key)
		}
	}
	return nil
}

// lookUp finds a VM for a call. c.mu is held.
func (c *Cloud) lookUp(id string, call *cloudapi.Call) (*instance, error) {
	call.Instance = id
	i := c.instances[id]
	if i == nil {
		return nil, refuse(cloudapi.CodeNotFound, "there is no VM %q", id)
	}
	about(call, i)
	return i, nil
}

func about(call *cloudapi.Call, i *instance) {
	call.Instance, call.Machine, call.MachineUID = i.API.ID, i.API.Name, i.API.ClientToken
}

// listInstances returns a page of VMs in the order in which they were created. A page token names
// the last VM of the page before, so that VMs that are created or deleted in between do not make
// another one appear twice or not at all.
func (c *Cloud) listInstances(query url.Values) (cloudapi.InstanceList, error) {
	size, last, err := pageOf(query)
	if err != nil {
		return cloudapi.InstanceList{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := cloudapi.InstanceList{Items: []cloudapi.Instance{}}
	candidates := c.candidates(query[cloudapi.QueryTag])
	for _, id := range following(candidates, last) {
		i := c.instances[id]
		if !i.matches(query) {
			continue
		}
		if len(list.Items) == size {
			list.NextPageToken = pageToken(list.Items[size-1].ID)
			break
		}
		list.Items = append(list.Items, i.API)
	}
	return list, nil
}

// pageOf returns the size of the page that a query requests, and the ID of the last item on the
// page before it.
func pageOf(query url.Values) (size int, last string, err error) {
	size = cloudapi.DefaultPageSize
	if text := query.Get(cloudapi.QueryPageSize); text != "" {
		if size, err = strconv.Atoi(text); err != nil || size < 1 || size > cloudapi.MaxPageSize {
			return 0, "", invalid("%s is %q; expected 1 to %d", cloudapi.QueryPageSize, text, cloudapi.MaxPageSize)
		}
	}
	token, err := base64.RawURLEncoding.DecodeString(query.Get(cloudapi.QueryPageToken))
	if err != nil {
		return 0, "", invalid("%s: expected a token of an earlier page", cloudapi.QueryPageToken)
	}
	return size, string(token), nil
}

// pageToken returns the token of the page that follows an item.
func pageToken(last string) string { return base64.RawURLEncoding.EncodeToString([]byte(last)) }

// following returns the IDs after the last one of a page; ids are in order.
func following(ids []string, last string) []string {
	from, found := slices.BinarySearch(ids, last)
	if found {
		from++
	}
	return ids[from:]
}

// candidates returns the IDs of the VMs that have all tags, in order. c.mu is held, and longer than
// the result is used.
func (c *Cloud) candidates(tags []string) []string {
	if len(tags) == 0 {
		return c.order
	}
	var ids []string
	for id := range c.byTag[tags[0]] {
		if !slices.ContainsFunc(tags[1:], func(tag string) bool { _, has := c.byTag[tag][id]; return !has }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// matches reports whether the VM has the name and one of the states of the query.
func (i *instance) matches(query url.Values) bool {
	if name := query.Get(cloudapi.QueryName); name != "" && name != i.API.Name {
		return false
	}
	if states := query[cloudapi.QueryState]; len(states) > 0 {
		return slices.Contains(states, string(i.API.State))
	}
	return !i.ended()
}
