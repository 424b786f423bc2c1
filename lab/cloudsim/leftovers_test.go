package cloudsim_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/simulated/cloudapi"
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

// named returns a request for a VM with a name, a token and a tag of its own.
func named(name string) cloudapi.CreateInstanceRequest {
	return cloudapi.CreateInstanceRequest{Name: name, ClientToken: "token-of-" + name, Tags: map[string]string{"owner": name}}
}

func TestPartialCreateLeavesAnInterfaceAndADisk(t *testing.T) {
	inBubble(t, cloudapi.Settings{Faults: []cloudapi.Fault{{Kind: cloudapi.FaultPartial, Rate: 1}}}, func(b *bubble) {
		both := []cloudapi.LeftoverKind{cloudapi.LeftoverDisk, cloudapi.LeftoverNetworkInterface}
		for _, name := range []string{"a", "b", "a"} { // the second create of a makes no more
			if status, _, answer := b.send(t.Context(), http.MethodPost, cloudapi.PathInstances, named(name)); status != http.StatusInternalServerError {
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
