// Package drivertest is the conformance suite for drivers: what package driver promises, tried out against a cloud.
//
// A driver's author writes one test:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t *testing.T) drivertest.Env {
//			cloud := startCloud(t) // a fresh one, or an empty corner of a real one
//			return drivertest.Env{Driver: …, Class: …, UserData: …, VMs: cloud.vms, …}
//		})
//	}
//
// Each subtest calls the function for an Env of its own. What an Env leaves nil cannot be tried: those subtests are
// skipped, and say what is missing. VMs is the one hook that is required: a suite that asked only the driver could be told
// anything.
//
// The suite makes no assumption about time, except that a call returns within Env.Patience.
package drivertest
