package cloudsim_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// leftoversOf returns the kinds of the left-overs of creates with a client token.
func (b *bubble) leftoversOf(token string) (kinds []cloudapi.LeftoverKind) {
	b.t.Helper()
	for _, l := range ok[cloudapi.LeftoverList](b, http.MethodGet, cloudapi.PathAllLeftovers, nil).Items {
		if l.ClientToken == token {
			kinds = append(kinds, l.Kind)
		}
	}
	return kinds
}

// named returns a request for a VM with a name, a token and a tag that no other has.
func named(name string) cloudapi.CreateInstanceRequest {
	return cloudapi.CreateInstanceRequest{Name: name, ClientToken: "token-of-" + name, Tags: map[string]string{"owner": name}}
}

func TestPartialCreateLeavesAnInterfaceAndADisk(t *testing.T) {
	inBubble(t, cloudapi.Settings{Faults: []cloudapi.Fault{{Kind: cloudapi.FaultPartial, Rate: 1}}}, func(b *bubble) {
		both := []cloudapi.LeftoverKind{cloudapi.LeftoverDisk, cloudapi.LeftoverNetworkInterface}
		for _, name := range []string{"a", "b", "a"} { // the second create of a creates no more
			if status, _, answer := b.send(t.Context(), http.MethodPost, cloudapi.PathInstances,
				named(name)); status != http.StatusInternalServerError {
				t.Fatalf("create: status %d %s, want 500", status, answer)
			}
		}
		changed := 0
		for _, call := range b.calls() {
			if call.Changed {
				changed++
			}
		}
		if all := ok[cloudapi.InstanceList](b, http.MethodGet, cloudapi.PathAllInstances, nil); len(all.Items) > 0 || changed != 2 {
			t.Errorf("VMs %v, %d calls that have changed something; want none, and 2", all.Items, changed)
		}
		b.restart()
		for _, token := range []string{"token-of-a", "token-of-b"} {
			if got := b.leftoversOf(token); !slices.Equal(got, both) {
				t.Errorf("left by %s: %v, want %v", token, got, both)
			}
		}
		ok[cloudapi.Settings](b, http.MethodPatch, cloudapi.PathSettings, map[string]any{"faults": nil})
		b.create(named("b"))
		if left := b.leftoversOf("token-of-b"); len(left) > 0 {
			t.Errorf("the VM of a repeated create does not use what the first one has left: %v", left)
		}
	})
}

func TestLeftoversAreDeletedByTag(t *testing.T) {
	inBubble(t, cloudapi.Settings{Faults: []cloudapi.Fault{{
		Kind: cloudapi.FaultPartial, Rate: 1, Operations: []cloudapi.Operation{cloudapi.OpCreateInstance},
	}}}, func(b *bubble) {
		for _, name := range []string{"a", "b"} {
			b.send(t.Context(), http.MethodPost, cloudapi.PathInstances, named(name))
		}
		if status, _, answer := b.send(t.Context(), http.MethodDelete, cloudapi.PathLeftovers, nil); status != http.StatusBadRequest {
			t.Errorf("a delete of what is of all owners: status %d %s, want 400", status, answer)
		}
		const ofA = cloudapi.PathLeftovers + "?" + cloudapi.QueryTag + "=owner%3Da"
		for _, want := range []int{2, 0} {
			removed := ok[cloudapi.LeftoverList](b, http.MethodDelete, ofA, nil)
			calls := b.calls()
			if last := calls[len(calls)-1]; len(removed.Items) != want || last.Changed != (want > 0) {
				t.Errorf("removed %v, logged as %+v; want %d", removed.Items, last, want)
			}
		}
		if a, b := b.leftoversOf("token-of-a"), b.leftoversOf("token-of-b"); len(a) > 0 || len(b) != 2 {
			t.Errorf("%v of a and %v of b are left; want none and two", a, b)
		}
	})
}

// partly are settings with which all creates leave an interface and a disk.
func partly() cloudapi.Settings {
	return cloudapi.Settings{Faults: []cloudapi.Fault{{
		Kind: cloudapi.FaultPartial, Rate: 1, Operations: []cloudapi.Operation{cloudapi.OpCreateInstance},
	}}}
}

