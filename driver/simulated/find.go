package simulated

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
)

// find returns the one VM of a Machine that has not begun to end. left says that its provider ID names one that is not its.
func (d *Driver) find(ctx context.Context, op driver.Op, target driver.Target) (vm cloudapi.Instance, left bool, err error) {
	if id, ok := parseProviderID(target.Machine.Spec.ProviderID); ok {
		err := d.do(ctx, call{
			op: op, secret: target.Secret, method: http.MethodGet, path: instancePath(cloudapi.PathInstance, id),
		}, &vm)
		if err == nil {
			err = believe(op, vm, id, vm.Name)
		}
		switch {
		case driver.CodeOf(err) == driver.NotFound:
		case err != nil:
			return cloudapi.Instance{}, false, err
		case alive(vm) && slices.ContainsFunc(owned(target), func(q url.Values) bool { return meets(vm, q) }):
			return vm, false, believe(op, vm, id, target.Machine.Name)
		default:
			left = alive(vm)
		}
	}
	vm, err = d.findByUID(ctx, op, target)
	return vm, left, err
}

// hasUID is the condition that a VM has the Machine's UID.
func hasUID(target driver.Target) url.Values {
	return url.Values{cloudapi.QueryIfTag: {TagMachineUID + "=" + string(target.Machine.UID)}}
}

// owned are the conditions of which a VM meets one that is the Machine's.
func owned(target driver.Target) []url.Values {
	conditions := []url.Values{hasUID(target)}
	if target.Adopt {
		conditions = append(conditions, url.Values{
			cloudapi.QueryIfTag:   {TagMachine + "=" + target.Machine.Name, TagCluster + "=" + target.Machine.Namespace},
			cloudapi.QueryIfNoTag: {TagMachineUID},
		})
	}
	return conditions
}

// meets reports whether a VM meets a condition, as the cloud does.
func meets(vm cloudapi.Instance, condition url.Values) bool {
	for _, tag := range condition[cloudapi.QueryIfTag] {
		key, value, _ := strings.Cut(tag, "=")
		if has, ok := vm.Tags[key]; !ok || has != value {
			return false
		}
	}
	return !slices.ContainsFunc(condition[cloudapi.QueryIfNoTag], func(key string) bool { _, has := vm.Tags[key]; return has })
}

// findByUID is find for a Machine whose provider ID is not known, or not of its VM.
func (d *Driver) findByUID(ctx context.Context, op driver.Op, target driver.Target) (cloudapi.Instance, error) {
	vms, err := d.listByUID(ctx, op, target, cloudapi.StatePending, cloudapi.StateRunning)
	switch {
	case err != nil:
		return cloudapi.Instance{}, err
	case len(vms) == 0:
		return cloudapi.Instance{}, driver.Errorf(op, driver.NotFound, "no VM has the tag %s=%s", TagMachineUID, target.Machine.UID)
	case len(vms) > 1:
		return cloudapi.Instance{}, driver.Errorf(op, driver.OutOfRange, "%d VMs have the tag %s=%s; expected one: %s, %s",
			len(vms), TagMachineUID, target.Machine.UID, vms[0].ProviderID, vms[1].ProviderID)
	}
	return vms[0], believe(op, vms[0], vms[0].ID, target.Machine.Name)
}

func (d *Driver) listByUID(ctx context.Context, op driver.Op, target driver.Target, states ...cloudapi.InstanceState) ([]cloudapi.Instance, error) {
	if target.Machine.UID == "" {
		return nil, withoutUID(op, target)
	}
	return d.list(ctx, op, target.Secret, TagMachineUID+"="+string(target.Machine.UID), states...)
}

// maxPages is how many pages one list has at most: enough for driver.MaxListed VMs in pages a tenth of what is asked for.
const maxPages = 10 * driver.MaxListed / cloudapi.MaxPageSize

