package machinedeployment

import (
	"errors"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apitest"
)

// A status that the API server rejects is written again with a back-off, and not as often as its changes may be written.
func TestARejectedStatusIsWrittenAgainWithABackOff(t *testing.T) {
	onBench(t, func(b *bench) {
		tried := 0
		b.server.Refuse(func(r apitest.Request) error {
			if r.Resource != "machinedeployments" || r.Subresource != "status" {
				return nil
			}
			tried++
			return errors.New("no")
		})
		b.create()
		b.pass(10 * time.Minute)
		if tried < 5 || tried > 30 {
			t.Errorf("tried %d times in ten minutes, want about once in a minute in the end", tried)
		}
	})
}
