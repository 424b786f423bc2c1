package cloudsim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// createVolume creates a volume.
func (c *Cloud) createVolume(req cloudapi.CreateVolumeRequest, call *cloudapi.Call) (cloudapi.Volume, error) {
	if req.Name == "" || req.SizeGiB <= 0 {
		return cloudapi.Volume{}, invalid("expected a name and a positive sizeGiB, got %q and %d", req.Name, req.SizeGiB)
	}
	if err := c.offers.completePlace(&req.Region, &req.Zone); err != nil {
		return cloudapi.Volume{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	number, err := c.store.sequence(bucketVolumes)
	if err != nil {
		return cloudapi.Volume{}, err
	}
	v := &cloudapi.Volume{
		ID: fmt.Sprintf("vol-%012x", number), Name: req.Name, Region: req.Region, Zone: req.Zone, SizeGiB: req.SizeGiB, Tags: req.Tags,
	}
	call.Changed = true
	if err := c.commit(change{volumes: []*cloudapi.Volume{v}, call: call}); err != nil {
		return cloudapi.Volume{}, err
	}
	return *v, nil
}

// deleteVolume removes a volume that is not attached.
func (c *Cloud) deleteVolume(id string, call *cloudapi.Call) (cloudapi.Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.lookUpVolume(id)
	if err != nil {
		return cloudapi.Volume{}, err
	}
	if v.AttachedTo != "" {
		return cloudapi.Volume{}, refuse(cloudapi.CodeConflict, "volume %s is attached to %s", id, v.AttachedTo)
	}
	call.Changed = true
	if err := c.commit(change{forgetVolumes: []string{id}, call: call}); err != nil {
		return cloudapi.Volume{}, err
	}
	return *v, nil
}

// getVolume describes a volume.
func (c *Cloud) getVolume(id string) (cloudapi.Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.lookUpVolume(id)
	if err != nil {
		return cloudapi.Volume{}, err
	}
	return *v, nil
}

// lookUpVolume finds a volume. c.mu is held.
func (c *Cloud) lookUpVolume(id string) (*cloudapi.Volume, error) {
	if v := c.volumes[id]; v != nil {
		return v, nil
	}
	return nil, refuse(cloudapi.CodeNotFound, "there is no volume %q", id)
}

// attachVolume attaches a volume to a VM.
func (c *Cloud) attachVolume(id, instanceID string, call *cloudapi.Call) (cloudapi.Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.lookUpVolume(id)
	if err != nil {
		return cloudapi.Volume{}, err
	}
	i, err := c.lookUp(instanceID, call)
	switch {
	case err != nil:
		return cloudapi.Volume{}, err
	case v.AttachedTo == instanceID:
		return *v, nil
	case v.AttachedTo != "":
		return cloudapi.Volume{}, refuse(cloudapi.CodeConflict, "volume %s is attached to %s", id, v.AttachedTo)
	case !i.alive():
		return cloudapi.Volume{}, refuse(cloudapi.CodeConflict, "%s is %s", instanceID, i.API.State)
	case v.Zone != i.API.Zone:
		return cloudapi.Volume{}, invalid("volume %s is in zone %s, and %s in %s", id, v.Zone, instanceID, i.API.Zone)
	}
	return c.moveVolume(v, instanceID, call)
}

// detachVolume detaches a volume from a VM, or with "" from any VM. A volume of a VM that has begun
// to end is released when the VM has ended.
func (c *Cloud) detachVolume(id, instanceID string, call *cloudapi.Call) (cloudapi.Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.lookUpVolume(id)
	if err != nil {
		return cloudapi.Volume{}, err
	}
	if v.AttachedTo == "" || instanceID != "" && v.AttachedTo != instanceID {
		return *v, nil
	}
	if i := c.instances[v.AttachedTo]; i != nil {
		about(call, i)
		switch {
		case slices.Contains(i.API.VolumeIDs, id):
			return cloudapi.Volume{}, refuse(cloudapi.CodeConflict, "volume %s was created with %s and stays attached to it", id, v.AttachedTo)
		case !i.alive():
			return cloudapi.Volume{}, refuse(cloudapi.CodeConflict, "%s is %s, and volume %s is released when nothing of the VM runs any more",
				v.AttachedTo, i.API.State, id)
		}
	}
	return c.moveVolume(v, "", call)
}

// attachedTo returns the volumes that are attached to a VM, in order. c.mu is held.
func (c *Cloud) attachedTo(instanceID string) []string {
	var ids []string
	for id, v := range c.volumes {
		if v.AttachedTo == instanceID {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// releaseVolumes detaches all volumes of a VM of which nothing runs any more. c.mu is held.
func (c *Cloud) releaseVolumes(i *instance) error {
	var ch change
	for _, id := range c.attachedTo(i.API.ID) {
		free := *c.volumes[id]
		free.AttachedTo = ""
		ch.volumes = append(ch.volumes, &free)
	}
	if len(ch.volumes) == 0 {
		return nil
	}
	return c.commit(ch)
}

// moveVolume changes what a volume is attached to, and notifies the VMs' hosts. c.mu is held.
func (c *Cloud) moveVolume(v *cloudapi.Volume, to string, call *cloudapi.Call) (cloudapi.Volume, error) {
	moved := *v
	moved.AttachedTo = to
	call.Changed = true
	if err := c.commit(change{volumes: []*cloudapi.Volume{&moved}, call: call}); err != nil {
		return cloudapi.Volume{}, err
	}
	for _, id := range []string{v.AttachedTo, to} {
		if i := c.instances[id]; i != nil {
			c.reportHost(i, c.cfg.Clock.Now())
		}
	}
	return moved, nil
}

// listVolumes returns all volumes, in the order of their IDs.
func (c *Cloud) listVolumes() cloudapi.VolumeList {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := cloudapi.VolumeList{Items: []cloudapi.Volume{}}
	for _, id := range slices.Sorted(maps.Keys(c.volumes)) {
		list.Items = append(list.Items, *c.volumes[id])
	}
	return list
}
