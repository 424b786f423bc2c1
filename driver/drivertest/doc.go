// Package drivertest is the conformance suite for drivers: it checks the guarantees of package
// driver against a cloud.
//
// A driver's author writes one test:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, func(t *testing.T) drivertest.Env {
//			cloud := startCloud(t) // a fresh one, or an empty account of a real one
//			return drivertest.Env{Driver: …, Class: …, UserData: …, VMs: cloud.vms, …}
//		})
//	}
//
// Each subtest calls the function for its own Env. Subtests that need a field which an Env leaves
// nil are skipped, and name it. VMs is the one hook that is required: the driver's own answers
// prove nothing.
//
// The suite has no assumption about time, except that a call returns within Env.CallTimeout.
package drivertest
