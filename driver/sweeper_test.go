package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// sweeping is a driver with a Sweeper that gives every call the same answer.
type sweeping struct {
	fixedDriver

	scope string
	page  ListResourcesResponse
	fails error
}

func (s sweeping) Scope(ScopeRequest) (string, error) { return s.scope, s.fails }

func (s sweeping) ListResources(context.Context, ListResourcesRequest) (ListResourcesResponse, error) {
	return s.page, s.fails
}

func (s sweeping) DeleteResource(context.Context, DeleteResourceRequest) (DeleteResourceResponse, error) {
	return DeleteResourceResponse{Gone: true}, s.fails
}

// wrapping is a wrapper that has all methods of Sweeper, regardless of what it wraps.
type wrapping struct {
	Driver
	noSweeper
}

func (w wrapping) Unwrap() Driver { return w.Driver }

func TestSweeperOfDriver(t *testing.T) {
	for name, c := range map[string]struct {
		driver Driver
		want   bool
	}{
		"no driver":               {nil, false},
		"a driver with one":       {sweeping{}, true},
		"a driver without one":    {fixedDriver{}, false},
		"checked, with one":       {Checked(sweeping{}), true},
		"checked, without one":    {Checked(fixedDriver{}), false},
		"wrapped twice, with one": {Checked(wrapping{Driver: sweeping{}}), true},
		"wrapped twice, without":  {Checked(wrapping{Driver: fixedDriver{}}), false},
		"wrapped by what is none": {Checked(named{Driver: sweeping{}}), false},
	} {
		sweeper, ok := SweeperOf(c.driver)
		if ok != c.want || sweeper == nil {
			t.Errorf("%s: %t, %v; want %t", name, ok, sweeper, c.want)
		}
	}
	registry := NewRegistry(map[string]Driver{"with": wrapping{Driver: sweeping{}}, "without": wrapping{Driver: fixedDriver{}}})
	for provider, want := range map[string]bool{"with": true, "without": false, "unknown": false} {
		sweeper, ok := registry.Sweeper(provider)
		if ok != want {
			t.Errorf("the registry has a Sweeper of provider %q: %t, want %t", provider, ok, want)
		}
		_, err1 := sweeper.Scope(ScopeRequest{})
		_, err2 := sweeper.ListResources(t.Context(), ListResourcesRequest{})
		_, err3 := sweeper.DeleteResource(t.Context(), DeleteResourceRequest{})
		for _, err := range []error{err1, err2, err3} {
			if !want && CodeOf(err) != Unimplemented {
				t.Errorf("the Sweeper of provider %q: %v, want Unimplemented", provider, err)
			}
		}
	}
}

// orphan returns a resource in order, with a change.
func orphan(change func(*Resource)) Resource {
	r := Resource{
		Kind: ResourceVM, ID: "azure:///subscriptions/a(b)/übung/i-1", Namespace: "n", Machine: "shoot.worker-1", MachineUID: "7f1c6c0e-5b0b",
		NodeName: "ip-10-0-0-1.internal",
	}
	if change != nil {
		change(&r)
	}
	return r
}

