package expand

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ignition "github.com/coreos/ignition/v2/config/v3_5"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
)

const chart = "../../../../charts/machine-controller-fleet/machineconfig"

// The templates of the chart are rendered with all values, and with none.
func TestTemplatesOfTheChart(t *testing.T) {
	w := world()
	entries, err := os.ReadDir(chart)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(chart, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		w.Sources[entry.Name()] = string(text)
	}
	w.PullSecret = `{"auths": {"registry.example.org": {}}}`
	w.Config.Spec.Values.Raw = []byte(
		`{"maxPods": 42, "sysctl": {"vm.swappiness": 1}, "registryMirrors": {"docker.io": ["https://mirror.example.org"]}}`,
	)
	files := contents(t, w)
	for path, want := range map[string]string{
		"/usr/local/share/ca-certificates/fleet-a.crt": "-----A\n-----B\n",
		"/etc/sysctl.d/90-kubernetes.conf":             "\nvm.swappiness = 1\n",
		"/etc/kubernetes/kubelet.conf":                 "\nmaxPods: 42\n",
		"/var/lib/kubelet/config.json":                 `{"auths":{"registry.example.org":{}}}`,
		"/etc/containerd/certs.d/docker.io/hosts.toml": `[host."https://mirror.example.org"]`,
	} {
		if !strings.Contains(files[path], want) {
			t.Errorf("%s: got %q, want %q in it", path, files[path], want)
		}
	}
	if want := "\nclusterDNS: [\"10.0.0.10\",\"10.0.0.11\"]\nclusterDomain: \"cluster.local\"\n"; !strings.Contains(
		files["/etc/kubernetes/kubelet.conf"], want,
	) {
		t.Errorf("kubelet.conf: %s", files["/etc/kubernetes/kubelet.conf"])
	}
	w.PullSecret, w.Config.Spec = "", world().Config.Spec
	w.Config.Spec.CABundles, w.Config.Spec.ClusterDNS, w.Config.Spec.ClusterDomain, w.Config.Spec.Values.Raw = nil, nil, "", nil
	all, err := Render(w)
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	if want := []string{"00-worker-sysctl", "01-worker-kubelet"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("without values: %v (%v), want %v", names, err, want)
	}
}

// contents renders all templates, and returns the files of all MachineConfigs.
func contents(t *testing.T, w World) map[string]string {
	t.Helper()
	all, err := Render(w)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, c := range all {
		config, _, err := ignition.ParseCompatibleVersion(c.Spec.Config.Raw)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		for _, f := range config.Storage.Files {
			content, err := desired.Content(f.Contents)
			if err != nil {
				t.Fatal(err)
			}
			files[f.Path] = string(content)
		}
	}
	return files
}
