package azure

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	first, second := vmNames("Shoot--A-z1", "uid")
	if first != "shoot--a-z1" || !strings.HasPrefix(second, "shoot--a-z1-") || len(second) != len(first)+9 {
		t.Errorf("%q and %q", first, second)
	}
	if _, other := vmNames("Shoot--A-z1", "another uid"); other == second {
		t.Errorf("two machines have the name %q", other)
	}
	if _, long := vmNames(strings.Repeat("x", 64), "uid"); len(long) != maxVMName {
		t.Errorf("%q has %d characters, want %d", long, len(long), maxVMName)
	}
	for got, want := range map[string]string{
		nicName("vm"): "vm-nic", osDiskName("vm"): "vm-os-disk", dataDiskName("vm", DataDisk{Lun: 1}): "vm-1-data-disk",
		dataDiskName("vm", DataDisk{Lun: 1, Name: "etcd"}): "vm-etcd-1-data-disk",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestProviderIDs(t *testing.T) {
	const vms = "/providers/Microsoft.Compute/virtualMachines/"
	const own = "azure:///subscriptions/S/resourceGroups/g" + vms + "vm"
	for text, want := range map[string]string{
		own: "/subscriptions/S/resourceGroups/g" + vms + "vm",
		"azure:///subscriptions/s/resourcegroups/G/providers/microsoft.compute/virtualmachines/VM": "/subscriptions/s/resourceGroups/g" + vms +
			"VM",

		"azure:///westeurope/vm":                            "/subscriptions/S/resourceGroups/class" + vms + "vm",
		strings.Replace(own, "/S/", "/other/", 1):           "",
		strings.Replace(own, "virtualMachines", "disks", 1): "",
		strings.Replace(own, "/g/", "/../", 1):              "",
		own + "/extensions/x":                               "",
		"azure:///westeurope/":                              "",
		"azure:///westeurope/..":                            "",
		"azure:///westeurope/a?b":                           "",
		"azure:///a/b/c":                                    "",
		"azure://westeurope/vm":                             "",
		"aws:///eu-west-1/i-1":                              "",
		"":                                                  "",
		"azure:///":                                         "",
		"azure:///subscriptions/S/resourceGroups/g/providers/x/y/z/a/b/c": "",
	} {
		id, ok := parseProviderID(text, "S", "class")
		if ok != (want != "") || ok && id.String() != want {
			t.Errorf("%q: %q, %t; want %q", text, id, ok, want)
		}
	}
	if _, ok := parseProviderID("azure:///westeurope/vm", "S", ""); ok {
		t.Error("a VM is named without its resource group")
	}
}

func FuzzProviderID(f *testing.F) {
	f.Add("azure:///westeurope/vm")
	f.Add("azure:///subscriptions/S/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm")
	f.Fuzz(func(t *testing.T, text string) {
		if id, ok := parseProviderID(text, "S", "class"); ok && (strings.Count(id.String(), "/") != 8 || id.kind != typeVM) {
			t.Errorf("%q becomes %s", text, id)
		}
	})
}

func TestSecrets(t *testing.T) {
	with := func(keys ...string) map[string][]byte {
		data := map[string][]byte{}
		for _, pair := range keys {
			key, value, _ := strings.Cut(pair, "=")
			data[key] = []byte(value)
		}
		return data
	}
	const directory, token = "/var/run/tokens", "workloadIdentityTokenFile=/var/run/tokens/a/token"
	for name, c := range map[string]struct {
		data map[string][]byte
		want string // of the error
	}{
		"new keys":          {with("clientID=c", "clientSecret=s3cret\n", "subscriptionID= s ", "tenantID=t"), ""},
		"old keys":          {with("azureClientId=c", "azureClientSecret=s3cret", "azureSubscriptionId=s", "azureTenantId=t"), ""},
		"workload identity": {with("clientID=c", token, "subscriptionID=s", "tenantID=t"), ""},
		"new keys count":    {with("clientID=c", "azureClientId=../x", "clientSecret=s3cret", "subscriptionID=s", "tenantID=t"), ""},
		"no client":         {with("clientSecret=s3cret", "subscriptionID=s", "tenantID=t"), "data[clientID]"},
		"no subscription":   {with("clientID=c", "clientSecret=s3cret", "tenantID=t"), "data[subscriptionID]"},
		"no tenant":         {with("clientID=c", "clientSecret=s3cret", "subscriptionID=s", "tenantID= "), "data[tenantID]"},
		"no secret":         {with("clientID=c", "subscriptionID=s", "tenantID=t"), "data[clientSecret]"},
		"two secrets": {
			with("clientID=c", "clientSecret=s3cret", token, "subscriptionID=s", "tenantID=t"), "data[workloadIdentityTokenFile]",
		},
		"another file": {
			with("clientID=c", "workloadIdentityTokenFile=/etc/passwd", "subscriptionID=s", "tenantID=t"), "data[workloadIdentityTokenFile]",
		},
		"a way to another file": {
			with("clientID=c", "workloadIdentityTokenFile=/var/run/tokens/../x", "subscriptionID=s", "tenantID=t"),
			"data[workloadIdentityTokenFile]",
		},
		"the directory itself": {
			with("clientID=c", "workloadIdentityTokenFile=/var/run/tokens/", "subscriptionID=s", "tenantID=t"), "data[workloadIdentityTokenFile]",
		},
		"a secret at another place": {with("clientID=s3cret/s3cret", "clientSecret=s3cret", "subscriptionID=s", "tenantID=t"), "data[clientID]"},
	} {
		got, err := parseSecret(c.data, cloudPublic, directory)
		switch {
		case c.want == "":
			if err != nil || got.subscription != "s" || got.tenant != "t" || got.client != "c" || got.secret == "" && got.tokenFile == "" ||
				strings.ContainsAny(got.secret, "\n") {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret"):
			t.Errorf("%s: %v; want an error with %s, and without the secret", name, err, c.want)
		}
	}
}
