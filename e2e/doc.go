// Package e2e tests the fleet against labs: real control planes, a simulated cloud, and VMs that join as Nodes.
//
// The tests have the build tag e2e and use the binaries in bin/. They share a lab with two clusters, in which each has a
// namespace of its own; it is the one that LAB_DIR names or, without LAB_DIR, one that is started for them. A test that
// must be alone with a fleet starts a lab for itself. All labs that were started are stopped in the end, also after a
// panic and an interrupt; their logs stay when a test has failed.
//
// Each test looks at what a user can see: objects, Nodes, Events, the VMs at the cloud, its call log and the audit logs.
// Nothing sleeps. What is waited for has to come within two minutes, and an error tells what was missing.
package e2e
