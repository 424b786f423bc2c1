package driver

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// Sweeper is implemented by a Driver if its cloud can list what was created for Machines.
// With it the fleet finds VMs, and other resources, that belong to no Machine any more. Nothing of
// a cloud whose driver has no Sweeper is ever deleted without its Machine.
type Sweeper interface {
	// Scope returns the account, project or the like whose resources ListResources lists: the same
	// text for all classes and Secrets of one account, so that it is listed once, and another text for
	// another account or another endpoint. Neither the class' namespace nor the control cluster is
	// part of it: the lists of two namespaces in one scope differ. It sends no request. The text is
	// not empty, has at most MaxProviderID printable characters without spaces, and shows no secret: a
	// driver that has no name for the account uses a hash of what authenticates. Errors:
	// InvalidArgument for credentials that cannot work.
	Scope(req ScopeRequest) (string, error)

	// ListResources returns one page of what drivers of the control cluster have created for Machines
	// in the class' namespace, and that has not begun to end, regardless of the class that it was
	// created for. Everything that existed before the request for the first page, and still exists
	// when the last page was read, is on one of the pages. A page that cannot be read as a whole is an
	// error, and so is a page that follows itself. A caller limits the number of pages: a longer cycle
	// is not detected. What has not all the tags of the fleet is not listed: the namespace, the
	// Machine's name and UID, and the control cluster's ID. A page may have no resources although
	// others follow. The provider spec of the class does not matter. Errors: InvalidArgument when the
	// control cluster's ID is not known, and for a Continue that no page has returned.
	ListResources(ctx context.Context, req ListResourcesRequest) (ListResourcesResponse, error)

	// DeleteResource begins to delete a resource, if it still has the UID of the Machine and the ID of
	// the control cluster that the request names; where the cloud can, it checks that in the request
	// that deletes. A VM's own disks and network interfaces are deleted with it. No resource of that
	// ID, or one with other tags, is success with Gone set: nothing is left to delete. It can be
	// repeated, and returns when the cloud has accepted the deletion. Errors: InvalidArgument for a
	// resource without an ID or the UID of a Machine, of a kind that the cloud does not have, and when
	// the control cluster's ID is not known.
	DeleteResource(ctx context.Context, req DeleteResourceRequest) (DeleteResourceResponse, error)
}

// SweeperOf returns the Sweeper of a driver. ok reports whether there is one: in the driver itself,
// or in the driver that it wraps and returns from Unwrap. Without one all methods of the Sweeper
// that is returned are Unimplemented.
func SweeperOf(d Driver) (sweeper Sweeper, ok bool) {
	sweeper, ok = d.(Sweeper)
	for inner := d; ok; {
		wrapper, wraps := inner.(interface{ Unwrap() Driver })
		if !wraps {
			return sweeper, true
		}
		inner = wrapper.Unwrap()
		_, ok = inner.(Sweeper)
	}
	return noSweeper{}, false
}

// noSweeper is the Sweeper of drivers that have none.
type noSweeper struct{}

// Scope is not implemented.
func (noSweeper) Scope(ScopeRequest) (string, error) { return "", unimplemented(OpScope) }

// ListResources is not implemented.
func (noSweeper) ListResources(context.Context, ListResourcesRequest) (ListResourcesResponse, error) {
	return ListResourcesResponse{}, unimplemented(OpResources)
}

// DeleteResource is not implemented.
func (noSweeper) DeleteResource(context.Context, DeleteResourceRequest) (DeleteResourceResponse, error) {
	return DeleteResourceResponse{}, unimplemented(OpSweep)
}

func unimplemented(op Op) error {
	return Errorf(op, Unimplemented, "the driver cannot list what was created for Machines")
}

// ScopeRequest names a class with its credentials.
type ScopeRequest struct {
	// Class is read only.
	Class *v1alpha1.MachineClass
	// Secret as in Target.
	Secret map[string][]byte
	// ControlCluster as in Target.
	ControlCluster string
}

// ListResourcesRequest requests a page of resources.
type ListResourcesRequest struct {
	ScopeRequest
	// Continue is that of the page before; "" requests the first page.
	Continue string
}

// ListResourcesResponse is a page.
type ListResourcesResponse struct {
	// Items has at most MaxResources resources.
	Items []Resource
	// Continue requests the next page; "" on the last page.
	Continue string
}

// ResourceKind is a kind of what is created for a Machine. The set of kinds is closed.
type ResourceKind string

// The kinds.
const (
	ResourceVM               ResourceKind = "VM"
	ResourceNetworkInterface ResourceKind = "NetworkInterface"
	ResourceDisk             ResourceKind = "Disk"
	ResourceAddress          ResourceKind = "Address"
)

// ResourceKinds lists all kinds.
func ResourceKinds() []ResourceKind {
	return []ResourceKind{ResourceVM, ResourceNetworkInterface, ResourceDisk, ResourceAddress}
}

// Resource is something that was created for a Machine. Of all kinds but VMs, only what no VM uses
// is listed.
type Resource struct {
	Kind ResourceKind
	// ID of the resource in its scope; for a VM it is the provider ID.
	ID string
	// Namespace, Machine and MachineUID are those of the Machine for which it was created, as its tags
	// have them.
	Namespace, Machine string
	MachineUID         types.UID
	// NodeName is the name under which a VM joins as a Node; "" for all other kinds.
	NodeName string
}

// DeleteResourceRequest names a resource, as ListResources returned it.
type DeleteResourceRequest struct {
	ScopeRequest
	Resource Resource
}

// DeleteResourceResponse reports the progress of the deletion.
type DeleteResourceResponse struct {
	// Gone is true when nothing of the resource is left.
	Gone bool
}
