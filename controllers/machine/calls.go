package machine

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// crowdedPause is the time from errCrowded to the next pass of the machine.
const crowdedPause = time.Second

// errCrowded ends a pass that needs a call of the driver while too many calls with the same credentials are in flight. It is not a
// failure: the machine is reconciled again after crowdedPause.
var errCrowded = errors.New("too many calls of the driver are in flight with the same credentials")

// calls bounds how many calls of drivers are in flight with one set of credentials. Namespaces can share credentials, so the runner's
// bound for each namespace does not suffice: a cloud that answers slowly could occupy the workers of all namespaces.
type calls struct {
	most int

	mu       sync.Mutex
	inFlight map[string]int // by credentials
}

func newCalls(most int) *calls { return &calls{most: max(most, 1), inFlight: map[string]int{}} }

// begin reports whether a call may begin now. If so, the caller calls end after it.
func (c *calls) begin(credentials string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight[credentials] >= c.most {
		return false
	}
	c.inFlight[credentials]++
	return true
}

func (c *calls) end(credentials string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight[credentials]--; c.inFlight[credentials] == 0 {
		delete(c.inFlight, credentials)
	}
}

// credentialsOf names the credentials of a class: its provider and its Secrets.
func credentialsOf(class *v1alpha1.MachineClass) string {
	return fmt.Sprint(class.Provider, class.SecretKeys())
}
