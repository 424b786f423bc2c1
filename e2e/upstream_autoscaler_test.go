//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// autoscalerVariable has the path of upstream's cluster-autoscaler, with the provider externalgrpc.
const autoscalerVariable = "AUTOSCALER"

// TestUpstreamAutoscaler runs upstream's cluster-autoscaler, unmodified, with pods that are
// pending: it scales two pools of two zones from zero, tries the other zone where one has no
// capacity, and scales down again.
func TestUpstreamAutoscaler(t *testing.T) {
	program := os.Getenv(autoscalerVariable)
	if program == "" {
		t.Skipf("%s names no cluster-autoscaler; see make autoscaler-e2e", autoscalerVariable)
	}
	t.Parallel()
	files, address := newAutoscalerFiles(t), freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	lab := startLab(t, "upstream-autoscaler", func(o *harness.Options) {
		o.FleetFlags = strings.Join([]string{
			"--autoscaler-address=127.0.0.1", "--autoscaler-port=" + port, "--autoscaler-tls-cert-file=" + files.of("server.crt"),
			"--autoscaler-tls-private-key-file=" + files.of("server.key"), "--autoscaler-client-ca-file=" + files.of("ca.crt"),
		}, " ")
		o.CloudsimFlags = "--create-latency=500ms --delete-latency=500ms --boot-time=1s"
	})
	s := newSpace(t, lab, "upstream", "")
	s.workload()
	s.mayAutoscale("cluster-autoscaler")
	files.client(s.name, "cluster-autoscaler")
	for _, zone := range []string{"sim-1a", "sim-1b"} {
		s.pool(zone)
	}
	s.autoscale(program, files, address)

	s.load("zoned", 3, "sim-1b")
	s.running("sim-1b", 3)
	s.scheduled("zoned", 3)
	if all, err := s.machines(t.Context(), "sim-1a"); err != nil || len(all) > 0 {
		t.Errorf("machines in the other zone: %d, %v", len(all), err)
	}

	// Only the zone without capacity may grow at first, so that it is the one that is tried.
	s.must(lab.Cloud.Set(t.Context(), `{"failedZones":["sim-1a"]}`))
	s.mostOf("sim-1b", 3)
	s.load("any", 2, "sim-1a", "sim-1b")
	s.eventually("sim-1a is given up", func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, "sim-1a", metav1.GetOptions{})
		const shrunk = 3 // after its creation, and after it has grown
		if err == nil && (d.Generation < shrunk || d.Spec.Replicas > 0) {
			err = fmt.Errorf("it has generation %d and %d replicas", d.Generation, d.Spec.Replicas)
		}
		return err
	})
	s.mostOf("sim-1b", 10)
	s.scheduled("any", 2)
	s.running("sim-1b", 5)
	s.running("sim-1a", 0)

	for _, name := range []string{"zoned", "any"} {
		s.must(lab.Target.AppsV1().Deployments(s.name).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	s.running("sim-1b", 0)
	for _, zone := range []string{"sim-1a", "sim-1b"} {
		s.remove("machinedeployments", zone)
	}
	s.gone()
}

// mayAutoscale lets a ServiceAccount of the namespace scale.
func (s *space) mayAutoscale(account string) {
	s.Helper()
	api := s.lab.Control.RbacV1()
	meta := metav1.ObjectMeta{Name: account, Namespace: s.name}
	_, err := api.Roles(s.name).Create(s.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"machinedeployments"}, Verbs: []string{v1alpha1.VerbAutoscale}},
	}}, metav1.CreateOptions{})
	s.must(err)
	_, err = api.RoleBindings(s.name).Create(s.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: s.name}},
	}, metav1.CreateOptions{})
	s.must(err)
}

// pool creates a node group of a zone, without machines, with the zone's name.
func (s *space) pool(zone string) {
	s.Helper()
	class := harness.Class(s.name, fmt.Sprintf(`{"zone":%q}`, zone))
	class.Name = zone
	class.NodeTemplate = &v1alpha1.NodeTemplate{
		Capacity:     corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "gpu": resource.MustParse("0")},
		InstanceType: "standard-4", Region: "sim-1", Zone: zone,
	}
	_, err := s.api().MachineClasses(s.name).Create(s.Context(), class, metav1.CreateOptions{})
	s.must(err)
	s.deploy(zone, 0, func(d *v1alpha1.MachineDeployment) {
		d.Annotations = map[string]string{v1alpha1.AnnotationMaxSize: "10"}
		d.Spec.Template.Spec.Class.Name = zone
	})
	s.eventually(zone+" is there", func(ctx context.Context) error {
		d, err := s.api().MachineDeployments(s.name).Get(ctx, zone, metav1.GetOptions{})
		if err == nil && len(d.Status.Conditions) == 0 {
			err = fmt.Errorf("its status is %+v", d.Status)
		}
		return err
	})
}

