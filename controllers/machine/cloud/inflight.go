package cloud

import (
	"fmt"
	"sync"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// inFlight bounds how many calls of drivers are in flight with one set of credentials. Namespaces
// can share credentials, so the runner's bound for each namespace does not suffice: a cloud that
// answers slowly could occupy the workers of all namespaces.
type inFlight struct {
	most int

	mu    sync.Mutex
	calls map[string]int // by credentials
}

func newInFlight(most int) *inFlight { return &inFlight{most: max(most, 1), calls: map[string]int{}} }

// begin reports whether a call may begin now. If so, the caller calls end after it.
func (f *inFlight) begin(credentials string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[credentials] >= f.most {
		return false
	}
	f.calls[credentials]++
	return true
}

func (f *inFlight) end(credentials string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[credentials]--; f.calls[credentials] == 0 {
		delete(f.calls, credentials)
	}
}

// credentialsOf names the credentials of a class: its provider and its Secrets.
func credentialsOf(class *v1alpha1.MachineClass) string {
	return fmt.Sprint(class.Provider, class.SecretKeys())
}
