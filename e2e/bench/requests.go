package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// counts reports whether a request is counted among those of all clients: reads and writes, except
// by kubelets and of Events and Leases.
func counts(r harness.Request) bool {
	isRead := r.Verb == "get" || r.Verb == "list"
	return (isRead || r.IsWrite()) && r.Resource != "leases" && r.Resource != "events" && !strings.HasPrefix(r.User, "system:node:")
}

// kind contains what requests in one line of the table have in common.
type kind struct {
	who, verb, what string
	code            int
}

// kinds returns a table of requests for each machine, the most frequent ones first.
func kinds(requests []harness.Request, machines int) string {
	number := map[kind]int{}
	for _, r := range requests {
		if counts(r) {
			number[kindOf(r)]++
		}
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PER MACHINE\tWHO\tVERB\tWHAT\tANSWER\t")
	for _, k := range slices.SortedFunc(maps.Keys(number), func(a, b kind) int {
		return cmp.Or(cmp.Compare(number[b], number[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	}) {
		fmt.Fprintf(w, "%.2f\t%s\t%s\t%s\t%d\t\n", float64(number[k])/float64(machines), k.who, k.verb, k.what, k.code)
	}
	_ = w.Flush() // a strings.Builder returns no errors
	return text.String()
}

func kindOf(r harness.Request) kind {
	k := kind{verb: r.Verb, what: r.Resource, code: r.Code}
	if r.Subresource != "" {
		k.what += "/" + r.Subresource
	}
	switch parts := strings.Split(r.User, ":"); {
	case r.IsFleet():
		k.who = "fleet"
	case strings.HasPrefix(r.User, "system:bootstrap:"): // differs for each machine
		k.who = "bootstrap"
	default:
		k.who = parts[len(parts)-1]
	}
	return k
}
