package azure

import (
	"encoding/json"
	"strings"
	"testing"
)

// fullSpec has every field.
const fullSpec = `{
	"location": "westeurope", "resourceGroup": "shoot--a", "cloudConfiguration": {"name": "AzureGovernment"},
	"subnetInfo": {"vnetName": "vnet", "subnetName": "nodes", "vnetResourceGroup": "network"},
	"tags": {"Name": "shoot--a", "kubernetes.io-cluster-shoot--a": "1", "kubernetes.io-role-node": "1", "worker.gardener.cloud_pool": "pool"},
	"properties": {
		"hardwareProfile": {"vmSize": "Standard_D4_v3"},
		"osProfile": {
			"adminUsername": "core", "computerName": "ignored", "adminPassword": "ignored", "customData": "ignored",
			"linuxConfiguration": {"disablePasswordAuthentication": true,
				"ssh": {"publicKeys": {"path": "/home/core/.ssh/authorized_keys", "keyData": "ssh-rsa AAAA"}}}
		},
		"storageProfile": {
			"imageReference": {"communityGalleryImageID": "/CommunityGalleries/g/Images/i/Versions/1"},
			"diskControllerType": "NVMe",
			"osDisk": {"name": "ignored", "caching": "ReadWrite", "createOption": "FromImage", "diskSizeGB": 50,
				"managedDisk": {"storageAccountType": "Premium_LRS", "securityProfile": {"securityEncryptionType": "VMGuestStateOnly"}}},
			"dataDisks": [
				{"name": "data", "lun": 0, "caching": "None", "storageAccountType": "Premium_LRS", "diskSizeGB": 10, "imageRef": {"id": "/image"}},
				{"lun": 1, "storageAccountType": "Standard_LRS", "diskSizeGB": 20}]
		},
		"networkProfile": {"acceleratedNetworking": true, "networkInterfaces": {}},
		"identityID": "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i",
		"diagnosticsProfile": {"enabled": true, "storageURI": "https://storage"},
		"securityProfile": {"securityType": "ConfidentialVM", "uefiSettings": {"vtpmEnabled": true, "secureBootEnabled": true}},
		"capacityReservation": {
			"capacityReservationGroupID": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/r"},
		"zone": 2
	}
}`

