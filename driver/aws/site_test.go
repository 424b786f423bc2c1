package aws

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/aws/ec2test"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

const (
	region = "eu-west-1"
	zone   = "eu-west-1c"
	secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	role   = "arn:aws:iam::123456789012:role/nodes"
	token  = "a-token-of-a-workload-identity"

	clusterTag, roleTag = ClusterTagPrefix + "shoot--a", RoleTagPrefix + "node"
)

// validSpec is the provider spec of a class as it is found in the field.
const validSpec = `{
	"ami": "ami-0c3484dbcde4c4d0c", "region": "eu-west-1", "machineType": "m5.large", "keyName": "key", "iam": {"name": "nodes"},
	"blockDevices": [{"ebs": {"deleteOnTermination": true, "encrypted": true, "volumeSize": 50, "volumeType": "gp3"}}],
	"networkInterfaces": [{"securityGroupIDs": ["sg-1"], "subnetID": "subnet-1"}], "srcAndDstChecksEnabled": false,
	"tags": {"kubernetes.io/cluster/shoot--a": "1", "kubernetes.io/role/node": "1", "Name": "ignored"}
}`

// settings are those of a cloud in which validSpec works.
func settings() ec2test.Settings {
	return ec2test.Settings{
		Region: region, AccessKeys: map[string]string{"AKIAIOSFODNN7EXAMPLE": secret}, Roles: map[string]string{role: token},
		Images: map[string]string{"ami-0c3484dbcde4c4d0c": "/dev/xvda"}, Subnets: map[string]string{"subnet-1": zone},
		MachineTypes: []string{"m5.large"},
	}
}

// accessKey is the Secret with credentials.
func accessKey() map[string][]byte {
	return map[string][]byte{SecretAccessKeyIDAlternative: []byte("AKIAIOSFODNN7EXAMPLE\n"), SecretSecretAccessKeyAlternate: []byte(secret)}
}

// classOf returns a class with a provider spec.
func classOf(spec string) *v1alpha1.MachineClass {
	return &v1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a", Name: "class"}, Provider: Provider,
		ProviderSpec: runtime.RawExtension{Raw: []byte(spec)}, NodeTemplate: &v1alpha1.NodeTemplate{Region: region},
	}
}

// targetOf returns the target of a new machine.
func targetOf(spec string) driver.Target {
	return driver.Target{
		Machine: &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a", Name: "a", UID: "uid-of-a"}},
		Class:   classOf(spec), Secret: accessKey(), ControlCluster: "control",
	}
}

// site is a cloud that serves.
type site struct {
	*ec2test.Cloud
	url string
}

// serve runs a cloud until the test ends.
func serve(t *testing.T, s ec2test.Settings) *site {
	t.Helper()
	cloud := ec2test.New(s)
	server := httptest.NewServer(cloud)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &site{cloud, server.URL}
}

