package fence

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// Each reason has a series before its first refusal: the increase of one that appears later would
// miss it.
func TestWhatIsRefusedIsCounted(t *testing.T) {
	s, registry := newStand(t), prometheus.NewRegistry()
	s.refusals = newRefusals(registry)
	wantCounted := func(fenced, lost, stopping, unowned int) {
		t.Helper()
		want := fmt.Sprintf(`
# HELP mcf_refused_total Requests and calls of drivers that were not begun, by reason: unowned, lost, stopping or fenced.
# TYPE mcf_refused_total counter
mcf_refused_total{reason="fenced"} %d
mcf_refused_total{reason="lost"} %d
mcf_refused_total{reason="stopping"} %d
mcf_refused_total{reason="unowned"} %d
`, fenced, lost, stopping, unowned)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "mcf_refused_total"); err != nil {
			t.Error(err)
		}
	}
	wantCounted(0, 0, 0, 0)
	ctx, done := s.own(t)
	defer done()
	write := func() {
		if answer, err := s.send(ctx, t, http.MethodPatch); err == nil {
			_ = answer.Body.Close()
		}
	}
	write()                                        // is sent
	_, _ = s.send(t.Context(), t, http.MethodPost) //nolint:bodyclose // it is refused
	s.slots[testSlot].stop()
	write() // is sent as well: a pass may finish
	for range 2 {
		inner, _ := counting()
		_, _ = s.Driver(inner).DeleteMachine(ctx, driver.DeleteMachineRequest{})
	}
	s.clock.Step(9 * time.Second)
	write()
	s.renew(time.Second)
	s.slots[testSlot].set(0, false)
	for range 3 {
		write()
	}
	wantCounted(1, 3, 2, 1)
}
