package machinedeployment

import (
	"errors"
	"testing"
	"time"
)

// A status that the API server rejects is written again with a back-off, and not as often as its changes may be written.
func TestARejectedStatusIsWrittenAgainWithABackOff(t *testing.T) {
	onBench(t, func(b *bench) {
		b.server.Refuse("patch machinedeployments/status", errors.New("no"))
		b.create()
		b.pass(10 * time.Minute)
		if tried := b.server.Count("patch machinedeployments/status"); tried < 5 || tried > 30 {
			t.Errorf("tried %d times in ten minutes, want about once in a minute in the end", tried)
		}
	})
}
