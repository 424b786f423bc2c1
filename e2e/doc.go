// Package e2e tests the fleet against labs: real control planes, a simulated cloud, and VMs that
// join as Nodes.
//
// The tests have the build tag e2e and use the binaries in bin/. They share a lab with two
// clusters, in which each has its own namespace; it is the one that LAB_DIR names or, without
// LAB_DIR, one that is started for them. A test that needs a fleet of its own starts a separate
// lab. All started labs are stopped in the end, also after a panic and an interrupt; their logs are
// kept when a test has failed.
//
// Each test checks what a user can see: objects, Nodes, Events, the VMs at the cloud, its call log
// and the audit logs. No test sleeps. Expected states have to be reached within two minutes, and an
// error names what was missing.
package e2e