// changed returns fullSpec with a value at a path, or without it for a nil value.
func changed(t *testing.T, path string, value any) []byte {
	t.Helper()
	var spec map[string]any
	if err := json.Unmarshal([]byte(fullSpec), &spec); err != nil {
		t.Fatal(err)
	}
	at, keys := spec, strings.Split(path, " ")
	for _, key := range keys[:len(keys)-1] {
		if list, ok := at[key].([]any); ok {
			at, _ = list[0].(map[string]any)
			continue
		}
		at, _ = at[key].(map[string]any)
	}
	last := keys[len(keys)-1]
	if at[last] = value; value == nil {
		delete(at, last)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestValidSpecs(t *testing.T) {
	for name, raw := range map[string][]byte{
		"every field":             []byte(fullSpec),
		"an unknown field":        changed(t, "properties futureField", "x"),
		"another case of a field": []byte(strings.Replace(fullSpec, `"resourceGroup"`, `"ResourceGroup"`, 1)),
		"a URN": changed(t,
			"properties storageProfile imageReference", map[string]any{"urn": "p:o:s:v", "skipMarketplaceAgreement": true}),
		"a shared image": changed(t,
			"properties storageProfile imageReference", map[string]any{"sharedGalleryImageID": "/SharedGalleries/g"}),
		"no cloud":             changed(t, "cloudConfiguration", nil),
		"no data disks":        changed(t, "properties storageProfile dataDisks", nil),
		"an empty reservation": changed(t, "properties capacityReservation", map[string]any{}),
		"a reservation in lower case": changed(t, "properties capacityReservation capacityReservationGroupID",
			"/subscriptions/s/resourcegroups/g/providers/microsoft.compute/capacityreservationgroups/r"),
		"an empty availability set":        changed(t, "properties availabilitySet", map[string]any{}),
		"an empty type of a controller":    changed(t, "properties storageProfile diskControllerType", ""),
		"no profile of security":           changed(t, "properties securityProfile", nil),
		"a disk that has the whole number": changed(t, "properties storageProfile osDisk diskSizeGB", 1),
	} {
		if _, err := ParseProviderSpec(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInvalidSpecs(t *testing.T) {
	properties := "providerSpec.properties."
	storage := properties + "storageProfile."
	tooMany := map[string]any{}
	for i := range 50 {
		tooMany["kubernetes.io-cluster-"+strings.Repeat("x", i)] = "1"
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string // path of the field
	}{
		"no object":         {[]byte(`"x"`), "providerSpec: a JSON string"},
		"no JSON":           {[]byte(`{`), "providerSpec: "},
		"nothing":           {nil, "providerSpec: "},
		"mistyped":          {changed(t, "properties zone", "2"), "providerSpec.properties.zone: a JSON string"},
		"no location":       {changed(t, "location", nil), "providerSpec.location"},
		"no resource group": {changed(t, "resourceGroup", " "), "providerSpec.resourceGroup"},
		"a path":            {changed(t, "resourceGroup", "a/../b"), "providerSpec.resourceGroup"},
		"no network":        {changed(t, "subnetInfo vnetName", nil), "providerSpec.subnetInfo.vnetName"},
		"no subnet":         {changed(t, "subnetInfo subnetName", nil), "providerSpec.subnetInfo.subnetName"},
		"no size":           {changed(t, "properties hardwareProfile vmSize", nil), properties + "hardwareProfile.vmSize"},
		"no user":           {changed(t, "properties osProfile adminUsername", nil), properties + "osProfile.adminUsername"},
		"no image": {
			changed(t, "properties storageProfile imageReference", map[string]any{}), storage + "imageReference: Forbidden: 0 of",
		},
		"two images": {
			changed(t, "properties storageProfile imageReference id", "/image"), storage + "imageReference: Forbidden: 2 of",
		},
		"a URN of three parts": {
			changed(t, "properties storageProfile imageReference", map[string]any{"urn": "p:o:s"}), storage + "imageReference.urn",
		},
		"a URN without a version": {
			changed(t, "properties storageProfile imageReference", map[string]any{"urn": "p:o:s:"}), storage + "imageReference.urn",
		},
		"an unknown controller": {changed(t, "properties storageProfile diskControllerType", "IDE"), storage + "diskControllerType"},
		"no create option":      {changed(t, "properties storageProfile osDisk createOption", nil), storage + "osDisk.createOption"},
		"an OS disk of 0":       {changed(t, "properties storageProfile osDisk diskSizeGB", 0), storage + "osDisk.diskSizeGB"},
		"an unknown encryption": {
			changed(t, "properties storageProfile osDisk managedDisk securityProfile securityEncryptionType", "ROT13"),
			storage + "osDisk.managedDisk.securityProfile.securityEncryptionType",
		},
		"a negative LUN":         {changed(t, "properties storageProfile dataDisks lun", -1), storage + "dataDisks[0].lun"},
		"two disks with one LUN": {changed(t, "properties storageProfile dataDisks lun", 1), storage + "dataDisks[1].lun"},
		"a data disk of 0":       {changed(t, "properties storageProfile dataDisks diskSizeGB", 0), storage + "dataDisks[0].diskSizeGB"},
		"no type of storage": {
			changed(t, "properties storageProfile dataDisks storageAccountType", ""), storage + "dataDisks[0].storageAccountType",
		},
		"a path as a disk's name": {changed(t, "properties storageProfile dataDisks name", "../x"), storage + "dataDisks[0].name"},
		"two images of a disk": {
			changed(t, "properties storageProfile dataDisks imageRef urn", "p:o:s:v"), storage + "dataDisks[0].imageRef",
		},
		"no placement": {changed(t, "properties zone", nil), "providerSpec.properties: Forbidden: 0 of"},
		"two placements": {
			changed(t, "properties virtualMachineScaleSet", map[string]any{"id": "/vmss"}), "providerSpec.properties: Forbidden: 2 of",
		},
		"no ID of a reservation": {changed(t, "properties capacityReservation capacityReservationGroupID", "r"), properties +
			"capacityReservation.capacityReservationGroupID"},
		"ID of something else": {changed(t, "properties capacityReservation capacityReservationGroupID",
			"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d"), properties + "capacityReservation.capacityReservationGroupID"},
		"unknown type of security": {
			changed(t, "properties securityProfile securityType", "Obscurity"), properties + "securityProfile.securityType",
		},
		"unknown set of machines": {
			changed(t, "properties machineSet", map[string]any{"id": "/x", "kind": "herd"}), properties + "machineSet.kind",
		},
		"unknown cloud":             {changed(t, "cloudConfiguration name", "AzureMoon"), "providerSpec.cloudConfiguration.name"},
		"no tags":                   {changed(t, "tags", nil), "providerSpec.tags"},
		"no tag of the cluster":     {changed(t, "tags kubernetes.io-cluster-shoot--a", nil), "kubernetes.io-cluster-"},
		"no tag of the role":        {changed(t, "tags kubernetes.io-role-node", nil), "kubernetes.io-role-"},
		"too many tags":             {changed(t, "tags", tooMany), "providerSpec.tags: Too many"},
		"tag of the driver":         {changed(t, "tags "+TagMachineUID, "x"), "providerSpec.tags[" + TagMachineUID + "]: Forbidden"},
		"tag of the driver, upper":  {changed(t, "tags "+strings.ToUpper(TagNamespace), "x"), strings.ToUpper(TagNamespace) + "]: Forbidden"},
		"two tags of one key":       {changed(t, "tags name", "x"), "providerSpec.tags[name]: Duplicate"},
		"tag with a slash":          {changed(t, "tags a/b", "x"), "providerSpec.tags[a/b]: Invalid"},
		"tag with a value too long": {changed(t, "tags long", strings.Repeat("x", 257)), "providerSpec.tags[long]: Too long"},
	} {
		_, err := ParseProviderSpec(c.raw)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error with %q", name, err, c.want)
		}
	}
}

// Each of several errors is reported.
func TestAllErrorsOfASpec(t *testing.T) {
	_, err := ParseProviderSpec([]byte(`{}`))
	for _, want := range []string{
		"location", "resourceGroup", "vnetName", "vmSize", "imageReference", "osDisk.createOption", "adminUsername", "tags",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want an error with %q, too", err, want)
		}
	}
}

// The deprecated field of Gardener's older charts continues to work.
func TestMachineSetIsTranslated(t *testing.T) {
	set := func(kind string) []byte {
		raw := changed(t, "properties zone", nil)
		return []byte(strings.Replace(string(raw), `"osProfile"`, `"machineSet": {"id": "/set", "Kind": "`+kind+`"}, "osProfile"`, 1))
	}
	spec, err := ParseProviderSpec(set("availabilityset"))
	if err != nil || spec.Properties.AvailabilitySet == nil || spec.Properties.AvailabilitySet.ID != "/set" ||
		spec.Properties.MachineSet != nil {
		t.Errorf("availability set: %+v, %v", spec.Properties.AvailabilitySet, err)
	}
	spec, err = ParseProviderSpec(set("vmo"))
	if err != nil || spec.Properties.VirtualMachineScaleSet == nil || spec.Properties.VirtualMachineScaleSet.ID != "/set" {
		t.Errorf("scale set: %+v, %v", spec.Properties.VirtualMachineScaleSet, err)
	}
}

// The request for a VM has every field of the spec, and no other tags than those of the spec and
// the driver.
func TestRequestForAVM(t *testing.T) {
	spec, err := ParseProviderSpec([]byte(fullSpec))
	if err != nil {
		t.Fatal(err)
	}
	vm := resourceID{"s", "shoot--a", typeVM, "vm"}
	raw, err := json.Marshal(newVM(parts{
		spec: spec, vm: vm, nic: resourceID{"s", "shoot--a", typeNIC, "vm-nic"}, sshKey: "ssh-rsa AAAA", userData: []byte("boot"),
		dataDisks: map[int32]resourceID{0: {"s", "shoot--a", typeDisk, "vm-data-0-data-disk"}}, tags: map[string]*string{"a": new("b")},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"location":"westeurope"`, `"tags":{"a":"b"}`, `"zones":["2"]`, `"vmSize":"Standard_D4_v3"`, `"customData":"Ym9vdA=="`,
		`"computerName":"vm"`, `"adminUsername":"core"`, `"disablePasswordAuthentication":true`,
		`"keyData":"ssh-rsa AAAA","path":"/home/core/.ssh/authorized_keys"`,
		`"communityGalleryImageId":"/CommunityGalleries/g/Images/i/Versions/1"`, `"diskControllerType":"NVMe"`, `"name":"vm-os-disk"`,
		`"caching":"ReadWrite"`, `"securityEncryptionType":"VMGuestStateOnly"`, `"name":"vm-data-0-data-disk"`, `"createOption":"Attach"`,
		`"id":"/subscriptions/s/resourceGroups/shoot--a/providers/Microsoft.Compute/disks/vm-data-0-data-disk"`, `"name":"vm-1-data-disk"`,
		`"createOption":"Empty"`, `networkInterfaces/vm-nic","properties":{"deleteOption":"Delete","primary":true}`,
		`userAssignedIdentities/i":{}`, `"type":"UserAssigned"`, `"storageUri":"https://storage"`,
		`"securityType":"ConfidentialVM","uefiSettings":{"secureBootEnabled":true,"vTpmEnabled":true}`,
		`"capacityReservationGroup":{"id":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/r"}`,
	} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("the request lacks %s:\n%s", want, raw)
		}
	}
	if got := strings.Count(string(raw), `"deleteOption":"Delete"`); got != 4 {
		t.Errorf("%d parts are deleted with the VM, want 4", got)
	}
	if strings.Contains(string(raw), "ignored") {
		t.Errorf("the request has an ignored field:\n%s", raw)
	}
}

func TestSSHKeyIsUseless(t *testing.T) {
	one, err := uselessSSHKey()
	other, _ := uselessSSHKey()
	if err != nil || !strings.HasPrefix(one, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI") || one == other {
		t.Errorf("%q and %q, %v; want two keys of ed25519", one, other, err)
	}
}

func FuzzParseProviderSpec(f *testing.F) {
	f.Add([]byte(fullSpec))
	f.Add([]byte(`{"properties": {"machineSet": {"kind": "vmo"}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		spec, err := ParseProviderSpec(raw)
		if at := placeOf(raw); err == nil && at.resourceGroup != spec.ResourceGroup {
			t.Errorf("resource group %q, and %q of the spec", at.resourceGroup, spec.ResourceGroup)
		}
		if err == nil && !isName(spec.ResourceGroup) {
			t.Errorf("resource group %q", spec.ResourceGroup)
		}
	})
}
