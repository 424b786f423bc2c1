package simulated

import (
	"net/http"
	"path"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/simulated/cloudapi"
)

// Service returns the resource of the cloud's API that a request is about, for metrics: instances
// or leftovers, which are all that the driver uses, else other.
func Service(r *http.Request) string {
	for _, resource := range []string{cloudapi.PathInstances, cloudapi.PathLeftovers} {
		if strings.Contains(r.URL.Path, resource) {
			return path.Base(resource)
		}
	}
	return "other"
}
