package template

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/configtest"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

type bench struct {
	*configtest.Bench

	controller *Controller
}

// run runs test with a controller that renders the templates of ConfigMap x/t.
func run(t *testing.T, test func(b *bench), settings ...func(b *bench, cfg *Config)) {
	configtest.Run(t, func(inner *configtest.Bench) {
		b := &bench{Bench: inner}
		cfg := Config{
			Client: b.Configs, Cache: b.Cache, Configs: configcache.NewWriter(b.Configs, 0), Secrets: b.Core.CoreV1(),
			Templates: NewConfigMap(b.Core.CoreV1(), types.NamespacedName{Namespace: "x", Name: "t"}), Events: b.Recorder, Clock: clock.RealClock{},
		}
		for _, set := range settings {
			set(b, &cfg)
		}
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		b.controller = c
		b.templates(map[string]string{
			"00-base.yaml": `kernelArguments: [{{ quote .ClusterDomain }}]`, "10-extra.gpu.yaml": `kernelArguments: [gpu]`,
		})
		b.control("one", "")
		b.Start(c)
		b.After(time.Second)
		test(b)
	})
}

func (b *bench) templates(data map[string]string) {
	b.Helper()
	document := "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: x, name: t}, data: {"
	for name, text := range data {
		document += fmt.Sprintf("%q: %q, ", name, text)
	}
	b.Put("configmaps", document+"}}")
	b.After(time.Second)
}

func (b *bench) control(domain, more string) {
	b.Helper()
	b.Put("controllerconfigs",
		fmt.Sprintf(`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: ControllerConfig, metadata: {name: machine-config-controller},
spec: {roles: [gpu, worker], clusterDomain: %q%s}}`, domain, more))
	b.After(time.Second)
}

// conditions returns the conditions that are True.
func (b *bench) conditions() (all []string) {
	b.Helper()
	c, _ := configtest.Read[v1alpha1.ControllerConfig](b.Bench, "controllerconfigs", v1alpha1.ControllerConfigName)
	for _, condition := range c.Status.Conditions {
		if condition.Status == "True" {
			all = append(all, condition.Type)
		}
	}
	return all
}

func (b *bench) expect(condition string, names ...string) {
	b.Helper()
	if got := b.conditions(); !slices.Equal(got, []string{condition}) {
		b.Errorf("conditions %v, want %s", got, condition)
	}
	if got := b.Names("machineconfigs"); !slices.Equal(got, names) {
		b.Errorf("MachineConfigs %v, want %v", got, names)
	}
}

func TestTemplatesAreRenderedAndPruned(t *testing.T) {
	run(t, func(b *bench) {
		b.expect(v1alpha1.TemplatesCompleted, "00-gpu-base", "00-worker-base", "10-gpu-extra")
		c, _ := configtest.Read[v1alpha1.MachineConfig](b.Bench, "machineconfigs", "00-worker-base")
		if !slices.Equal(c.Spec.KernelArguments, []string{"one"}) || c.Labels[v1alpha1.LabelRole] != "worker" || len(c.OwnerReferences) != 1 {
			b.Errorf("%+v", c)
		}
		b.Put("machineconfigs", `{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: MachineConfig, metadata: {name: 50-user}}`)
		b.templates(map[string]string{"00-base.yaml": `kernelArguments: [{{ quote .ClusterDomain }}]`})
		b.expect(v1alpha1.TemplatesCompleted, "00-gpu-base", "00-worker-base", "50-user")
		b.control("two", "")
		c, _ = configtest.Read[v1alpha1.MachineConfig](b.Bench, "machineconfigs", "00-worker-base")
		if !slices.Equal(c.Spec.KernelArguments, []string{"two"}) {
			b.Errorf("after a change of the ControllerConfig: %v", c.Spec.KernelArguments)
		}
		b.Writes()
		b.After(time.Hour)
		if writes := b.Writes(); len(writes) > 0 {
			b.Errorf("writes without a change: %v", writes)
		}
	})
}

// What another client changes or deletes is written again.
func TestGeneratedConfigsAreKept(t *testing.T) {
	run(t, func(b *bench) {
		b.Edit("machineconfigs", "00-gpu-base", func(u *unstructured.Unstructured) { u.Object["spec"] = map[string]any{"fips": true} })
		b.Server.Delete("machineconfigs", "", "10-gpu-extra")
		b.After(time.Second)
		b.expect(v1alpha1.TemplatesCompleted, "00-gpu-base", "00-worker-base", "10-gpu-extra")
		if c, _ := configtest.Read[v1alpha1.MachineConfig](b.Bench, "machineconfigs", "00-gpu-base"); c.Spec.FIPS {
			b.Error("the change of another client was kept")
		}
	})
}

