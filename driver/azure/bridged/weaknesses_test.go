package bridged

import (
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

// weakness is a case of the conformance suite that this driver cannot pass when it is bridged.
type weakness struct {
	// test is the name of the case.
	test string
	// failure is that of the cloud with which it fails; "" when it fails without one, or with each.
	failure drivertest.Failure
	// skipped reports whether the suite skips the case, because the driver lacks what it is about.
	skipped bool
	reason  string
}

// anyFailure stands for each failure in weaknessOf.
const anyFailure drivertest.Failure = "*"

const (
	unknown = "a VM is not absent when the cloud does not answer"
	lies    = "invalid answers are rejected"
	mapped  = "failures are mapped to codes"

	ofTheState    = "MCM's driver does not look at the state of a VM: one that is being deleted is there"
	ofTheName     = "MCM's driver identifies a VM by its name in the resource group only, and reports no tags"
	ofEachAbsence = "MCM's driver takes each answer with the status 404 for the absence of the VM, also soon after its create"
	ofAnyAnswer   = "MCM's driver does not compare the answer with its request, and builds the provider ID from the Machine's name"
	ofNoCode      = "MCM's driver reports Internal for all failures of Azure but those of capacity"
	ofRepeats     = "the SDK repeats the request for longer than a call may take, and does not report the time to wait: " +
		"the answer is Aborted, with the bridge's time"
	ofNoSweeper = "MCM's contract has no list of left-overs"
)

// weaknesses are all of them. docs/drivers/bridge.md explains what they mean for users.
var weaknesses = []weakness{
	{test: "create does not return a VM that has ended", reason: ofTheState},
	{test: "status of a VM that has ended is NotFound", reason: ofTheState},
	{test: "a VM of another machine is not deleted by its provider ID", reason: ofTheName},
	{test: "a VM without UID is adopted by name and namespace, if requested", reason: ofTheName},
	{test: "a new VM that the cloud does not show yet is not absent", reason: ofEachAbsence},
	{test: "status with several VMs is OutOfRange", skipped: true, reason: "a resource group has one VM of a name"},
	{
		test: unknown, failure: drivertest.Nonsense,
		reason: "MCM's driver takes each answer with the status 404 for the absence of the VM, also that of another server",
	},
	{test: lies, failure: drivertest.Elsewhere, reason: "the SDK follows redirects, and MCM's driver uses what it finds there"},
	{test: lies, failure: drivertest.Endless, reason: ofAnyAnswer},
	{test: lies, failure: drivertest.OtherVM, reason: ofAnyAnswer},
	{test: lies, failure: drivertest.NoID, reason: ofAnyAnswer},
	{test: lies, failure: drivertest.BadID, reason: ofAnyAnswer},
	{test: mapped, failure: drivertest.BadCredentials, reason: ofNoCode},
	{test: mapped, failure: drivertest.Forbidden, reason: ofNoCode},
	{test: mapped, failure: drivertest.ServerError, reason: ofRepeats},
	{test: mapped, failure: drivertest.Throttled, reason: ofRepeats},
	{test: "scopes distinguish accounts, and nothing else", skipped: true, reason: ofNoSweeper},
	{test: "sweep lists the VMs of its namespace and control cluster only", skipped: true, reason: ofNoSweeper},
	{test: "sweep does not list a VM that lacks a tag", skipped: true, reason: ofNoSweeper},
	{test: "sweep reads all pages of VMs", skipped: true, reason: ofNoSweeper},
	{test: "sweep fails when a page of VMs fails", skipped: true, reason: ofNoSweeper},
	{test: "sweep lists left-overs, also those on further pages", skipped: true, reason: ofNoSweeper},
	{test: "sweep requires the control cluster and the UID", skipped: true, reason: ofNoSweeper},
	{test: "sweep deletes that VM only", skipped: true, reason: ofNoSweeper},
	{test: "sweep lists both VMs of a machine, and deletes the second one only", skipped: true, reason: ofNoSweeper},
	{test: "sweep deletes a VM with the tags of its request only", skipped: true, reason: ofNoSweeper},
	{test: "sweep deletes that left-over only", skipped: true, reason: ofNoSweeper},
	{test: "a resource is not gone when the cloud does not answer", skipped: true, reason: ofNoSweeper},
	{test: "sweep rejects invalid answers", skipped: true, reason: ofNoSweeper},
	{test: "a sweep ends with its context", skipped: true, reason: ofNoSweeper},
}

// weaknessOf returns the weakness of a case, as the name of its test has it, with a failure; nil
// for none.
func weaknessOf(test string, how drivertest.Failure) *weakness {
	for i, w := range weaknesses {
		if strings.ReplaceAll(w.test, " ", "_") == test && (w.failure == how || how == anyFailure) {
			return &weaknesses[i]
		}
	}
	return nil
}