// list returns all VMs with a tag and one of the states: all pages, or an error.
func (d *Driver) list(ctx context.Context, op driver.Op, secret map[string][]byte, tag string, states ...cloudapi.InstanceState) ([]cloudapi.Instance, error) {
	query := url.Values{cloudapi.QueryTag: {tag}, cloudapi.QueryPageSize: {strconv.Itoa(cloudapi.MaxPageSize)}}
	for _, state := range states {
		query.Add(cloudapi.QueryState, string(state))
	}
	key, value, _ := strings.Cut(tag, "=")
	var all []cloudapi.Instance
	for range maxPages {
		var page cloudapi.InstanceList
		if err := d.do(ctx, call{op: op, secret: secret, method: http.MethodGet, path: cloudapi.PathInstances, query: query}, &page); err != nil {
			return nil, err
		}
		if len(page.Items) > cloudapi.MaxPageSize || len(all)+len(page.Items) > driver.MaxListed {
			return nil, driver.Errorf(op, driver.Internal, "the cloud listed %d VMs, %d of them on one page; expected at most %d, and %d on a page",
				len(all)+len(page.Items), len(page.Items), driver.MaxListed, cloudapi.MaxPageSize)
		}
		for _, vm := range page.Items {
			if err := believe(op, vm, vm.ID, vm.Name); err != nil {
				return nil, err
			}
			if vm.Tags[key] != value {
				return nil, driver.Errorf(op, driver.Internal, "the cloud listed VM %s, which lacks the tag %s", vm.ProviderID, tag)
			}
		}
		all = append(all, page.Items...)
		switch page.NextPageToken {
		case "":
			return all, nil
		case query.Get(cloudapi.QueryPageToken):
			return nil, driver.Errorf(op, driver.Internal, "the cloud's list does not end: page %q follows itself", page.NextPageToken)
		}
		query.Set(cloudapi.QueryPageToken, page.NextPageToken)
	}
	return nil, driver.Errorf(op, driver.Internal, "the cloud's list does not end: it has more than %d pages", maxPages)
}

// believe returns an error unless a VM of an answer can be the one that was asked for. Its ID becomes part of paths of further
// requests, and its name that of a Node.
func believe(op driver.Op, vm cloudapi.Instance, id, name string) error {
	named, ok := parseProviderID(vm.ProviderID)
	if !ok || named != vm.ID || vm.ID != id || vm.Name != name {
		return driver.Errorf(op, driver.Internal, "the cloud answered with VM %q, provider ID %q, name %q; expected VM %q with the name %q",
			vm.ID, vm.ProviderID, vm.Name, id, name)
	}
	return nil
}

func withoutUID(op driver.Op, target driver.Target) error {
	return driver.Errorf(op, driver.InvalidArgument, "Machine %q has no UID: no VM can be known to be its", target.Machine.Name)
}

// parseProviderID returns the cloud's ID in simulated:///<region>/<zone>/<id>; ok is false for what is not of this cloud, and so
// names no VM of it.
func parseProviderID(providerID string) (id string, ok bool) {
	parts := strings.Split(strings.TrimPrefix(providerID, cloudapi.ProviderIDPrefix), "/")
	if !strings.HasPrefix(providerID, cloudapi.ProviderIDPrefix) || len(parts) != 3 || !isID(parts[2]) {
		return "", false
	}
	return parts[2], true
}

// isID reports whether a text can be the cloud's ID of a VM.
func isID(text string) bool {
	return strings.Trim(text, ".") != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}

// instancePath puts an ID into one of cloudapi's paths.
func instancePath(pattern, id string) string {
	return strings.Replace(pattern, "{id}", url.PathEscape(id), 1)
}

// alive says whether a VM has not begun to end.
func alive(vm cloudapi.Instance) bool {
	return vm.State == cloudapi.StatePending || vm.State == cloudapi.StateRunning
}

func describe(vm cloudapi.Instance) driver.VM {
	found := driver.VM{ProviderID: vm.ProviderID, NodeName: vm.Name}
	if vm.PrivateIP != "" {
		found.Addresses = append(found.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: vm.PrivateIP})
	}
	found.Addresses = append(found.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: vm.Name})
	return found
}
