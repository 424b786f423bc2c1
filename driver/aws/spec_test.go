package aws

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// changed returns validSpec with fields that are set to other values, by their path; nil removes
// one.
func changed(t *testing.T, changes map[string]any) []byte {
	t.Helper()
	var spec map[string]any
	if err := json.Unmarshal([]byte(validSpec), &spec); err != nil {
		t.Fatal(err)
	}
	for path, value := range changes {
		in, names := spec, strings.Split(path, "|")
		for _, name := range names[:len(names)-1] {
			in, _ = in[name].(map[string]any)
		}
		if last := names[len(names)-1]; value == nil {
			delete(in, last)
		} else {
			in[last] = value
		}
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

type object = map[string]any

// device is a block device that is valid.
func device(name string, ebs object) object {
	volume := object{"volumeSize": 50, "volumeType": "gp3"}
	maps.Copy(volume, ebs)
	return object{"deviceName": name, "ebs": volume}
}

func nic(fields object) object {
	all := object{"subnetID": "subnet-1", "securityGroupIDs": []string{"sg-1"}}
	maps.Copy(all, fields)
	return all
}

func TestProviderSpecsThatAreValid(t *testing.T) {
	for name, changes := range map[string]map[string]any{
		"as it is":               {},
		"unknown fields":         {"color": "blue", "apiVersion": "mcm.gardener.cloud/v1alpha1"},
		"another case of a name": {"AMI": "ami-1", "ami": nil},
		"no block devices":       {"blockDevices": nil},
		"several block devices": {
			"blockDevices": []any{device("/root", nil), device("/dev/sdf", nil), device("/dev/xvdba", object{"volumeType": "io1", "iops": 100})},
		},
		"one block device of any name": {"blockDevices": []any{device("any", object{"throughput": 125, "kmsKeyID": "k", "snapshotID": "s"})}},
		"an ARN":                       {"iam": object{"arn": "arn:aws:iam::1:instance-profile/nodes"}},
		"spot without price":           {"spotPrice": ""},
		"all of a network interface": {"networkInterfaces": []any{nic(object{
			"ipv6AddressCount": 1, "ipv6PrefixCount": 1, "interfaceType": "efa", "networkCardIndex": 1, "deviceIndex": 1, "primaryIpv6": true,
		})}},
		"metadata options": {"instanceMetadataOptions": object{
			"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 64, "httpProtocolIpv6": "enabled",
		}},
		"CPU options":                      {"cpuOptions": object{"coreCount": 2, "threadsPerCore": 1, "amdSevSnp": "enabled"}},
		"a capacity reservation":           {"capacityReservation": object{"capacityReservationId": "cr-1"}},
		"a preference of reservations":     {"capacityReservation": object{"capacityReservationPreference": "open"}},
		"a placement":                      {"placement": object{"groupId": "pg-1", "tenancy": "dedicated"}},
		"a region of China":                {"region": "cn-northwest-1"},
		"a region of a government's cloud": {"region": "us-gov-east-1"},
	} {
		if _, err := ParseProviderSpec(changed(t, changes)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProviderSpecsThatAreInvalid(t *testing.T) {
	many := object{clusterTag: "1", roleTag: "1"}
	for i := range maxTags {
		many[strings.Repeat("k", i+1)] = ""
	}
	for name, c := range map[string]struct {
		changes map[string]any
		field   string
	}{
		"no ami":                   {map[string]any{"ami": nil}, "providerSpec.ami"},
		"a mistyped ami":           {map[string]any{"ami": 1}, "ami"},
		"no region":                {map[string]any{"region": nil}, "providerSpec.region"},
		"a region of another host": {map[string]any{"region": "eu-west-1.example.com/"}, "providerSpec.region"},
		"a region with a user":     {map[string]any{"region": "a@eu-west-1"}, "providerSpec.region"},
		"an availability zone":     {map[string]any{"region": "eu-west-1a"}, "providerSpec.region"},
		"no type":                  {map[string]any{"machineType": ""}, "providerSpec.machineType"},
		"no profile":               {map[string]any{"iam": nil}, "providerSpec.iam"},
		"two profiles":             {map[string]any{"iam|arn": "arn:aws:iam::1:instance-profile/nodes"}, "providerSpec.iam"},
		"no network interface":     {map[string]any{"networkInterfaces": []any{}}, "providerSpec.networkInterfaces"},
		"no subnet": {
			map[string]any{"networkInterfaces": []any{nic(nil), nic(object{"subnetID": ""})}}, "providerSpec.networkInterfaces[1].subnetID",
		},
		"no security group": {
			map[string]any{"networkInterfaces": []any{nic(object{"securityGroupIDs": []string{}})}},
			"providerSpec.networkInterfaces[0].securityGroupIDs",
		},
		"an empty security group": {
			map[string]any{"networkInterfaces": []any{nic(object{"securityGroupIDs": []string{"sg-1", ""}})}},
			"providerSpec.networkInterfaces[0].securityGroupIDs[1]",
		},
		"an unknown type of interface": {
			map[string]any{"networkInterfaces": []any{nic(object{"interfaceType": "trunk"})}}, "providerSpec.networkInterfaces[0].interfaceType",
		},
		"a negative count": {
			map[string]any{"networkInterfaces": []any{nic(object{"ipv6PrefixCount": -1})}}, "providerSpec.networkInterfaces[0].ipv6PrefixCount",
		},
		"no root device": {
			map[string]any{"blockDevices": []any{device("/dev/sda", nil), device("/dev/sdb", nil)}}, "providerSpec.blockDevices",
		},
		"two root devices": {
			map[string]any{"blockDevices": []any{device("/root", nil), device("/root", nil)}}, "providerSpec.blockDevices[1].deviceName",
		},
		"two devices of a name": {
			map[string]any{"blockDevices": []any{device("/root", nil), device("/dev/sdf", nil), device("/dev/sdf", nil)}},
			"providerSpec.blockDevices[2].deviceName",
		},
		"the name of no device": {
			map[string]any{"blockDevices": []any{device("/root", nil), device("/dev/nvme1", nil)}}, "providerSpec.blockDevices[1].deviceName",
		},
		"an unknown type of volume": {
			map[string]any{"blockDevices": []any{device("/root", object{"volumeType": "ssd"})}}, "providerSpec.blockDevices[0].ebs.volumeType",
		},
		"no size": {
			map[string]any{"blockDevices": []any{device("/root", object{"volumeSize": 0})}}, "providerSpec.blockDevices[0].ebs.volumeSize",
		},
		"io1 without IOPS": {
			map[string]any{"blockDevices": []any{device("/root", object{"volumeType": "io1"})}}, "providerSpec.blockDevices[0].ebs.iops",
		},
		"negative IOPS": {
			map[string]any{"blockDevices": []any{device("/root", object{"iops": -1})}}, "providerSpec.blockDevices[0].ebs.iops",
		},
		"no throughput": {
			map[string]any{"blockDevices": []any{device("/root", object{"throughput": 0})}}, "providerSpec.blockDevices[0].ebs.throughput",
		},
		"no tag of a cluster": {map[string]any{"tags|" + clusterTag: nil}, "providerSpec.tags"},
		"no tag of a role":    {map[string]any{"tags|" + roleTag: nil}, "providerSpec.tags"},
		"a tag of the driver": {map[string]any{"tags|" + TagNamespace: "x"}, "providerSpec.tags[" + TagNamespace + "]"},
		"a tag of the cloud":  {map[string]any{"tags|AWS:x": "x"}, "providerSpec.tags[AWS:x]"},
		"an empty tag":        {map[string]any{"tags|": "x"}, "providerSpec.tags[]"},
		"a long tag":          {map[string]any{"tags|" + strings.Repeat("k", 129): "x"}, "providerSpec.tags[k"},
		"a long value":        {map[string]any{"tags|k": strings.Repeat("v", 257)}, "providerSpec.tags[k]"},
		"too many tags":       {map[string]any{"tags": many}, "providerSpec.tags"},
		"two targets of a reservation": {
			map[string]any{"capacityReservation": object{"capacityReservationId": "a", "capacityReservationResourceGroupArn": "b"}},
			"providerSpec.capacityReservation",
		},
		"a preference and a target": {
			map[string]any{"capacityReservation": object{"capacityReservationId": "a", "capacityReservationPreference": "open"}},
			"providerSpec.capacityReservation",
		},
		"a hop limit that is too high": {
			map[string]any{"instanceMetadataOptions": object{"httpPutResponseHopLimit": 65}},
			"providerSpec.instanceMetadataOptions.httpPutResponseHopLimit",
		},
		"an unknown endpoint state": {
			map[string]any{"instanceMetadataOptions": object{"httpEndpoint": "on"}}, "providerSpec.instanceMetadataOptions.httpEndpoint",
		},
		"an unknown token state": {
			map[string]any{"instanceMetadataOptions": object{"httpTokens": "on"}}, "providerSpec.instanceMetadataOptions.httpTokens",
		},
		"an unknown IPv6 state": {
			map[string]any{"instanceMetadataOptions": object{"httpProtocolIpv6": "on"}}, "providerSpec.instanceMetadataOptions.httpProtocolIpv6",
		},
		"no cores":      {map[string]any{"cpuOptions": object{"threadsPerCore": 1}}, "providerSpec.cpuOptions.coreCount"},
		"no threads":    {map[string]any{"cpuOptions": object{"coreCount": 1}}, "providerSpec.cpuOptions.threadsPerCore"},
		"three threads": {map[string]any{"cpuOptions": object{"coreCount": 1, "threadsPerCore": 3}}, "providerSpec.cpuOptions.threadsPerCore"},
	} {
		if _, err := ParseProviderSpec(changed(t, c.changes)); err == nil ||
			!strings.Contains(err.Error(), c.field+":") && !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v, want an error for %s", name, err, c.field)
		}
	}
	for _, raw := range []string{"", "null", "[]", `"x"`, "{", `{"tags": {"a": 1}}`} {
		if _, err := ParseProviderSpec([]byte(raw)); err == nil {
			t.Errorf("%q is valid", raw)
		}
	}
}

// A class that is broken otherwise still names its region.
func TestRegionOfAClass(t *testing.T) {
	for raw, want := range map[string]string{
		`{"region": "us-east-1", "ami": ""}`: "us-east-1",
		`{"region": "us-east-1", "ami": 5}`:  "us-east-1",
		`"broken"`:                           region, // of the node template
		`{"region": "../x"}`:                 "",
	} {
		if got, err := regionOf(classOf(raw)); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: region %q, %v; want %q", raw, got, err, want)
		}
	}
	if got, err := regionOf(&v1alpha1.MachineClass{}); err == nil {
		t.Errorf("a class without a region has %q", got)
	}
}

// The class of the documentation's migration is accepted as Machine Controller Manager's users have
// it.
func TestExampleOfTheDocumentationIsValid(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "drivers", "aws.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	var class v1alpha1.MachineClass
	if err := yaml.UnmarshalStrict([]byte(example), &class); err != nil || !found {
		t.Fatalf("found: %t, %v", found, err)
	}
	if _, err := ParseProviderSpec(class.ProviderSpec.Raw); err != nil || class.Provider != Provider {
		t.Errorf("provider %q, %v", class.Provider, err)
	}
	if got, err := driver.UnknownFields(class.ProviderSpec.Raw, ProviderSpec{}); err != nil || len(got.Fields) > 0 {
		t.Errorf("the driver ignores %q (%v)", got.Fields, err)
	}
}

// Fields of EC2's API that the driver does not know.
func TestUnknownFields(t *testing.T) {
	class := classOf(string(changed(t, map[string]any{
		"instanceMarketOptions": map[string]any{"marketType": "spot"}, "enclaveOptions": map[string]any{"enabled": true}, "spotPrize": "0.1",
		"blockDevices": []any{
			map[string]any{"virtualName": "x", "ebs": map[string]any{"volumeSize": 50, "volumeType": "gp3", "encripted": true}},
		},
		"spotPrice": "",
	})))
	want := []string{"blockDevices[].ebs.encripted", "blockDevices[].virtualName", "enclaveOptions", "instanceMarketOptions", "spotPrize"}
	got, err := (*Driver)(nil).GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: class})
	if err != nil || !slices.Equal(got.Fields, want) {
		t.Errorf("%q (%v), want %q", got.Fields, err, want)
	}
	_, err = (*Driver)(nil).
		GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: classOf(string(changed(t, map[string]any{"ami": ""})))})
	if driver.CodeOf(err) != driver.InvalidArgument {
		t.Errorf("a spec without an image: %v, want InvalidArgument", err)
	}
}

