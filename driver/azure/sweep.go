package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/httpclient"
)

// ListMachines returns the VMs in the resource group of the class that have not begun to end: those
// with the class' namespace as a tag, and those that Machine Controller Manager has created for the
// class' cluster.
func (d *Driver) ListMachines(ctx context.Context, req driver.ListMachinesRequest) (driver.ListMachinesResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	s, err := d.begin(driver.OpList, req.Secret, req.Class.ProviderSpec.Raw)
	if err == nil {
		err = s.needsGroup()
	}
	if err != nil {
		return driver.ListMachinesResponse{}, err
	}
	machines := map[string]string{}
	for next, first := "", true; first || next != ""; first = false {
		page, err := s.page(ctx, list{kind: typeVM, group: s.at.resourceGroup}, next)
		if err != nil {
			return driver.ListMachinesResponse{}, err
		}
		for _, vm := range page.items {
			if s.isListed(vm, req.Class.Namespace) {
				machines[vm.id.providerID()] = cmp.Or(vm.tags[TagMachine], vm.id.name)
			}
		}
		if len(machines) > driver.MaxListed {
			return driver.ListMachinesResponse{}, driver.Errorf(s.op, driver.Internal, "the cloud listed more than %d VMs", driver.MaxListed)
		}
		if next = page.next; next != "" && ctx.Err() != nil {
			return driver.ListMachinesResponse{}, toError(ctx, s.op, d.clock.Now(), ctx.Err())
		}
	}
	return driver.ListMachinesResponse{Machines: machines}, nil
}

// isListed reports whether a VM belongs to a namespace, or has no tag of a machine and belongs to
// the cluster of the class, and is not being deleted.
func (s *session) isListed(vm resource, namespace string) bool {
	_, isOurs := vm.tags[TagMachineUID]
	return (vm.tags[TagNamespace] == namespace || !isOurs && vm.tags.isOfCluster(s.at.tags)) && !vm.is(stateDeleting)
}

// Scope returns the subscription and the endpoint of its cloud.
func (d *Driver) Scope(req driver.ScopeRequest) (string, error) {
	s, err := d.begin(driver.OpScope, req.Secret, req.Class.ProviderSpec.Raw)
	if err != nil {
		return "", err
	}
	return d.clouds[s.cloud].Services[cloud.ResourceManager].Endpoint + "/subscriptions/" + strings.ToLower(s.subscription), nil
}

// list is a list of the resources of a kind, in a resource group or, if that is "", in the
// subscription.
type list struct{ kind, group string }

// page is one page of a list.
type page struct {
	items []resource
	// next is the query of the next page; "" on the last one.
	next string
}

// page reads the page with a query. The cloud cannot list by tags, so that the caller chooses from
// all resources.
func (s *session) page(ctx context.Context, l list, query string) (page, error) {
	path := "/subscriptions/" + s.subscription
	if l.group != "" {
		path += "/resourceGroups/" + l.group
	}
	path += "/providers/" + l.kind
	from := ""
	if query != "" {
		from = s.driver.clouds[s.cloud].Services[cloud.ResourceManager].Endpoint + path + "?" + query
	}
	var next *string
	read, err := send(ctx, s, func(ctx context.Context) (items []resource, err error) {
		items, next, err = s.items(ctx, l, from)
		return items, err
	})
	if err != nil {
		return page{}, err
	}
	var got page
	for _, r := range read {
		_, isOurs := r.tags.createdFor()
		switch isValid := r.id.kind == l.kind && strings.EqualFold(r.id.subscription, s.subscription); {
		case isValid:
			got.items = append(got.items, r)
		case isOurs: // others may have names that the driver would not give
			return page{}, driver.Errorf(s.op, driver.Internal, "the cloud listed a resource of the fleet without a valid ID; the page is not used")
		}
	}
	if link := value(next); link != "" {
		// Only the query is used, so that the cloud cannot redirect the list.
		u, err := url.Parse(link)
		if err != nil || u.RawQuery == "" || u.RawQuery == query || len(u.RawQuery) > driver.MaxContinue/2 {
			return page{}, driver.Errorf(s.op, driver.Internal,
				"the cloud's list does not end: its link to the next page is that of the page itself, or cannot be used")
		}
		got.next = u.RawQuery
	}
	return got, nil
}

