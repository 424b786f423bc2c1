package lifecycle

import (
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

// TestFieldsThatConcernUsers has fields of the APIs for VMs of Azure, EC2 and Google, and
// misspelled ones.
func TestFieldsThatConcernUsers(t *testing.T) {
	for path := range strings.FieldsSeq(`
		properties.securityProfile.encryptionAtHost properties.encryptionathost properties.securityprofil.secureBoot
		properties.storageProfile.osDisk.managedDisk.diskEncryptionSet properties.storageProfile.dataDisks[].encryptionSettings
		properties.storageProfile.osDisk.managedDisk.diskEncryptionSet.id properties.networkProfile.networkSecurityGroup
		properties.osProfile.adminPassword properties.osProfile.secrets properties.osProfile.allowExtensionOperations.ssh properties.identity
		publicIPAddress blockDevices[].encrypted blockDevices[].ebs.kmsKeyId blockDevices[].ebs.encripted enclaveOptions.enabled
		networkInterfaces[].publicIp metadataOptions.httpTokens instanceMetadataOptions.instanceMetadataTags disableApiTermination
		iamInstanceProfile shieldedInstanceConfig.enableVtpm confidentialInstanceConfig deletionProtection
		properties.additionalCapabilities.ultraSSDEnabled properties.priority properties.evictionPolicy properties.billingProfile.maxPrice
		properties.licenseType properties.host.id properties.hostGroup.id properties.storageProfile.osDisk.diffDiskSettings
		properties.storageProfile.dataDisks[].diskIOPSReadWrite instanceMarketOptions.marketType spotOptions spotPrize
		creditSpecification.cpuCredits licenseSpecifications hibernationOptions capacityReservationTarget placement.tenancy placement.hostId
		scheduling.preemptible scheduling.provisioningModel blockDevices[].ebs.throughputMibps`) {
		if !concernsUser(path) {
			t.Errorf("%s is ignored without a user's consent", path)
		}
	}
	for path := range strings.FieldsSeq(`
		properties.osProfile.computerName properties.osProfile.customData properties.networkProfile.networkInterfaces
		properties.storageProfile.osDisk.name hostname blockDevices[].noDevice blockDevices[].virtualName kernelId ramdiskId
		proximityPlacementGroup.id zone description userDataBase64`) {
		if concernsUser(path) {
			t.Errorf("%s is refused, although it concerns neither security nor price", path)
		}
	}
}

func TestFieldsNote(t *testing.T) {
	class := &v1alpha1.MachineClass{Provider: "Azure"}
	class.Name = "c"
	many := make([]string, mostListed+2)
	for i := range many {
		many[i] = "f"
	}
	for name, tc := range map[string]struct {
		fact     FieldsFact
		note     string
		event    string // a part of it
		mayEvent bool
	}{
		"none": {fact: FieldsFact{Read: true}},
		"harmless ones": {
			FieldsFact{Read: true, Unknown: []string{"a", "b"}},
			"a,b",
			`The driver of provider "Azure" ignores fields of providerSpec, because it does not know them or makes no use of them: a,b`, true,
		},
		"one that is refused": {
			FieldsFact{Read: true, Unknown: []string{"a", "priority"}}, "a,priority", `no VM is created from MachineClass "c"`, true,
		},
		"the driver refuses it": {
			FieldsFact{Read: true, Unknown: []string{"zonne"}, Refused: true},
			"refused: zonne",
			`The driver of provider "Azure" refuses fields of providerSpec that it does not know: zonne; no VM is created`, true,
		},
		"many": {FieldsFact{Read: true, Unknown: many}, strings.Repeat("f,", mostListed-1) + "f and 2 more", "and 2 more", true},
		"they are not reported": {
			FieldsFact{Read: true, Unreported: true}, v1alpha1.UnknownFieldsUnreported, "does not report which fields", true,
		},
	} {
		note, event := FieldsNote(class, tc.fact)
		if note != tc.note || !strings.Contains(event, tc.event) || (event != "") != tc.mayEvent {
			t.Errorf("%s: note %q and Event %q, want %q and %q", name, note, event, tc.note, tc.event)
		}
	}
}