func TestRequestForAVM(t *testing.T) {
	spec, err := ParseProviderSpec(changed(t, map[string]any{
		"blockDevices": []any{device("/dev/sdf", object{"iops": 3000, "throughput": 125}), device("/root", object{"encrypted": true})},
		"spotPrice":    "0.1", "monitoring": true, "ebsOptimized": true,
	}))
	if err != nil {
		t.Fatal(err)
	}
	target := targetOf("")
	in := runInput(spec, &Placement{GroupName: sdk.String("g"), Tenancy: sdk.String("host")}, target, []byte("data"), "/dev/xvda")
	tags := map[string]string{
		TagName: "a", TagMachine: "a", TagMachineUID: "uid-of-a", TagNamespace: "shoot--a", TagControlCluster: "control", clusterTag: "1",
		roleTag: "1",
	}
	got := map[string]any{
		"token": *in.ClientToken, "count": []int32{*in.MinCount, *in.MaxCount}, "image": *in.ImageId, "type": in.InstanceType,
		"data": *in.UserData, "profile": *in.IamInstanceProfile.Name, "key": *in.KeyName,
		"devices": []string{*in.BlockDeviceMappings[0].DeviceName, *in.BlockDeviceMappings[1].DeviceName},
		"iops":    *in.BlockDeviceMappings[0].Ebs.Iops, "noIOPS": in.BlockDeviceMappings[1].Ebs.Iops,
		"ends": *in.BlockDeviceMappings[0].Ebs.DeleteOnTermination, "nicEnds": *in.NetworkInterfaces[0].DeleteOnTermination,
		"device": *in.NetworkInterfaces[0].DeviceIndex, "spot": *in.InstanceMarketOptions.SpotOptions.MaxPrice,
		"placement": []string{*in.Placement.GroupName, string(in.Placement.Tenancy)}, "monitoring": *in.Monitoring.Enabled,
		"optimized": *in.EbsOptimized,
	}
	want := map[string]any{
		"token": "uid-of-a", "count": []int32{1, 1}, "image": "ami-0c3484dbcde4c4d0c", "type": types.InstanceType("m5.large"), "data": "ZGF0YQ==",
		"profile": "nodes", "key": "key", "devices": []string{"/dev/sdf", "/dev/xvda"}, "iops": int32(3000), "noIOPS": (*int32)(nil),
		"ends": true, "nicEnds": true, "device": int32(0), "spot": "0.1", "placement": []string{"g", "host"}, "monitoring": true,
		"optimized": true,
	}
	for _, s := range in.TagSpecifications {
		got[string(s.ResourceType)], want[string(s.ResourceType)] = fromTags(s.Tags), tags
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(in.TagSpecifications) != 3 {
		t.Errorf("%d tag specifications, want those of instance, volumes and network interfaces", len(in.TagSpecifications))
	}
	if again := runInput(spec, nil, target, []byte("data"),
		"/dev/xvda"); cmp.Diff(tagLists(in.TagSpecifications), tagLists(again.TagSpecifications)) != "" {
		t.Error("a repeated request has its tags in another order")
	}
}

func tagLists(specifications []types.TagSpecification) (lists [][]string) {
	for _, s := range specifications {
		var keys []string
		for _, tag := range s.Tags {
			keys = append(keys, *tag.Key)
		}
		lists = append(lists, keys)
	}
	return lists
}

// A volume that stays when its instance ends is no left-over.
func TestWhatIsKeptHasNoTagsOfTheFleet(t *testing.T) {
	for name, changes := range map[string]map[string]any{
		"volume":            {"blockDevices": []any{device("/root", nil), device("/dev/sdf", object{"deleteOnTermination": false})}},
		"network-interface": {"networkInterfaces": []any{nic(object{"deleteOnTermination": false})}},
	} {
		spec, err := ParseProviderSpec(changed(t, changes))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range tagSpecifications(spec, targetOf("")) {
			_, has := fromTags(s.Tags)[TagMachineUID]
			if isKept := string(s.ResourceType) == name; has == isKept || fromTags(s.Tags)[TagName] != "a" {
				t.Errorf("%s that is kept: the tags of the %s are %v", name, s.ResourceType, fromTags(s.Tags))
			}
		}
	}
}

func TestClientTokensFit(t *testing.T) {
	for uid, want := range map[string]string{
		"7f1c3f9e-9f39-4e0c-8a52-4b9f1c0c6f1a": "7f1c3f9e-9f39-4e0c-8a52-4b9f1c0c6f1a",
		strings.Repeat("a", 64):                strings.Repeat("a", 64),
		strings.Repeat("a", 65):                "",
		"ü":                                    "",
		"a b":                                  "",
	} {
		got := clientToken(uid)
		if want != "" && got != want || want == "" && (len(got) != maxToken || got == clientToken(uid+"x")) {
			t.Errorf("%q: token %q", uid, got)
		}
	}
}

func TestPlacements(t *testing.T) {
	m := &v1alpha1.Machine{}
	m.Spec.NodeTemplateSpec.Annotations = map[string]string{AnnotationPlacement: `{"GroupName": "of-annotation", "Tenancy": "host"}`}
	got, err := placementOf(ProviderSpec{}, m)
	if err != nil || sdk.ToString(got.GroupName) != "of-annotation" || sdk.ToString(got.Tenancy) != "host" {
		t.Errorf("of the annotation: %+v, %v", got, err)
	}
	if got, err := placementOf(ProviderSpec{Placement: &Placement{}}, m); err != nil || got.GroupName != nil {
		t.Errorf("of the spec: %+v, %v", got, err)
	}
	m.Spec.NodeTemplateSpec.Annotations[AnnotationPlacement] = "host"
	if _, err := placementOf(ProviderSpec{}, m); err == nil || !strings.Contains(err.Error(), AnnotationPlacement) {
		t.Errorf("of a broken annotation: %v", err)
	}
	if got, err := placementOf(ProviderSpec{}, &v1alpha1.Machine{}); got != nil || err != nil {
		t.Errorf("of none: %+v, %v", got, err)
	}
}

func TestSecrets(t *testing.T) {
	key := func(pairs ...string) map[string][]byte {
		data := map[string][]byte{}
		for i := 0; i < len(pairs); i += 2 {
			data[pairs[i]] = []byte(pairs[i+1])
		}
		return data
	}
	for name, c := range map[string]struct {
		data map[string][]byte
		want identity
		err  string
	}{
		"Machine Controller Manager's keys": {
			key("providerAccessKeyId", " id\n", "providerSecretAccessKey", "s3cret\n"), identity{accessKeyID: "id", secretAccessKey: "s3cret"}, "",
		},
		"Gardener's keys": {
			key("accessKeyID", "id", "secretAccessKey", "s3cret"), identity{accessKeyID: "id", secretAccessKey: "s3cret"}, "",
		},
		"both": {
			key("providerAccessKeyId", "a", "accessKeyID", "b", "secretAccessKey", "s3cret"),
			identity{accessKeyID: "a", secretAccessKey: "s3cret"},
			"",
		},
		"a workload identity": {
			key("workloadIdentityTokenFile", "/f", "roleARN", "r", "accessKeyID", "id"), identity{tokenFile: "/f", roleARN: "r"}, "",
		},
		"nothing":              {nil, identity{}, "accessKeyID"},
		"no secret access key": {key("accessKeyID", "id", "secretAccessKey", " "), identity{}, "secretAccessKey"},
		"no access key ID":     {key("secretAccessKey", "s3cret"), identity{}, "accessKeyID"},
		"no role":              {key("workloadIdentityTokenFile", "/f"), identity{}, "roleARN"},
		"an empty path":        {key("workloadIdentityTokenFile", "", "roleARN", "r"), identity{}, "workloadIdentityTokenFile"},
	} {
		got, err := parseSecret(c.data)
		if got != c.want || (err == nil) != (c.err == "") ||
			err != nil && (!strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %+v, %v; want %+v and an error with %q", name, got, err, c.want, c.err)
		}
	}
	seen := slices.Collect(maps.Values(map[string]identity{
		"a": {accessKeyID: "a"}, "b": {secretAccessKey: "a"}, "c": {tokenFile: "a"}, "d": {endpoint: "a"},
	}))
	for i, one := range seen {
		for _, other := range seen[i+1:] {
			if one.hash() == other.hash() {
				t.Errorf("%+v and %+v have one hash", one, other)
			}
		}
	}
}

// TestDocumentedClasses: the driver accepts the MachineClasses of its pages, and knows all of their
// fields.
func TestDocumentedClasses(t *testing.T) {
	for _, page := range []string{"aws.md", "first-node-aws.md"} {
		content, err := os.ReadFile("../../docs/drivers/" + page)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, document := range regexp.MustCompile("(?ms)^apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\n.*?^(?:---|```)$").
			FindAllString(string(content), -1) {
			found++
			var class v1alpha1.MachineClass
			if err := yaml.Unmarshal([]byte(strings.TrimRight(document, "-`")), &class); err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			if _, err := ParseProviderSpec(class.ProviderSpec.Raw); err != nil {
				t.Errorf("%s: %v", page, err)
			}
			fields, err := (*Driver)(nil).GetUnknownFields(t.Context(), driver.GetUnknownFieldsRequest{Class: &class})
			if err != nil || len(fields.Fields) > 0 {
				t.Errorf("%s: unknown fields %q, %v", page, fields.Fields, err)
			}
		}
		if found == 0 {
			t.Errorf("%s has no MachineClass", page)
		}
	}
}