// items reads a page; from is its URL, or "" for the first one.
func (s *session) items(ctx context.Context, l list, from string) (items []resource, next *string, err error) {
	switch {
	case l.kind == typeNIC:
		resp, err := nextPage(ctx, s.nics.NewListAllPager(nil), from)
		for _, nic := range resp.Value {
			if nic != nil {
				items = append(items, nicOf(nic))
			}
		}
		return items, resp.NextLink, err
	case l.kind == typeDisk:
		resp, err := nextPage(ctx, s.disks.NewListPager(nil), from)
		for _, disk := range resp.Value {
			if disk != nil {
				items = append(items, diskOf(disk))
			}
		}
		return items, resp.NextLink, err
	case l.group != "":
		resp, err := nextPage(ctx, s.vms.NewListPager(l.group, nil), from)
		for _, vm := range resp.Value {
			if vm != nil {
				items = append(items, vmOf(vm))
			}
		}
		return items, resp.NextLink, err
	}
	resp, err := nextPage(ctx, s.vms.NewListAllPager(nil), from)
	for _, vm := range resp.Value {
		if vm != nil {
			items = append(items, vmOf(vm))
		}
	}
	return items, resp.NextLink, err
}

// nextPage reads the page at a URL, or the first one for "".
func nextPage[T any](ctx context.Context, pager *runtime.Pager[T], from string) (T, error) {
	if from == "" {
		return pager.NextPage(ctx)
	}
	var none T
	before, err := json.Marshal(map[string]string{"nextLink": from})
	if err != nil {
		return none, err
	}
	if err := pager.UnmarshalJSON(before); err != nil {
		return none, err
	}
	// The pager returns what it was given first, and then the page after it.
	if _, err := pager.NextPage(ctx); err != nil {
		return none, err
	}
	return pager.NextPage(ctx)
}

// position is a place in the lists of a sweep: VMs, then network interfaces, then disks. A page may
// have more resources than one of ListResources, whose pages then begin within it.
type position struct {
	kind  string
	skip  int // resources of the page
	query string
}

// sweepOrder is the order of the lists.
func sweepOrder() []string { return []string{typeVM, typeNIC, typeDisk} }

// String returns the token of a position.
func (p position) String() string { return fmt.Sprintf("%s@%d@%s", p.kind, p.skip, p.query) }

// parsePosition reads a token; ok is false for one that is none.
func parsePosition(token string) (p position, ok bool) {
	if token == "" {
		return position{kind: typeVM}, true
	}
	parts := strings.SplitN(token, "@", 3)
	if len(parts) != 3 {
		return position{}, false
	}
	skip, err := strconv.Atoi(parts[1])
	p = position{parts[0], skip, parts[2]}
	return p, err == nil && skip >= 0 && p.after() != p.kind
}

// after returns the kind of the list that follows; "" after the last one, and the kind itself for
// one that is none.
func (p position) after() string {
	order := sweepOrder()
	for i, kind := range order {
		if kind != p.kind {
			continue
		}
		if i+1 < len(order) {
			return order[i+1]
		}
		return ""
	}
	return p.kind
}

