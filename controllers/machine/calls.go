package machine

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// crowdedPause is how long a machine waits whose cloud is not asked because too many ask it already.
const crowdedPause = time.Second

// errCrowded ends a pass in which the cloud was to be asked and too many calls with the same credentials are in flight. It is no
// failure: the pass is made again after crowdedPause.
var errCrowded = errors.New("too many calls of the driver are in flight with the same credentials")

// calls bounds how many calls of drivers are in flight with one set of credentials. Namespaces can share them, and a cloud that
// answers one of them late answers all late.
type calls struct {
	most int

	mu       sync.Mutex
	inFlight map[string]int // by credentials
}

func newCalls(most int) *calls { return &calls{most: max(most, 1), inFlight: map[string]int{}} }

// begin reports whether a call may begin now. If so it is ended by end.
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
