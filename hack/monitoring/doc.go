// Command monitoring writes what is generated for those who watch a fleet, each from one short
// source: the chart's dashboards for Grafana (dashboards.yaml), its recording rules and alerts
// about objectives (objectives.go), and the index of the runbooks, from the alerts. `make generate`
// runs it.
//
// Queries of dashboards select the series of one fleet by $fleet, and those of objects by $objects,
// or by $tenant if they belong to one namespace. No query is executed here: the tests in
// e2e/monitoring execute each one.
package main