// ListResources returns the VMs of the subscription with the tags of the fleet that have not begun
// to end, and after their last page the network interfaces and the disks with these tags that no VM
// uses. Each call sends one request.
func (d *Driver) ListResources(ctx context.Context, req driver.ListResourcesRequest) (driver.ListResourcesResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	s, err := d.begin(driver.OpResources, req.Secret, req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.ListResourcesResponse{}, err
	}
	at, ok := parsePosition(req.Continue)
	switch {
	case req.ControlCluster == "":
		return driver.ListResourcesResponse{}, s.withoutControlCluster()
	case !ok:
		return driver.ListResourcesResponse{}, s.invalid("no page has the token %q", req.Continue)
	}
	read, err := s.page(ctx, list{kind: at.kind}, at.query)
	if err != nil {
		return driver.ListResourcesResponse{}, err
	}
	var resp driver.ListResourcesResponse
	for i, r := range read.items {
		if i < at.skip || r.tags[TagNamespace] != req.Class.Namespace || r.tags[TagControlCluster] != req.ControlCluster {
			continue
		}
		if len(resp.Items) == driver.MaxResources {
			resp.Continue = position{at.kind, i, at.query}.String()
			return resp, nil
		}
		if item, ok := swept(r); ok {
			resp.Items = append(resp.Items, item)
		}
	}
	if read.next != "" {
		resp.Continue = position{at.kind, 0, read.next}.String()
	} else if kind := at.after(); kind != "" {
		resp.Continue = position{kind: kind}.String()
	}
	return resp, nil
}

// swept returns what a sweep lists of a resource; ok is false for one that is ending or in use, and
// for one of no Machine.
func swept(r resource) (item driver.Resource, ok bool) {
	item, ok = r.tags.createdFor()
	if !ok || r.is(stateDeleting) {
		return driver.Resource{}, false
	}
	item.ID = r.id.String()
	switch r.id.kind {
	case typeVM:
		item.Kind, item.ID, item.NodeName = driver.ResourceVM, r.id.providerID(), strings.ToLower(r.id.name)
		return item, true
	case typeNIC:
		item.Kind = driver.ResourceNetworkInterface
	default:
		item.Kind = driver.ResourceDisk
	}
	return item, r.user == ""
}

// DeleteResource deletes a VM, or a network interface or disk that no VM uses. It sends one
// request, which reads the tags, and one that deletes.
func (d *Driver) DeleteResource(ctx context.Context, req driver.DeleteResourceRequest) (driver.DeleteResourceResponse, error) {
	ctx, cancel := httpclient.Bounded(ctx)
	defer cancel()
	s, err := d.begin(driver.OpSweep, req.Secret, req.Class.ProviderSpec.Raw)
	if err != nil {
		return driver.DeleteResourceResponse{}, err
	}
	id, ok := sweptID(req.Resource)
	switch {
	case req.ControlCluster == "":
		return driver.DeleteResourceResponse{}, s.withoutControlCluster()
	case req.Resource.MachineUID == "":
		return driver.DeleteResourceResponse{}, s.invalid("%s %q without the UID of its Machine", req.Resource.Kind, req.Resource.ID)
	case !ok || !strings.EqualFold(id.subscription, s.subscription):
		return driver.DeleteResourceResponse{}, s.invalid("the subscription has no %s %q; expected one that was listed",
			req.Resource.Kind, req.Resource.ID)
	}
	r, found, err := s.read(ctx, id)
	if err != nil {
		return driver.DeleteResourceResponse{}, err
	}
	if !found || r.user != "" || r.tags[TagMachineUID] != string(req.Resource.MachineUID) || r.tags[TagControlCluster] != req.ControlCluster {
		return driver.DeleteResourceResponse{Gone: true}, nil
	}
	return driver.DeleteResourceResponse{}, s.remove(ctx, r)
}

// sweptID returns the ID of a resource that was listed.
func sweptID(r driver.Resource) (id resourceID, ok bool) {
	text, kind := r.ID, ""
	switch r.Kind {
	case driver.ResourceVM:
		text, ok = strings.CutPrefix(r.ID, providerPrefix)
		if !ok {
			return resourceID{}, false
		}
		kind = typeVM
	case driver.ResourceNetworkInterface:
		kind = typeNIC
	case driver.ResourceDisk:
		kind = typeDisk
	case driver.ResourceAddress:
	}
	id, ok = parseResourceID(text)
	return id, ok && id.kind == kind
}

// withoutControlCluster returns the error for a sweep while the control cluster is not known: then
// tags do not distinguish what this fleet has created.
func (s *session) withoutControlCluster() error {
	return s.invalid("the ID of the control cluster is not known, so that the resources of the fleet cannot be identified")
}