func TestPagesOfResourcesAreChecked(t *testing.T) {
	long := strings.Repeat("x", MaxProviderID)
	req := ListResourcesRequest{
		ScopeRequest: ScopeRequest{Class: &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}}}, Continue: "own",
	}
	one := func(change func(*Resource)) ListResourcesResponse {
		return ListResourcesResponse{Items: []Resource{orphan(nil), orphan(change)}}
	}
	disk := func(r *Resource) { r.Kind, r.NodeName = ResourceDisk, "" }
	for name, c := range map[string]struct {
		page  ListResourcesResponse
		wrong bool
	}{
		"nothing":                  {ListResourcesResponse{}, false},
		"nothing, and more":        {ListResourcesResponse{Continue: "next"}, false},
		"in order":                 {one(disk), false},
		"a network interface":      {one(func(r *Resource) { r.Kind, r.NodeName = ResourceNetworkInterface, "" }), false},
		"an address":               {one(func(r *Resource) { r.Kind, r.NodeName = ResourceAddress, "" }), false},
		"a VM without a node name": {one(func(r *Resource) { r.NodeName = "" }), false},
		"at the limits": {ListResourcesResponse{
			Items: slices.Repeat([]Resource{orphan(func(r *Resource) { r.ID = long })}, MaxResources), Continue: strings.Repeat("x", MaxContinue),
		}, false},
		"more resources":           {ListResourcesResponse{Items: slices.Repeat([]Resource{orphan(nil)}, MaxResources+1)}, true},
		"a token without end":      {ListResourcesResponse{Continue: strings.Repeat("x", MaxContinue+1)}, true},
		"its own token":            {ListResourcesResponse{Continue: "own"}, true},
		"no ID":                    {one(func(r *Resource) { r.ID = "" }), true},
		"an ID with a line":        {one(func(r *Resource) { r.ID = "i-1\nx" }), true},
		"an ID with a space":       {one(func(r *Resource) { r.ID = "i 1" }), true},
		"an ID without end":        {one(func(r *Resource) { r.ID = long + "x" }), true},
		"no kind":                  {one(func(r *Resource) { r.Kind = "" }), true},
		"an unknown kind":          {one(func(r *Resource) { r.Kind = "Bucket" }), true},
		"no namespace":             {one(func(r *Resource) { r.Namespace = "" }), true},
		"a bad namespace":          {one(func(r *Resource) { r.Namespace = "a.b" }), true},
		"another namespace":        {one(func(r *Resource) { r.Namespace = "other" }), true},
		"no name":                  {one(func(r *Resource) { r.Machine = "" }), true},
		"a bad name":               {one(func(r *Resource) { r.Machine = "a/../b" }), true},
		"no UID":                   {one(func(r *Resource) { r.MachineUID = "" }), true},
		"a UID with a line":        {one(func(r *Resource) { r.MachineUID = "a\nb" }), true},
		"a node name that is none": {one(func(r *Resource) { r.NodeName = "a/b" }), true},
		"a node name without end":  {one(func(r *Resource) { r.NodeName = strings.Repeat("x", 254) }), true},
		"names of 253 characters": {
			one(func(r *Resource) { r.Machine, r.NodeName = strings.Repeat("x", 253), strings.Repeat("x", 253) }), false,
		},
		"a disk with the name of a Node": {one(func(r *Resource) { r.Kind = ResourceDisk }), true},
	} {
		d, _ := SweeperOf(Checked(sweeping{page: c.page}))
		resp, err := d.ListResources(t.Context(), req)
		if !c.wrong {
			if err != nil || cmp.Diff(c.page, resp) != "" {
				t.Errorf("%s: %v\n%s", name, err, cmp.Diff(c.page, resp))
			}
			continue
		}
		if CodeOf(err) != Internal || len(resp.Items) > 0 || resp.Continue != "" || strings.ContainsAny(fmt.Sprint(err), "\n") {
			t.Errorf("%s: %v with %d resources and token %q, want Internal and none", name, err, len(resp.Items), resp.Continue)
		}
	}
}

func TestScopesAreChecked(t *testing.T) {
	for scope, want := range map[string]Code{
		"https://cloud/#0a1b": OK, strings.Repeat("x", MaxProviderID): OK, "": Internal, "a b": Internal, "a\nb": Internal,
		strings.Repeat("x", MaxProviderID+1): Internal,
	} {
		d, _ := SweeperOf(Checked(sweeping{scope: scope}))
		got, err := d.Scope(ScopeRequest{})
		if CodeOf(err) != want || (got == scope) != (want == OK || scope == "") {
			t.Errorf("scope %q: %q, %v; want code %v", scope, got, err, want)
		}
	}
}

// An error comes without a part of an answer.
func TestErrorsOfCheckedSweepers(t *testing.T) {
	broken := errors.New("broken")
	d, _ := SweeperOf(Checked(sweeping{scope: "a", page: ListResourcesResponse{Items: []Resource{orphan(nil)}, Continue: "x"}, fails: broken}))
	scope, err1 := d.Scope(ScopeRequest{})
	page, err2 := d.ListResources(t.Context(), ListResourcesRequest{})
	deleted, err3 := d.DeleteResource(t.Context(), DeleteResourceRequest{})
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, broken) {
			t.Errorf("%v, want the driver's error", err)
		}
	}
	if scope != "" || len(page.Items) > 0 || page.Continue != "" || deleted.Gone {
		t.Errorf("next to their errors: scope %q, page %+v, deleted %+v", scope, page, deleted)
	}
}
