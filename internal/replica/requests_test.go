package replica

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"
)

// resourceOf matches the resource and the subresource in the path of a request.
var resourceOf = regexp.MustCompile(`^/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)(?:/[^/]+(/[a-z]+)?)?$`)

// requestCount counts the requests of all replicas, by verb and resource.
type requestCount struct {
	mu sync.Mutex
	n  map[string]float64
}

// begin forgets what was counted.
func (c *requestCount) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n = map[string]float64{}
}

func (c *requestCount) add(q request, r *http.Request) {
	what := q.path
	if match := resourceOf.FindStringSubmatch(q.path); match != nil {
		what = match[1] + match[2]
	}
	verb := q.kind
	if verb == writes {
		verb = strings.ToLower(r.Method)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[verb+" "+what]++
}

// budget is how many requests of a kind may be sent: at rest in a minute, and in a rollout for each
// machine.
type budget struct{ rest, roll float64 }

// others are the requests without a budget.
const others = "others"

// requestBudgets are the budgets by verb and resource.
func requestBudgets() map[string]budget {
	return map[string]budget{
		"put leases": {rest: 130, roll: 4}, "get leases": {rest: 45, roll: 2}, "get namespaces": {rest: 6, roll: 1},
		"get machines": {rest: 3, roll: 0.5}, "get nodes": {rest: 3, roll: 2}, "get secrets": {rest: 3, roll: 0.6},
		"list machines": {rest: 4, roll: 2}, "list machinesets": {rest: 2, roll: 1}, "list machinedeployments": {rest: 2, roll: 0.5},
		"list pods": {roll: 1.5}, "post events": {roll: 14}, "put events": {roll: 2},
		"post machines": {roll: 1.1}, "patch machines": {roll: 3}, "patch machines/status": {roll: 4}, "delete machines": {roll: 1.2},
		"post machinesets": {roll: 0.4}, "patch machinesets": {roll: 5.5}, "patch machinesets/status": {roll: 3.5},
		"patch machinedeployments": {roll: 0.5}, "patch machinedeployments/status": {roll: 2.2},
		"patch nodes": {roll: 5}, "patch nodes/status": {roll: 1.5}, "delete nodes": {roll: 1.2},
		"post secrets": {roll: 1.1}, "delete secrets": {roll: 1.5},
		others: {rest: 6, roll: 1},
	}
}

// over prints the requests next to their budgets, and returns those that exceed them.
func (c *requestCount) over(t *testing.T, unit string, divide float64, of func(budget) float64) (exceeded []string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "REQUESTS\t%s\tBUDGET\t\n", unit)
	budgets, counted := requestBudgets(), map[string]float64{}
	for what, n := range c.n {
		if budgets[what] == (budget{}) {
			what = others
		}
		counted[what] += n / divide
	}
	for _, what := range slices.SortedFunc(maps.Keys(counted), func(a, b string) int {
		return cmp.Or(cmp.Compare(counted[b], counted[a]), cmp.Compare(a, b))
	}) {
		is, most := counted[what], of(budgets[what])
		fmt.Fprintf(w, "%s\t%.2f\t%g\t\n", what, is, most)
		if is > most {
			exceeded = append(exceeded, fmt.Sprintf("%s: %.2f, want at most %g", what, is, most))
		}
	}
	_ = w.Flush() // a strings.Builder returns no errors
	t.Log("\n" + text.String())
	return exceeded
}

// TestRequestsAreWithinTheirBudgets counts what two replicas with 100 classes send at rest, and
// while 36 machines are replaced.
func TestRequestsAreWithinTheirBudgets(t *testing.T) {
	t.Parallel()
	o := replicaOptions()
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t, o, 1, nil)
		defer r.end()
		count := &requestCount{n: map[string]float64{}}
		r.watch = count.add
		r.createUnmanaged()
		r.createClass("a")
		for i := range 99 {
			r.createClassIn("a", fmt.Sprint("class-", i), "z")
		}
		const deployments, machines = 12, 3
		for i := range deployments {
			r.putRootOf("a", fmt.Sprint("d-", i), fmt.Sprint("class-", i), machines)
		}
		r.start("fleet-0")
		r.start("fleet-1")
		r.until("all machines run", func() bool { return r.missing() == "" })
		r.run(atRest(5*time.Minute, 40*time.Minute), nil) // in the long form Nodes that are no machine's have been annotated by then

		measure := func(unit string, divide float64, of func(budget) float64, during func()) {
			count.begin()
			during()
			for _, exceeded := range count.over(t, unit, divide, of) {
				t.Error(exceeded)
			}
		}
		rest := atRest(10*time.Minute, time.Hour)
		measure("IN A MINUTE AT REST", rest.Minutes(), func(b budget) float64 { return b.rest }, func() { r.run(rest, nil) })
		measure("PER MACHINE IN A ROLLOUT", deployments*machines, func(b budget) float64 { return b.roll }, func() {
			for i := range deployments {
				r.relabelTemplate("a", fmt.Sprint("d-", i), "new")
			}
			r.until("all machines are replaced", func() bool { return r.missing() == "" && r.ofVersion("new") == deployments*machines })
		})
	})
}
