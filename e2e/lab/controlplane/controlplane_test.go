package controlplane

import (
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/supervise"
)

// newClusters creates a control and a target cluster.
func newClusters(t *testing.T) (dir string, etcd *Etcd, control, target *Cluster) {
	t.Helper()
	dir = t.TempDir()
	programs := Programs{Hyperkube: "/bin/hyperkube", Dir: dir}
	etcd, err := NewEtcd(programs, 1, 2, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if control, err = NewCluster("control", "", programs, Ports{3, 4, 5}, etcd, time.Now()); err != nil {
		t.Fatal(err)
	}
	if target, err = NewCluster("target", "target-", programs, Ports{6, 7, 8}, etcd, time.Now()); err != nil {
		t.Fatal(err)
	}
	return dir, etcd, control, target
}

func allSpecs(etcd *Etcd, clusters ...*Cluster) []supervise.Spec {
	specs := []supervise.Spec{etcd.Spec()}
	for _, cluster := range clusters {
		specs = append(specs, cluster.Specs()...)
	}
	return specs
}

func TestNames(t *testing.T) {
	_, etcd, control, target := newClusters(t)
	var got []string
	for _, spec := range allSpecs(etcd, control, target) {
		got = append(got, spec.Name+" "+spec.Args[0])
	}
	want := []string{
		"etcd etcd",
		"kube-apiserver kube-apiserver", "kube-controller-manager kube-controller-manager", "kube-scheduler kube-scheduler",
		"target-kube-apiserver kube-apiserver", "target-kube-controller-manager kube-controller-manager", "target-kube-scheduler kube-scheduler",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
}

// All components listen on the loopback interface, and write to the lab's folder only.
func TestFlagsStayInTheLab(t *testing.T) {
	dir, etcd, control, target := newClusters(t)
	address := regexp.MustCompile(`(address|urls)$`)
	for _, spec := range allSpecs(etcd, control, target) {
		for _, arg := range append(spec.Args[1:], "--log="+spec.Log) {
			name, value, _ := strings.Cut(arg, "=")
			if address.MatchString(name) && !strings.Contains(value, "127.0.0.1") {
				t.Errorf("%s: %s is not on the loopback interface", spec.Name, arg)
			}
			if filepath.IsAbs(value) && !strings.HasPrefix(value, dir+"/") && name != "--etcd-prefix" {
				t.Errorf("%s: %s is outside of the lab", spec.Name, arg)
			}
		}
	}
}

func TestSecrets(t *testing.T) {
	dir, etcd, control, target := newClusters(t)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && path != dir && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is there for all to see: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	secret := regexp.MustCompile(`-(file|cert|key|certfile|keyfile|cafile|certificate|kubeconfig)$`)
	for _, spec := range allSpecs(etcd, control, target) {
		for _, arg := range spec.Args[1:] {
			name, value, _ := strings.Cut(arg, "=")
			if !secret.MatchString(name) {
				continue
			}
			if _, err := os.Stat(value); err != nil {
				t.Errorf("%s: %s: %v", spec.Name, name, err)
			}
		}
	}
}

// A user of one cluster is not authenticated in the other.
func TestClustersAreApart(t *testing.T) {
	_, _, control, target := newClusters(t)
	if control.Server() == target.Server() || control.AuditLog() == target.AuditLog() {
		t.Errorf("both clusters have %s, or %s", control.Server(), control.AuditLog())
	}
	for _, cluster := range []*Cluster{control, target} {
		data, err := cluster.Kubeconfig(Subject{User: "fleet-0", Groups: []string{"machine-controller-fleet"}})
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(data)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(config.CertData)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []*Cluster{control, target} {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(other.CA())
			_, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			if trusted := err == nil; trusted != (cluster == other) {
				t.Errorf("a user of %s in %s: %v", cluster.name, other.name, err)
			}
		}
	}
}

func TestProbes(t *testing.T) {
	_, _, control, _ := newClusters(t)
	for component, want := range map[string]string{APIServer: "/readyz", ControllerManager: "/healthz", Scheduler: "/readyz"} {
		client, path, err := control.Probe(component)
		if err != nil || path != want {
			t.Errorf("%s is asked at %s, %v; want %s", component, path, err, want)
			continue
		}
		client.Close()
	}
}
