// Package monitoring shows that the chart's dashboards and alerts work: a real Prometheus scrapes a
// lab with the chart's rules, during a rollout and during faults.
//
// The lab cannot wait for as long as alerts do in production. So the rules are those that the chart
// renders, with each duration divided by the same number; see faster. What they are compared with
// is as much faster: the interval of scrapes, and the timeouts of the fleet.
//
// TestDashboards is part of `make test`. `make alerts-e2e` also has each alert fire by a fault.
package monitoring
