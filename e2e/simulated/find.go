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
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// find returns the one VM of a Machine that has not begun to end. left reports whether its provider
// ID names a VM that is not the Machine's.
func (d *Driver) find(ctx context.Context, op driver.Op, target driver.Target) (vm cloudapi.Instance, left bool, err error) {
	if id, ok := parseProviderID(target.Machine.Spec.ProviderID); ok {
		err := d.do(ctx, call{
			op: op, secret: target.Secret, method: http.MethodGet, path: pathOf(cloudapi.PathInstance, id),
		}, &vm)
		if err == nil {
			err = verify(op, vm, id, vm.Name)
		}
		switch {
		case driver.CodeOf(err) == driver.NotFound:
		case err != nil:
			return cloudapi.Instance{}, false, err
		case alive(vm) && slices.ContainsFunc(owned(target), func(q url.Values) bool { return meets(vm, q) }):
			return vm, false, verify(op, vm, id, target.Machine.Name)
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

// findByUID is find for a Machine whose provider ID is not known, or not of its VM. It stops at the
// second VM.
func (d *Driver) findByUID(ctx context.Context, op driver.Op, target driver.Target) (found cloudapi.Instance, err error) {
	known := false
	err = d.eachByUID(ctx, op, target, func(page cloudapi.InstanceList) (more bool, err error) {
		for _, vm := range page.Items {
			if known {
				return false, driver.Errorf(op, driver.OutOfRange, "several VMs have the tag %s=%s; expected one: %s, %s",
					TagMachineUID, target.Machine.UID, found.ProviderID, vm.ProviderID)
			}
			found, known = vm, true
		}
		return true, nil
	}, cloudapi.StatePending, cloudapi.StateRunning)
	switch {
	case err != nil:
		return cloudapi.Instance{}, err
	case !known:
		return cloudapi.Instance{}, driver.Errorf(op, driver.NotFound, "no VM has the tag %s=%s", TagMachineUID, target.Machine.UID)
	}
	return found, verify(op, found, found.ID, target.Machine.Name)
}

// removeByUID begins to terminate the VMs with the Machine's UID: all on the first page that has
// any. gone reports whether none is left, so it is false while there are further pages: the next
// call reads them.
func (d *Driver) removeByUID(ctx context.Context, target driver.Target) (gone bool, err error) {
	gone = true
	err = d.eachByUID(ctx, driver.OpDelete, target, func(page cloudapi.InstanceList) (more bool, err error) {
		for _, found := range page.Items {
			switch vm, err := d.remove(ctx, driver.OpDelete, target.Secret, found.ID, hasUID(target)); {
			case driver.CodeOf(err) == driver.NotFound:
			case err != nil:
				return false, err
			case vm.State != cloudapi.StateTerminated:
				gone = false
			}
		}
		if len(page.Items) > 0 && page.NextPageToken != "" {
			gone = false
		}
		return len(page.Items) == 0, nil
	}, cloudapi.StatePending, cloudapi.StateRunning, cloudapi.StateStopping)
	return gone, err
}

// removeLeftovers removes the network interfaces and disks with the Machine's UID that belong to no
// VM. The cloud looks for the tag in the request that removes them.
func (d *Driver) removeLeftovers(ctx context.Context, target driver.Target) error {
	var removed cloudapi.LeftoverList
	return d.do(ctx, call{
		op: driver.OpDelete, secret: target.Secret, method: http.MethodDelete, path: cloudapi.PathLeftovers,
		query: url.Values{cloudapi.QueryTag: {TagMachineUID + "=" + string(target.Machine.UID)}},
	}, &removed)
}

// eachByUID is eachPage of the VMs with the Machine's UID.
func (d *Driver) eachByUID(
	ctx context.Context, op driver.Op, target driver.Target, use func(cloudapi.InstanceList) (more bool, err error),
	states ...cloudapi.InstanceState,
) error {
	if target.Machine.UID == "" {
		return withoutUID(op, target)
	}
	return d.eachPage(ctx, list{
		op: op, secret: target.Secret, tags: []string{TagMachineUID + "=" + string(target.Machine.UID)}, states: states,
		limits: httpclient.One(), size: driver.MaxOwned, pages: driver.MaxOwned,
	}, use)
}

// maxPages is how many pages one list has at most: enough for driver.MaxListed VMs in pages of a
// tenth of the requested size.
const maxPages = 10 * driver.MaxListed / cloudapi.MaxPageSize

// list is a list of the VMs with all of some tags and one of some states.
type list struct {
	op     driver.Op
	secret map[string][]byte
	tags   []string // "key=value"
	states []cloudapi.InstanceState
	limits httpclient.Limits // of a page
	size   int               // of a page, in VMs
	pages  int               // at most
}

// eachPage calls use with the pages of a list, one after the other, until it returns false. Except
// for what use keeps, one page is in memory.
func (d *Driver) eachPage(ctx context.Context, l list, use func(cloudapi.InstanceList) (more bool, err error)) error {
	token := ""
	for range l.pages {
		page, err := d.page(ctx, l, token)
		if err != nil {
			return err
		}
		more, err := use(page)
		if err != nil || !more || page.NextPageToken == "" {
			return err
		}
		token = page.NextPageToken
	}
	return driver.Errorf(l.op, driver.Internal, "the cloud's list does not end: it has more than %d pages", l.pages)
}

// page reads the page of a list that has a token.
func (d *Driver) page(ctx context.Context, l list, token string) (page cloudapi.InstanceList, err error) {
	query := pageQuery(l.tags, l.size, token)
	for _, state := range l.states {
		query.Add(cloudapi.QueryState, string(state))
	}
	err = d.do(ctx,
		call{op: l.op, secret: l.secret, method: http.MethodGet, path: cloudapi.PathInstances, query: query, limits: l.limits}, &page)
	if err == nil {
		err = httpclient.CheckPage(l.op, len(page.Items), l.size, token, page.NextPageToken)
	}
	if err != nil {
		return cloudapi.InstanceList{}, err
	}
	for _, vm := range page.Items {
		if err := verify(l.op, vm, vm.ID, vm.Name); err != nil {
			return cloudapi.InstanceList{}, err
		}
		if err := verifyTags(l.op, vm.ProviderID, vm.Tags, l.tags); err != nil {
			return cloudapi.InstanceList{}, err
		}
	}
	return page, nil
}

// pageQuery requests a page of what has all tags.
func pageQuery(tags []string, size int, token string) url.Values {
	query := url.Values{cloudapi.QueryTag: tags, cloudapi.QueryPageSize: {strconv.Itoa(size)}}
	if token != "" {
		query.Set(cloudapi.QueryPageToken, token)
	}
	return query
}

// verifyTags returns an error unless a resource on a page has the tags that were requested.
func verifyTags(op driver.Op, id string, tags map[string]string, requested []string) error {
	for _, tag := range requested {
		if key, value, _ := strings.Cut(tag, "="); tags[key] != value {
			return driver.Errorf(op, driver.Internal, "the cloud listed %s, which lacks the tag %s", id, tag)
		}
	}
	return nil
}

// verify returns an error unless a VM of an answer can be the requested one. Its ID becomes part
// of paths of further requests, and its name that of a Node.
func verify(op driver.Op, vm cloudapi.Instance, id, name string) error {
	named, ok := parseProviderID(vm.ProviderID)
	if !ok || named != vm.ID || vm.ID != id || vm.Name != name {
		return driver.Errorf(op, driver.Internal, "the cloud answered with VM %q, provider ID %q, name %q; expected VM %q with the name %q",
			vm.ID, vm.ProviderID, vm.Name, id, name)
	}
	return nil
}

func withoutUID(op driver.Op, target driver.Target) error {
	return driver.Errorf(op, driver.InvalidArgument, "Machine %q has no UID: no VM can be identified as its own", target.Machine.Name)
}

// parseProviderID returns the cloud's ID in simulated:///<region>/<zone>/<id>; ok is false for what
// is not of this cloud, and so names no VM of it.
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

// pathOf puts an ID into one of cloudapi's paths.
func pathOf(pattern, id string) string {
	return strings.Replace(pattern, "{id}", url.PathEscape(id), 1)
}

// alive reports whether a VM has not begun to end.
func alive(vm cloudapi.Instance) bool {
	return vm.State == cloudapi.StatePending || vm.State == cloudapi.StateRunning
}

func describe(vm cloudapi.Instance) driver.VM {
	found := driver.VM{ProviderID: vm.ProviderID, NodeName: vm.Name, State: string(vm.State)}
	if vm.PrivateIP != "" {
		found.Addresses = append(found.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: vm.PrivateIP})
	}
	found.Addresses = append(found.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: vm.Name})
	return found
}
