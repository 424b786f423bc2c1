package aws

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver/drivertest"
)

// fakePage is the page size of the cloud, so that a test of pages needs few VMs.
const fakePage = 5

// The driver gives the guarantees of package driver, also from a separate process.
func TestDriverConformance(t *testing.T) {
	t.Run("over a socket", func(t *testing.T) {
		t.Parallel()
		drivertest.Run(t, func(t *testing.T) drivertest.Env {
			t.Helper()
			env := newEnv(t, 0)
			env.Driver = drivertest.OverSocket(t, env.Driver)
			return env
		})
	})
	for name, stop := range map[string]time.Duration{"VMs stop at once": 0, "VMs take time to stop": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(t *testing.T) drivertest.Env {
				t.Helper()
				return newEnv(t, stop)
			})
		})
	}
}

func newEnv(t *testing.T, stop time.Duration) drivertest.Env {
	t.Helper()
	s := settings()
	s.StopTime, s.PageSize = stop, fakePage
	cloud := serve(t, s)
	way := &brokenWay{}
	t.Cleanup(way.transport.CloseIdleConnections)
	return drivertest.Env{
		Driver: cloud.driver(t, func(cfg *Config) {
			cfg.Transport, cfg.Endpoints, cfg.TokenDirs = way, append(cfg.Endpoints, "http://"+elsewhere), []string{"/tokens"}
		}),
		// The suite expects a VM to be of use after its create. TestInitialize… are for classes whose VMs
		// are not.
		Class: classOf(strings.Replace(validSpec, `"srcAndDstChecksEnabled": false`, `"srcAndDstChecksEnabled": true`, 1)), Secret: accessKey(),
		UserData: []byte("token: abcdef.0123456789abcdef"),
		VMs:      cloud.vms,
		Fail:     func(t *testing.T, how drivertest.Failure) func() { t.Helper(); return cloud.fail(way, how) },
		Hide:     func(*testing.T) func() { return cloud.Hide() },
		EndVM: func(_ *testing.T, providerID string) {
			cloud.End(providerID[strings.LastIndex(providerID, "/")+1:], "User initiated")
		},
		DoubleVM: func(t *testing.T, m *v1alpha1.Machine) {
			t.Helper()
			for _, i := range cloud.Living() {
				if i.Tags[TagMachineUID] == string(m.UID) {
					cloud.Put(i.Zone, i.Tags)
					return
				}
			}
			t.Fatalf("machine %s has no VM to double", m.Name)
		},
		CreateBare: func(_ *testing.T, m *v1alpha1.Machine) string {
			return idOf(cloud.Put(zone, map[string]string{TagName: m.Name, clusterTag: "1", roleTag: "1"}))
		},
		Leftovers: cloud.leftovers,
		CreateWithout: func(_ *testing.T, m *v1alpha1.Machine, controlCluster string, without drivertest.Tag) string {
			tags := map[string]string{
				TagName: m.Name, TagNamespace: m.Namespace, TagMachine: m.Name, TagMachineUID: string(m.UID), TagControlCluster: controlCluster,
			}
			delete(tags, map[drivertest.Tag]string{
				drivertest.NamespaceTag: TagNamespace, drivertest.MachineTag: TagMachine,
				drivertest.MachineUIDTag: TagMachineUID, drivertest.ControlClusterTag: TagControlCluster,
			}[without])
			return idOf(cloud.Put(zone, tags))
		},
		OtherScopes: map[string]map[string][]byte{
			"another access key": {SecretAccessKeyID: []byte("AKIAI44QH8DHBEXAMPLE"), SecretSecretAccessKey: []byte("another")},
			"another endpoint": {SecretAccessKeyIDAlternative: accessKey()[SecretAccessKeyIDAlternative], SecretSecretAccessKeyAlternate: []byte(
				secret,
			), SecretEndpoint: []byte("http://" + elsewhere)},
			"a role":       {SecretTokenFile: []byte("/tokens/a"), SecretRoleARN: []byte(role)},
			"another role": {SecretTokenFile: []byte("/tokens/a"), SecretRoleARN: []byte(role + "-2")},
		},
		Confidential:  []string{SecretAccessKeyIDAlternative, SecretSecretAccessKeyAlternate, SecretAccessKeyID, SecretSecretAccessKey},
		MoreThanAPage: 2*fakePage + 1,
		BadSpecs: map[string]string{
			"no object":         `"m5.large"`,
			"a mistyped field":  `{"ami": 1}`,
			"no network":        strings.Replace(validSpec, "networkInterfaces", "others", 1),
			"a reserved tag":    strings.Replace(validSpec, `"Name"`, `"`+TagMachineUID+`"`, 1),
			"a tag of a sweep":  strings.Replace(validSpec, `"Name"`, `"`+TagControlCluster+`"`, 1),
			"no such region":    strings.Replace(validSpec, `"eu-west-1"`, `"eu-west-1.example.com"`, 1),
			"no such image":     strings.Replace(validSpec, "ami-0c3484dbcde4c4d0c", "ami-0", 1),
			"no such subnet":    strings.Replace(validSpec, "subnet-1", "subnet-2", 1),
			"no such type":      strings.Replace(validSpec, "m5.large", "m0.large", 1),
			"a volume of 0 GiB": strings.Replace(validSpec, `"volumeSize": 50`, `"volumeSize": 0`, 1),
		},
		Volumes: map[string]*corev1.PersistentVolumeSpec{
			"vol-1": {
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "vol-1"}},
			},
			"vol-2": {PersistentVolumeSource: corev1.PersistentVolumeSource{
				AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://eu-west-1a/vol-2"},
			}},
		},
	}
}