// mostOf sets the maximum of a node group.
func (s *space) mostOf(pool string, most int) {
	s.Helper()
	s.patch("machinedeployments", pool, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, v1alpha1.AnnotationMaxSize, most))
}

// load creates pods, each of which needs a Node for itself, in one of the zones.
func (s *space) load(name string, pods int32, zones ...string) {
	s.Helper()
	labels := map[string]string{"app": name}
	spec := pause()
	spec.TerminationGracePeriodSeconds = new(int64(1))
	spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("3")}
	in := corev1.NodeSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: zones}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{in}}},
		},
	}}
	_, err := s.lab.Target.AppsV1().Deployments(s.name).Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
			Replicas: &pods, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	s.must(err)
}

// scheduled waits until the pods of a load have Nodes.
func (s *space) scheduled(name string, pods int) {
	s.Helper()
	s.lasting(fmt.Sprintf("%d pods of %s have Nodes", pods, name), func(ctx context.Context) error {
		list, err := s.lab.Target.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		on := 0
		for _, pod := range list.Items {
			if pod.Spec.NodeName != "" {
				on++
			}
		}
		if on != pods {
			return fmt.Errorf("%d have", on)
		}
		return nil
	})
}

// autoscale starts the autoscaler, and stops it at the end of the test.
func (s *space) autoscale(program string, files autoscalerFiles, address string) {
	s.Helper()
	config := fmt.Sprintf("address: %s\nkey: %s\ncert: %s\ncacert: %s\n",
		address, files.of("client.key"), files.of("client.crt"), files.of("ca.crt"))
	s.must(os.WriteFile(files.of("cloud-config"), []byte(config), 0o600))
	log, err := os.Create(filepath.Join(s.lab.Dir, "logs", "cluster-autoscaler.log"))
	s.must(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(s.Context()))
	cmd := exec.CommandContext(ctx, program, "--cloud-provider=externalgrpc", "--cloud-config="+files.of("cloud-config"),
		"--kubeconfig="+filepath.Join(s.lab.Dir, "admin.kubeconfig"), "--leader-elect=false", "--scan-interval=1s",
		"--scale-down-unneeded-time=5s", "--scale-down-delay-after-add=5s", "--max-node-provision-time=60s", "--v=4",
		"--address="+freeAddress(s.T))
	cmd.Stdout, cmd.Stderr = log, log
	s.must(cmd.Start())
	s.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
		_ = log.Close()
	})
}

// freeAddress returns an address of the loopback interface on which no process listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// autoscalerFiles are certificates in a folder: those of an authority, of the fleet and of a
// client.
type autoscalerFiles struct {
	t      *testing.T
	folder string
	key    *ecdsa.PrivateKey
	ca     *x509.Certificate
}

func newAutoscalerFiles(t *testing.T) autoscalerFiles {
	t.Helper()
	f := autoscalerFiles{t: t, folder: t.TempDir()}
	f.ca = &x509.Certificate{
		Subject: pkix.Name{CommonName: "autoscalers"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	f.key = f.write("ca", f.ca)
	f.write("server", &x509.Certificate{
		Subject: pkix.Name{CommonName: "fleet"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return f
}

// client writes the certificate of a client that is a ServiceAccount.
func (f autoscalerFiles) client(namespace, name string) {
	f.t.Helper()
	f.write("client", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:serviceaccount:" + namespace + ":" + name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (f autoscalerFiles) of(name string) string { return filepath.Join(f.folder, name) }

// write writes a certificate, signed by the authority, and its new key.
func (f autoscalerFiles) write(name string, of *x509.Certificate) *ecdsa.PrivateKey {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	now := time.Now()
	of.SerialNumber, of.NotBefore, of.NotAfter = big.NewInt(now.UnixNano()), now.Add(-time.Hour), now.Add(24*time.Hour)
	by, signing := f.ca, f.key
	if signing == nil {
		by, signing = of, key
	}
	certificate, err := x509.CreateCertificate(rand.Reader, of, by, key.Public(), signing)
	if err != nil {
		f.t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		f.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: certificate}, name + ".key": {Type: "EC PRIVATE KEY", Bytes: encoded},
	} {
		if err := os.WriteFile(f.of(file), pem.EncodeToMemory(block), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	return key
}
