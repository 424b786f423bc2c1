package telemetry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOwnerAttributes(t *testing.T) {
	for name, tc := range map[string]struct {
		owner Owner
		want  map[string]string
	}{
		"a slot": {Owner{Replica: "r", Session: "r_1", Slot: 3, Epoch: 9}, map[string]string{
			"mcf.replica": "r", "mcf.session": "r_1", "mcf.slot": "3", "mcf.epoch": "9",
		}},
		"the leader": {
			Owner{Replica: "r", Session: "r_1", Leader: true}, map[string]string{"mcf.replica": "r", "mcf.session": "r_1", "mcf.leader": "true"},
		},
	} {
		got := map[string]string{}
		for _, a := range OwnerAttributes(WithOwner(t.Context(), tc.owner)) {
			got[string(a.Key)] = a.Value.String()
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := OwnerAttributes(t.Context()); got != nil {
		t.Errorf("without an owner: %v", got)
	}
}
