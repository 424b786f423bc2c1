package session

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDebugSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newServer(), "fleet-0")
		wantAll(t, 25*time.Second, p)
		_, done, ok := p.fence.Admit(t.Context(), 3)
		if !ok {
			t.Fatal("an open slot admits no pass")
		}
		defer done()
		recorder := httptest.NewRecorder()
		p.ServeSlots(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/slots", nil))
		var got struct {
			Session string
			Leads   bool
			Fence   struct{ Monotonic time.Duration }
			Now     struct{ Monotonic time.Duration }
			Here    []struct {
				Slot, Epoch, InFlight int
				Held, Open            bool
			}
			Slots  []struct{ Holder string }
			Grants [][]int
		}
		if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Session != "fleet-0_abcde" || !got.Leads || got.Fence.Monotonic <= got.Now.Monotonic {
			t.Errorf("it shows %+v, want the session, that it leads, and a fence that is to come", got)
		}
		if diff := cmp.Diff(instantGrants{}.Grants(), got.Grants); diff != "" {
			t.Errorf("grants (-want +got):\n%s", diff)
		}
		if len(got.Here) != fleetSlots || len(got.Slots) != fleetSlots {
			t.Fatalf("%d slots here of %d, want %d", len(got.Here), len(got.Slots), fleetSlots)
		}
		for slot, here := range got.Here {
			want := 0
			if slot == 3 {
				want = 1
			}
			if here.Slot != slot || here.Epoch != 1 || !here.Held || !here.Open || here.InFlight != want {
				t.Errorf("slot %d: %+v, want it held and open under the first epoch, with %d in flight", slot, here, want)
			}
			if got.Slots[slot].Holder != got.Session {
				t.Errorf("slot %d is held by %q, want the session", slot, got.Slots[slot].Holder)
			}
		}
	})
}