func TestLeftoversAreListedInPages(t *testing.T) {
	inBubble(t, partly(), func(b *bubble) {
		for _, name := range []string{"a", "b", "c"} {
			request := named(name)
			request.Tags["fleet"] = "f"
			b.send(t.Context(), http.MethodPost, cloudapi.PathInstances, request)
		}
		list := func(query string) cloudapi.LeftoverList {
			return ok[cloudapi.LeftoverList](b, http.MethodGet, cloudapi.PathLeftovers+"?"+query, nil)
		}
		for query, want := range map[string]int{
			"": 6, "tag=fleet": 6, "tag=fleet%3Df": 6, "tag=fleet%3Dg": 0, "tag=fleet%3Df&tag=owner%3Da": 2, "tag=owner%3Da&tag=owner%3Db": 0,
		} {
			if got := list(query); len(got.Items) != want || got.NextPageToken != "" {
				t.Errorf("%q: %d left-overs and token %q, want %d and none", query, len(got.Items), got.NextPageToken, want)
			}
		}
		first := list("tag=fleet%3Df&pageSize=4")
		for _, l := range first.Items[2:] { // what is deleted between the pages does not hide what follows
			ok[cloudapi.Leftover](b, http.MethodDelete, leftoverPath(l.ID), nil)
		}
		second := list("tag=fleet%3Df&pageSize=4&pageToken=" + first.NextPageToken)
		if len(first.Items) != 4 || len(second.Items) != 2 || second.NextPageToken != "" || second.Items[0].Tags["owner"] != "c" {
			t.Errorf("first page %+v, second page %+v; want 4 and those of c", first, second)
		}
		if got := list("pageSize=4"); len(got.Items) != 4 || got.NextPageToken != "" {
			t.Errorf("a full page that is the last one: %d left-overs and token %q, want 4 and none", len(got.Items), got.NextPageToken)
		}
		for _, query := range []string{"pageSize=0", "pageSize=1001", "pageToken=%25"} {
			if got := b.refused(http.MethodGet, cloudapi.PathLeftovers+"?"+query, nil); got != cloudapi.CodeInvalidParameter {
				t.Errorf("%q: %s", query, got)
			}
		}
	})
}

func leftoverPath(id string) string { return strings.Replace(cloudapi.PathLeftover, "{id}", id, 1) }

func TestLeftoverIsDeletedUnderCondition(t *testing.T) {
	inBubble(t, partly(), func(b *bubble) {
		request := named("a")
		request.Tags["fleet"] = "f"
		b.send(t.Context(), http.MethodPost, cloudapi.PathInstances, request)
		all := ok[cloudapi.LeftoverList](b, http.MethodGet, cloudapi.PathLeftovers, nil).Items
		at := leftoverPath(all[0].ID)
		for _, query := range []string{"?ifTag=owner%3Db", "?ifTag=owner%3Da&ifTag=fleet%3Dg", "?ifNoTag=owner"} {
			if got := b.refused(http.MethodDelete, at+query, nil); got != cloudapi.CodePreconditionFailed {
				t.Errorf("%s: %s", query, got)
			}
		}
		if left := b.leftoversOf("token-of-a"); len(left) != 2 {
			t.Fatalf("after deletions that were rejected: %v, want both", left)
		}
		if got := ok[cloudapi.Leftover](b, http.MethodDelete, at+"?ifTag=owner%3Da&ifTag=fleet%3Df", nil); got.ID != all[0].ID {
			t.Errorf("deleted %+v, want %s", got, all[0].ID)
		}
		if got := b.refused(http.MethodDelete, at, nil); got != cloudapi.CodeNotFound {
			t.Errorf("the second deletion: %s", got)
		}
		changed := 0
		for _, call := range b.calls() {
			if call.Operation == cloudapi.OpDeleteLeftover && call.Changed {
				changed++
				if call.MachineUID != "token-of-a" {
					t.Errorf("logged as %+v", call)
				}
			}
		}
		b.restart()
		if left := b.leftoversOf("token-of-a"); len(left) != 1 || left[0] != all[1].Kind || changed != 1 {
			t.Errorf("left: %v after %d deletions, want the other one after one", left, changed)
		}
	})
}
