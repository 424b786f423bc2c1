package replica

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/machine-controller-fleet/machine-controller-fleet/shard/assignment"
)

// namespaceOf matches the namespace in the path of a request.
var namespaceOf = regexp.MustCompile(`/namespaces/([^/]+)/`)

// TestOnlyTheNamespace: a fleet serves one namespace of two, with all roots in one slot, and sends
// no request about the other.
func TestOnlyTheNamespace(t *testing.T) {
	t.Parallel()
	o := replicaOptions(func(o *Options) { o.Namespace, o.Fleet.ShardBy = "a", string(assignment.ByNamespace) })
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		var mu sync.Mutex
		beyond, within := map[string]bool{}, 0
		places := []string{"a", fleetNamespace, "kube-system"} // the last for bootstrap tokens
		r.watch = func(q request, h *http.Request) {
			if q.place == atTarget && (strings.Contains(q.path, "/nodes") || strings.Contains(h.URL.RawQuery, "spec.nodeName")) {
				return // Nodes, and what runs on them
			}
			mu.Lock()
			defer mu.Unlock()
			namespace := ""
			if match := namespaceOf.FindStringSubmatch(q.path); match != nil {
				namespace = match[1]
			}
			if namespace == "a" {
				within++
			}
			itself := strings.HasSuffix(q.path, "/namespaces") && h.URL.Query().Get("fieldSelector") == "metadata.name=a" // for its annotations
			cluster := q.method == http.MethodGet && strings.HasSuffix(q.path, "/namespaces/kube-system")                 // for its UID
			if !slices.Contains(places, namespace) && !itself && !cluster {
				beyond[q.method+" "+h.URL.RequestURI()] = true
			}
		}
		r.createUnmanaged()
		r.createClass("a")
		r.createClass("b")
		roots := []string{"pool", "second"}
		for _, name := range roots {
			r.putRoot("a", name, 1)
		}
		other := r.putRoot("b", "pool", 1)
		delete(r.roots, other.key())
		r.start("fleet-0")
		r.until("the machines of the namespace run", func() bool { return r.missing() == "" })

		slots, err := assignment.NewSpread(o.Fleet.Slots, assignment.ByNamespace)
		if err != nil {
			t.Fatal(err)
		}
		byName, err := assignment.NewSpread(o.Fleet.Slots, assignment.ByDeployment)
		if err != nil {
			t.Fatal(err)
		}
		want := slots.Of("a", "")
		if byName.Of("a", roots[0]) == byName.Of("a", roots[1]) {
			t.Fatalf("by their names the roots %v are in one slot; choose others", roots)
		}
		for _, resource := range []string{"machinedeployments", "machinesets", "machines"} {
			for _, o := range r.control.List(resource) {
				if got := slotOf(o); o.GetNamespace() == "a" && got != strconv.Itoa(want) ||
					o.GetNamespace() == "b" && (got != "none" || resource != "machinedeployments") {
					t.Errorf("%s %s/%s is in slot %s, want %d for those in namespace a, and no other", resource, o.GetNamespace(), o.GetName(), got, want)
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for request := range beyond {
			t.Errorf("a request beyond the namespace: %s", request)
		}
		if within == 0 {
			t.Error("there is no request in the namespace that is served")
		}
	})
}