// While a template cannot be rendered nothing changes, and it is named.
func TestFailureChangesNothing(t *testing.T) {
	run(t, func(b *bench) {
		b.Recorder.Take()
		b.Writes()
		b.templates(map[string]string{"00-base.yaml": `kernelArguments: [new]`, "20-bad.yaml": `{{ .Missing }}`})
		b.expect(v1alpha1.TemplatesFailing, "00-gpu-base", "00-worker-base", "10-gpu-extra")
		if writes := b.Writes(); !slices.Equal(writes, []string{"PATCH controllerconfigs/machine-config-controller/status"}) {
			b.Errorf("writes %v", writes)
		}
		if said := b.Recorder.Take(); len(said) != 1 || !strings.HasPrefix(said[0], "TemplatesFailing: template 20-bad.yaml") {
			b.Errorf("Events %q", said)
		}
		b.templates(map[string]string{"00-base.yaml": `kernelArguments: [new]`})
		b.expect(v1alpha1.TemplatesCompleted, "00-gpu-base", "00-worker-base")
		b.Server.Delete("configmaps", "x", "t")
		b.After(time.Second)
		b.expect(v1alpha1.TemplatesFailing, "00-gpu-base", "00-worker-base")
	})
}

// The Secret must have the type of pull secrets. Its creation, its change and its deletion are
// noticed at once, and it is not read without one.
func TestPullSecret(t *testing.T) {
	run(t, func(b *bench) {
		secret := func(kind, content string) {
			b.Put("secrets",
				fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {namespace: ns, name: s}, type: %s, data: {.dockerconfigjson: %s}}`,
					kind, content))
			b.After(time.Second)
		}
		pulls := func(want string) {
			b.Helper()
			b.expect(v1alpha1.TemplatesCompleted, "00-worker-pull")
			if c, _ := configtest.Read[v1alpha1.MachineConfig](b.Bench, "machineconfigs",
				"00-worker-pull"); !slices.Equal(c.Spec.KernelArguments, []string{want}) {
				b.Errorf("kernel arguments %q, want %s", c.Spec.KernelArguments, want)
			}
		}
		b.templates(map[string]string{"00-pull.worker.yaml": `kernelArguments: [{{ quote .PullSecret }}]`})
		b.control("one", ", pullSecretRef: {namespace: ns, name: s}")
		b.expect(v1alpha1.TemplatesFailing, "00-gpu-base", "00-worker-base", "10-gpu-extra")
		secret("Opaque", "e30=")
		b.expect(v1alpha1.TemplatesFailing, "00-gpu-base", "00-worker-base", "10-gpu-extra")
		secret("kubernetes.io/dockerconfigjson", "eyJhIjogMX0=")
		pulls(`{"a":1}`)
		secret("kubernetes.io/dockerconfigjson", "eyJhIjogMn0=")
		pulls(`{"a":2}`)
		b.Server.Delete("secrets", "ns", "s")
		b.After(time.Second)
		b.expect(v1alpha1.TemplatesFailing, "00-worker-pull")
		secret("kubernetes.io/dockerconfigjson", "eyJhIjogMn0=")
		reads := b.Reads("secrets")
		b.After(24 * time.Hour)
		if again := b.Reads("secrets") - reads; again > 0 {
			b.Errorf("the Secret was read %d times in a day without a change", again)
		}
		if b.controller.secrets.Len() != 1 {
			b.Errorf("%d Secrets are watched, want 1", b.controller.secrets.Len())
		}
		b.control("one", "")
		if b.controller.secrets.Len() != 0 {
			b.Error("a Secret is watched that the ControllerConfig does not name any more")
		}
	})
}

// A replica that loses the ControllerConfig stops watching the Secret, also after a pass that was
// not finished then, and the one that gets it begins.
func TestPullSecretIsWatchedByTheOwner(t *testing.T) {
	for name, isGated := range map[string]bool{"no pass": true, "a pass that goes on": false} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bench) {
				b.control("one", ", pullSecretRef: {namespace: ns, name: s}")
				for _, owns := range []bool{true, false, true} {
					b.Own(owns)
					b.After(time.Second)
					if got := b.controller.secrets.Len() == 1; got != owns {
						b.Errorf("owner: %t, watches: %t", owns, got)
					}
				}
			}, func(b *bench, cfg *Config) {
				if isGated {
					cfg.Gate = b.Bench
				}
			})
		})
	}
}

func TestFolder(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"00-a.yaml": "a", "..data": "hidden"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	Folder(folder).Run(t.Context(), nil)
	got, isWatched, err := Folder(folder).Read()
	if err != nil || isWatched || len(got) != 1 || got["00-a.yaml"] != "a" {
		t.Errorf("%v, watched: %t (%v)", got, isWatched, err)
	}
	if _, _, err := Folder(filepath.Join(folder, "none")).Read(); err == nil {
		t.Error("a folder that does not exist was read")
	}
	None{}.Run(context.Background(), nil)
	if got, isWatched, err := (None{}).Read(); got == nil || len(got) > 0 || !isWatched || err != nil {
		t.Errorf("None: %v, watched: %t (%v)", got, isWatched, err)
	}
}
