//go:build e2e

// Package chaos injects faults into a lab and checks that the fleet recovers.
//
// SEED makes a run repeatable as far as the machine allows; it is printed. With -short the runs are
// a fraction of their length.
package chaos
