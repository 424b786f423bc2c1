// Package helm tests the fleet as users install it: Helm installs the chart in a lab without a
// fleet, and real kubelets run the StatefulSet's pods with their ServiceAccount, under the chart's
// access rules and admission policies.
//
// The commands are those of the README, docs/lab.md and docs/operations/install.md, which the tests
// read.
//
// Guarantees: while the fleet is installed, scaled, upgraded, rolled back, loses a Node and is
// reinstalled, each change of a MachineDeployment is served, no call of the cloud takes effect
// twice, no request of a replica is forbidden, and no machine, VM or Node that was not changed is
// replaced. Package check reads that from the logs. Not guaranteed: that a container image works.
// An image is a program here (see e2e/lab/cri); all pods share one network.
package helm
