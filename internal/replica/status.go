package replica

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/zpages"
)

// statusTimeout is how long the loop of the session may take to answer /statusz.
const statusTimeout = time.Second

// StatusRows returns what /statusz shows of the session, and of clocks that are wrong.
func (f *Replica) StatusRows(r *http.Request) []zpages.Row {
	rows := []zpages.Row{{Name: "Replica", Value: f.settings.Replica}, {Name: "Session", Value: f.settings.Session}}
	rows = append(rows, f.clients.clockRows()...)
	ctx, cancel := context.WithTimeout(r.Context(), statusTimeout)
	defer cancel()
	health, err := f.replica.Health(ctx)
	if err != nil {
		return append(rows, zpages.Row{Name: "Session loop", Value: err.Error()})
	}
	rows = append(rows,
		zpages.Row{Name: "Leads", Value: strconv.FormatBool(health.Leads)},
		zpages.Row{Name: "Slots held", Value: strconv.Itoa(health.Held)},
		zpages.Row{Name: "Slots not open", Value: strconv.Itoa(len(health.Waiting))},
		zpages.Row{Name: "Fit", Value: strconv.FormatBool(health.Fitness.IsFit())})
	if reason := health.Fitness.Reason; reason != "" {
		rows = append(rows,
			zpages.Row{Name: "Unfit since", Value: health.Fitness.Since.UTC().Format(time.RFC3339)}, zpages.Row{Name: "Reason", Value: reason})
	}
	if unreached := strings.Join(health.Unreached, ", "); unreached != "" {
		rows = append(rows, zpages.Row{Name: "Unreached accounts, of MachineClasses", Value: unreached})
	}
	return rows
}
