package drivertest

import "testing"

// Run runs the suite. newEnv is called once for each subtest and returns an Env whose cloud has no VM.
func Run(t *testing.T, newEnv func(t *testing.T) Env) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(s *suite)
	}{
		{"create makes a VM that is found", testCreate},
		{"create twice makes one VM", testCreateTwice},
		{"create at the same time makes one VM", testCreateConcurrently},
		{"create after a lost answer makes one VM", testCreateAfterLostAnswer},
		{"create after one that failed part-way makes one VM, and leaves nothing else", testCreateAfterPart},
		{"create with other user data finds the VM", testCreateWithOtherUserData},
		{"create does not return a VM that has ended", testCreateAfterEnd},
		{"create refuses a provider spec that cannot work", testBadSpecs},
		{"initialize can be repeated", testInitialize},
		{"delete of nothing succeeds", testDeleteNothing},
		{"delete by provider ID removes that VM only", testDeleteByProviderID},
		{"delete without provider ID finds the VM", testDeleteByUID},
		{"delete without UID is refused", testDeleteWithoutUID},
		{"a VM of another machine is left, whatever the provider ID says", testForeignProviderID},
		{"a VM of another machine is not initialized", testForeignInitialize},
		{"a VM without UID is adopted by name and namespace, if asked to", testAdopt},
		{"delete without a VM removes what a create has left", testDeleteLeftovers},
		{"delete at the same time", testDeleteConcurrently},
		{"status of a VM that has ended is NotFound", testStatusAfterEnd},
		{"status with several VMs is OutOfRange", testStatusOfSeveral},
		{"list shows all VMs and no others", testList},
		{"list reads all pages", testListPages},
		{"list fails when a page fails", testListHalf},
		{"what the cloud does not answer is not absent", testUnknownIsNotAbsent},
		{"lies are not believed", testLies},
		{"failures have their codes", testCodes},
		{"a context that ends ends the call", testContexts},
		{"volumes that are not known are left out", testVolumes},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := newEnv(t)
			if env.Driver == nil || env.Class == nil || env.VMs == nil {
				t.Fatal("drivertest.Env: Driver, Class and VMs are required")
			}
			test.run(&suite{Env: env, t: t})
		})
	}
}
