package driver

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Scope checks the text.
func (d checkedDriver) Scope(req ScopeRequest) (string, error) {
	sweeper, _ := SweeperOf(d.next)
	scope, err := sweeper.Scope(req)
	if err != nil {
		return "", err
	}
	if scope == "" || !isID(scope) {
		return "", Errorf(OpScope, Internal,
			"the driver answered with the scope %q of %d bytes; expected 1 to %d printable characters without spaces",
			Clean(scope), len(scope), MaxProviderID)
	}
	return scope, nil
}

// ListResources checks the page as a whole: one resource that cannot be used makes the page an
// error, because a sweep must not take a part of it for the whole.
func (d checkedDriver) ListResources(ctx context.Context, req ListResourcesRequest) (ListResourcesResponse, error) {
	sweeper, _ := SweeperOf(d.next)
	resp, err := sweeper.ListResources(ctx, req)
	if err != nil {
		return ListResourcesResponse{}, err
	}
	if wrong := resp.wrong(req); wrong != "" {
		return ListResourcesResponse{}, Errorf(OpResources, Internal, "the driver answered with %s; the page is not used", wrong)
	}
	return resp, nil
}

// DeleteResource returns nothing but the error of a call that has failed.
func (d checkedDriver) DeleteResource(ctx context.Context, req DeleteResourceRequest) (DeleteResourceResponse, error) {
	sweeper, _ := SweeperOf(d.next)
	resp, err := sweeper.DeleteResource(ctx, req)
	if err != nil {
		return DeleteResourceResponse{}, err
	}
	return resp, nil
}

// wrong describes what is invalid about a page; "" when nothing is.
func (resp ListResourcesResponse) wrong(req ListResourcesRequest) string {
	switch {
	case len(resp.Items) > MaxResources:
		return fmt.Sprintf("a page of %d resources; expected at most %d", len(resp.Items), MaxResources)
	case len(resp.Continue) > MaxContinue:
		return fmt.Sprintf("a token for the next page of %d bytes; expected at most %d", len(resp.Continue), MaxContinue)
	case resp.Continue != "" && resp.Continue == req.Continue:
		return fmt.Sprintf("a page that follows itself: its token for the next page is its own, %q", Clean(resp.Continue))
	}
	for _, r := range resp.Items {
		if wrong := r.wrong(); wrong != "" {
			return fmt.Sprintf("the %s %q: %s", Clean(string(r.Kind)), Clean(r.ID), wrong)
		}
		if r.Namespace != req.Class.Namespace {
			return fmt.Sprintf("the %s %q of namespace %q; expected those of %q only", r.Kind, Clean(r.ID), r.Namespace, req.Class.Namespace)
		}
	}
	return ""
}

// wrong describes what is invalid about a resource; "" when nothing is. Its texts become parts of
// annotations, Events and log lines, and its names and UID those of the Machine that is read before
// the resource is deleted.
func (r Resource) wrong() string {
	if r.ID == "" || !isID(r.ID) {
		return fmt.Sprintf("an ID of %d bytes; expected 1 to %d printable characters without spaces", len(r.ID), MaxProviderID)
	}
	switch r.Kind {
	case ResourceVM:
		if r.NodeName == "" {
			break
		}
		// It need not be the value of a label: a Machine with a longer name, whose VM no machine can use,
		// must not stop the sweep of others.
		if errs := validation.IsDNS1123Subdomain(r.NodeName); len(errs) > 0 {
			return fmt.Sprintf("the node name %q: %s", Clean(r.NodeName), strings.Join(errs, "; "))
		}
	case ResourceNetworkInterface, ResourceDisk, ResourceAddress:
		if r.NodeName != "" {
			return fmt.Sprintf("the node name %q; expected none, because it is no VM", Clean(r.NodeName))
		}
	default:
		return fmt.Sprintf("unknown kind; expected %s, %s, %s or %s", ResourceVM, ResourceNetworkInterface, ResourceDisk, ResourceAddress)
	}
	if errs := validation.IsDNS1123Label(r.Namespace); len(errs) > 0 {
		return fmt.Sprintf("the namespace %q: %s", Clean(r.Namespace), strings.Join(errs, "; "))
	}
	if errs := validation.IsDNS1123Subdomain(r.Machine); len(errs) > 0 {
		return fmt.Sprintf("the name %q of a Machine: %s", Clean(r.Machine), strings.Join(errs, "; "))
	}
	uid := string(r.MachineUID)
	if errs := validation.IsValidLabelValue(uid); uid == "" || len(errs) > 0 {
		return fmt.Sprintf("the UID %q of a Machine; expected a value as of a label, and not an empty one: %s",
			Clean(uid), strings.Join(errs, "; "))
	}
	return ""
}
