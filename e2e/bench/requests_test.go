package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

func TestKinds(t *testing.T) {
	request := func(user, verb, what string, code int) harness.Request {
		resource, subresource, _ := strings.Cut(what, "/")
		return harness.Request{User: user, Verb: verb, Resource: resource, Subresource: subresource, Code: code}
	}
	got := kinds([]harness.Request{
		request("fleet-0", "patch", "machines/status", 200), request("fleet-2", "patch", "machines/status", 200),
		request("fleet-1", "patch", "machines/status", 409),
		request("system:bootstrap:abcdef", "create", "certificatesigningrequests", 201),
		request("system:bootstrap:fedcba", "create", "certificatesigningrequests", 201),
		request("system:bootstrap:012345", "create", "certificatesigningrequests", 201),
		request("system:serviceaccount:kube-system:node-controller", "get", "nodes", 200),
		request("system:node:n", "patch", "nodes/status", 200), request("fleet-0", "update", "leases", 200),
		request("fleet-0", "create", "events", 201), request("fleet-0", "watch", "machines", 200),
	}, 2)
	var lines []string
	for line := range strings.Lines(got) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff([]string{
		"PER MACHINE WHO VERB WHAT ANSWER",
		"1.50 bootstrap create certificatesigningrequests 201",
		"1.00 fleet patch machines/status 200",
		"0.50 fleet patch machines/status 409",
		"0.50 node-controller get nodes 200",
	}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, got)
	}
}