// driver returns a driver for the cloud.
func (s *site) driver(t *testing.T, change func(*Config)) *Driver {
	t.Helper()
	way := &brokenWay{}
	cfg := Config{Endpoints: []string{s.url}, STSEndpoint: s.url, Transport: way, UserAgent: "test"}
	if change != nil {
		change(&cfg)
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(way.transport.CloseIdleConnections)
	return d
}

func idOf(i ec2test.Instance) string { return providerIDPrefix + region + "/" + i.ID }

// vms returns what really exists.
func (s *site) vms(*testing.T) (vms []drivertest.VM) {
	for _, i := range s.Living() {
		vms = append(vms, drivertest.VM{ProviderID: idOf(i), MachineUID: types.UID(i.Tags[TagMachineUID])})
	}
	return vms
}

// leftovers returns the UIDs of the machines for which was created what no VM uses.
func (s *site) leftovers(*testing.T) (machines []types.UID) {
	for _, a := range s.Attachments() {
		if a.Instance == "" {
			machines = append(machines, types.UID(a.Tags[TagMachineUID]))
		}
	}
	return machines
}

// fail has the cloud, or the connection to it, fail.
func (s *site) fail(way *brokenWay, how drivertest.Failure) (heal func()) {
	run := []string{"RunInstances"}
	switch how {
	case drivertest.NoAnswer:
		return s.Fail(ec2test.Failure{Code: "none", Hang: true})
	case drivertest.LostAnswer: // reads that are not answered are NoAnswer
		return s.Fail(ec2test.Failure{Hang: true, Actions: []string{
			"RunInstances", "TerminateInstances", "DeleteNetworkInterface", "DeleteVolume", "ModifyNetworkInterfaceAttribute", "AssignIpv6Addresses",
		}})
	case drivertest.ServerError:
		return s.Fail(ec2test.Failure{Code: "InternalError", Status: http.StatusInternalServerError})
	case drivertest.Throttled:
		return s.Fail(ec2test.Failure{
			Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable, RetryAfterSeconds: int(drivertest.ThrottledFor.Seconds()),
		})
	case drivertest.QuotaExceeded:
		return s.Fail(ec2test.Failure{Actions: run, Code: "VcpuLimitExceeded", Status: http.StatusBadRequest})
	case drivertest.NoCapacity:
		return s.Fail(ec2test.Failure{Actions: run, Code: "InsufficientInstanceCapacity", Status: http.StatusInternalServerError})
	case drivertest.PartialCreate:
		return s.Fail(ec2test.Failure{Partly: true})
	case drivertest.BadCredentials:
		return s.Fail(ec2test.Failure{Code: "AuthFailure", Status: http.StatusUnauthorized})
	case drivertest.Forbidden:
		return s.Fail(ec2test.Failure{Code: "UnauthorizedOperation", Status: http.StatusForbidden})
	case drivertest.SecondPage:
		return s.Fail(ec2test.Failure{Code: "InternalError", Status: http.StatusInternalServerError, FollowingPages: true})
	case drivertest.Unreachable, drivertest.Nonsense, drivertest.Elsewhere, drivertest.Portal, drivertest.Endless,
		drivertest.WrongTypes, drivertest.OtherVM, drivertest.NoID, drivertest.BadID:
		way.how.Store(how)
		return func() { way.how.Store(drivertest.Failure("")) }
	}
	return nil
}

// brokenWay is a transport that fails in the ways that a cloud cannot.
type brokenWay struct {
	how       atomic.Value
	transport http.Transport
}

// elsewhere is the target of a redirect.
const elsewhere = "elsewhere.example"

func (w *brokenWay) RoundTrip(r *http.Request) (*http.Response, error) {
	how, _ := w.how.Load().(drivertest.Failure)
	switch {
	case how == drivertest.Unreachable:
		return nil, errors.New("connection refused")
	case how == drivertest.Nonsense || r.Host == elsewhere:
		return reply(r, http.StatusNotFound, "<html>not found</html>"), nil
	case how == drivertest.Portal:
		return reply(r, http.StatusOK, "<html>log in</html>"), nil
	case how == drivertest.Elsewhere:
		answer := reply(r, http.StatusTemporaryRedirect, "")
		answer.Header.Set("Location", "http://"+elsewhere)
		return answer, nil
	case how == "":
		return w.transport.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	return reply(r, http.StatusOK, lie(how, form)), nil
}

// lie returns a false answer to a request.
func lie(how drivertest.Failure, form url.Values) string {
	id, tags := "1", tagXML(TagMachine, "other")+tagXML(TagName, "other")
	for i := 1; form.Has(fmt.Sprintf("Filter.%d.Name", i)); i++ {
		if key, isTag := strings.CutPrefix(form.Get(fmt.Sprintf("Filter.%d.Name", i)), "tag:"); isTag {
			tags += tagXML(key, form.Get(fmt.Sprintf("Filter.%d.Value.1", i)))
		}
	}
	switch how { //nolint:exhaustive // all others are no false answers
	case drivertest.NoID:
		id = ""
	case drivertest.BadID:
		id = "1&#xA;"
	}
	ofID := func(prefix string) string {
		if id == "" {
			return ""
		}
		return prefix + id
	}
	instance := "<item><instanceId>" + ofID("i-") +
		"</instanceId><instanceState><name>running</name></instanceState><privateDnsName>other</privateDnsName>" +
		"<placement><availabilityZone>eu-west-1a</availabilityZone></placement><tagSet>" + tags + "</tagSet></item>"
	name := form.Get("Action")
	part := map[string][2]string{
		"RunInstances": {"instancesSet", instance}, "TerminateInstances": {"instancesSet", instance},
		"DescribeInstances": {"reservationSet", "<item><instancesSet>" + instance + "</instancesSet></item>"},
		"DescribeImages": {
			"imagesSet", "<item><imageId>" + ofID("ami-") + "</imageId><rootDeviceName>/dev/xvda</rootDeviceName></item>",
		},
		"DescribeNetworkInterfaces": {
			"networkInterfaceSet", "<item><networkInterfaceId>" + ofID("eni-") + "</networkInterfaceId><tagSet>" + tags + "</tagSet></item>",
		},
		"DescribeVolumes": {"volumeSet", "<item><volumeId>" + ofID("vol-") + "</volumeId><tagSet>" + tags + "</tagSet></item>"},
	}[name]
	switch how { //nolint:exhaustive // all others have the part
	case drivertest.Endless:
		part[1] = strings.Repeat("<item/>", 1<<22)
	case drivertest.WrongTypes:
		part[1] = "none"
	}
	return "<" + name + "Response><" + part[0] + ">" + part[1] + "</" + part[0] + "></" + name + "Response>"
}

func tagXML(key, value string) string {
	return "<item><key>" + key + "</key><value>" + value + "</value></item>"
}

func reply(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Request: r, Body: io.NopCloser(bytes.NewReader([]byte(body))),
	}
}
