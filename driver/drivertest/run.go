package drivertest

import "testing"

// Run runs the suite. newEnv is called once for each subtest and returns an Env whose cloud has no
// VM.
func Run(t *testing.T, newEnv func(t *testing.T) Env) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(s *suite)
	}{
		{"create creates a VM that is found", testCreate},
		{"create twice creates one VM", testCreateTwice},
		{"create at the same time creates one VM", testCreateConcurrently},
		{"create after a lost answer creates one VM", testCreateAfterLostAnswer},
		{"create after one that failed part-way creates one VM and no left-overs", testCreateAfterPart},
		{"create with other user data finds the VM", testCreateWithOtherUserData},
		{"create does not return a VM that has ended", testCreateAfterEnd},
		{"create rejects a provider spec that cannot work", testBadSpecs},
		{"fields that a create ignores are reported", testUnknownFields},
		{"initialize can be repeated", testInitialize},
		{"delete of nothing succeeds", testDeleteNothing},
		{"delete by provider ID removes that VM only", testDeleteByProviderID},
		{"delete without provider ID finds the VM", testDeleteByUID},
		{"delete without UID is rejected", testDeleteWithoutUID},
		{"a VM of another machine is not deleted by its provider ID", testForeignProviderID},
		{"a VM of another machine is not initialized", testForeignInitialize},
		{"a VM without UID is adopted by name and namespace, if requested", testAdopt},
		{"delete without a VM removes the left-overs of a create", testDeleteLeftovers},
		{"delete at the same time", testDeleteConcurrently},
		{"status of a VM that has ended is NotFound", testStatusAfterEnd},
		{"a new VM that the cloud does not show yet is not absent", testNotShownYet},
		{"status with several VMs is OutOfRange", testStatusOfSeveral},
		{"list shows all VMs and no others", testList},
		{"list reads all pages", testListPages},
		{"list fails when a page fails", testListHalf},
		{"a VM is not absent when the cloud does not answer", testUnknownIsNotAbsent},
		{"invalid answers are rejected", testLies},
		{"failures are mapped to codes", testCodes},
		{"a call ends with its context", testContexts},
		{"unknown volumes are skipped", testVolumes},
		{"create finds the VM that was created before the control cluster was known", testCreateBeforeControlCluster},
		{"scopes distinguish accounts, and nothing else", testScope},
		{"sweep lists the VMs of its namespace and control cluster only", testSweepList},
		{"sweep does not list a VM that lacks a tag", testSweepWithoutTags},
		{"sweep reads all pages of VMs", testSweepPages},
		{"sweep fails when a page of VMs fails", testSweepHalf},
		{"sweep lists left-overs, also those on further pages", testSweepLeftovers},
		{"sweep requires the control cluster and the UID", testSweepArguments},
		{"sweep deletes that VM only", testSweepVM},
		{"sweep lists both VMs of a machine, and deletes the second one only", testSweepSurplus},
		{"sweep deletes a VM with the tags of its request only", testSweepOtherTags},
		{"sweep deletes that left-over only", testSweepLeftover},
		{"a resource is not gone when the cloud does not answer", testSweepUnknown},
		{"sweep rejects invalid answers", testSweepLies},
		{"a sweep ends with its context", testSweepContexts},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := newEnv(t)
			if env.Driver == nil || env.Class == nil || env.VMs == nil {
				t.Fatal("drivertest.Env: Driver, Class and VMs are required")
			}
			test.run(&suite{Env: env, t: t, controlCluster: controlCluster})
		})
	}
}
