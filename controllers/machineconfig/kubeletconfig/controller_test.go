package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/configcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/bubbles"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/configtest"
)

func TestMain(m *testing.M) { bubbles.Main(m) }

const created = "99-p-kubelet-managed"

type bench struct {
	*configtest.Bench
	*Controller
}

func run(t *testing.T, test func(b *bench)) {
	configtest.Run(t, func(inner *configtest.Bench) {
		b := &bench{Bench: inner}
		var err error
		b.Controller, err = New(Config{
			Client: b.Configs, Cache: b.Cache, Configs: configcache.NewWriter(b.Configs, 0),
			Events: b.Recorder, Clock: clock.RealClock{}, Workers: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Put("machineconfigpools",
			`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: MachineConfigPool, metadata: {name: p, labels: {size: small}},
spec: {machineConfigSelector: {matchLabels: {role: p}}, nodeSelector: {matchLabels: {role: p}}}}`)
		b.Start(b.Controller)
		test(b)
	})
}

func (b *bench) kubelet(name, settings string) {
	b.Helper()
	b.Put("kubeletconfigs", kubeletConfig(name, settings))
	b.After(time.Second)
}

func kubeletConfig(name, settings string) string {
	return fmt.Sprintf(`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: KubeletConfig, metadata: {name: %s},
spec: {machineConfigPoolSelector: {matchLabels: {size: small}}, kubeletConfig: %s}}`, name, settings)
}

// settings returns the KubeletConfiguration in the generated MachineConfig; nil when there is none.
func (b *bench) settings() (s map[string]any) {
	b.Helper()
	c, exists := configtest.Read[v1alpha1.MachineConfig](b.Bench, "machineconfigs", created)
	if !exists {
		return nil
	}
	parsed, _, err := ignition.ParseCompatibleVersion(c.Spec.Config.Raw)
	if err != nil || len(parsed.Storage.Files) != 1 {
		b.Fatalf("%v: %s", err, c.Spec.Config.Raw)
	}
	content, err := desired.Content(parsed.Storage.Files[0].Contents)
	if err == nil {
		err = json.Unmarshal(content, &s)
	}
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bench) accepted(name string) string {
	b.Helper()
	c, _ := configtest.Read[v1alpha1.KubeletConfig](b.Bench, "kubeletconfigs", name)
	accepted := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.KubeletConfigAccepted)
	if accepted == nil {
		return "unknown"
	}
	return string(accepted.Status) + " " + accepted.Reason
}

// The settings of all KubeletConfigs are in one MachineConfig over the file of the pool's
// MachineConfigs, and each is reported.
func TestSettingsAreFoldedOverTheDefault(t *testing.T) {
	run(t, func(b *bench) {
		b.Put("machineconfigs",
			`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: MachineConfig, metadata: {name: 00-p, labels: {role: p}}, spec: {config: {ignition: {version: 3.5.0},
storage: {files: [{path: /etc/kubernetes/kubelet.conf, contents: {
source: "data:,clusterDomain%3A%20example.org%0AmaxPods%3A%20100%0A"}}]}}}}`)
		b.kubelet("a", `{maxPods: 50}`)
		b.kubelet("b", `{maxPods: 60, serializeImagePulls: false}`)
		if s := b.settings(); s["clusterDomain"] != "example.org" || s["maxPods"] != 60.0 || s["serializeImagePulls"] != false {
			b.Errorf("settings %v", s)
		}
		for _, name := range []string{"a", "b"} {
			if got := b.accepted(name); got != "True Applied" {
				b.Errorf("KubeletConfig %s: %s", name, got)
			}
		}
		a, _ := configtest.Read[v1alpha1.KubeletConfig](b.Bench, "kubeletconfigs", "a")
		if len(a.Status.Pools) != 1 || !slices.Equal(a.Status.Pools[0].Overridden, []string{"maxPods (by b)"}) {
			b.Errorf("pools of a: %+v", a.Status.Pools)
		}
		// The default changes: the settings are folded again.
		b.Server.Delete("machineconfigs", "", "00-p")
		b.After(time.Second)
		if s := b.settings(); s["clusterDomain"] != nil || s["maxPods"] != 60.0 {
			b.Errorf("without a default: %v", s)
		}
		b.Writes()
		b.After(time.Hour)
		if writes := b.Writes(); len(writes) > 0 {
			b.Errorf("writes without a change: %v", writes)
		}
	})
}

// A KubeletConfig that was created anew has the generation of the one before.
func TestSettingsOfAKubeletConfigInThePlaceOfAnother(t *testing.T) {
	run(t, func(b *bench) {
		b.kubelet("a", `{maxPods: 50}`)
		b.Replace("kubeletconfigs", kubeletConfig("a", `{maxPods: 60}`))
		if s := b.settings(); s["maxPods"] != 60.0 {
			b.Errorf("settings %v", s)
		}
		if got := b.accepted("a"); got != "True Applied" {
			b.Errorf("KubeletConfig a: %s", got)
		}
	})
}

// The generated MachineConfig is kept as it is folded, and removed with the last KubeletConfig.
func TestGeneratedConfigIsKept(t *testing.T) {
	run(t, func(b *bench) {
		b.kubelet("a", `{maxPods: 50}`)
		b.Edit("machineconfigs", created, func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{"mine": "too"})
			u.SetAnnotations(nil)
			u.Object["spec"] = map[string]any{"fips": true}
		})
		b.After(time.Second)
		c, _ := configtest.Read[v1alpha1.MachineConfig](b.Bench, "machineconfigs", created)
		if b.settings()["maxPods"] != 50.0 || c.Spec.FIPS || c.Labels["mine"] != "too" || c.Labels[v1alpha1.LabelPool] != "p" ||
			metav1.GetControllerOf(&c) == nil {
			b.Errorf("after a change by another client: %+v", c)
		}
		b.Server.Delete("machineconfigs", "", created)
		b.After(time.Second)
		if b.settings()["maxPods"] != 50.0 {
			b.Error("it was not created again after its deletion")
		}
		b.Server.Delete("kubeletconfigs", "", "a")
		b.After(time.Second)
		if slices.Contains(b.Names("machineconfigs"), created) {
			b.Error("it is there without a KubeletConfig")
		}
	})
}

// While a KubeletConfig is invalid nothing changes for its pools, and all that select them report
// so.
func TestInvalidSettingsChangeNothing(t *testing.T) {
	run(t, func(b *bench) {
		b.kubelet("a", `{maxPods: 50}`)
		b.Recorder.Take()
		b.kubelet("b", `{maxPods: many}`)
		if b.settings()["maxPods"] != 50.0 || b.accepted("a") != "False Invalid" || b.accepted("b") != "False Invalid" {
			b.Errorf("settings %v, a: %s, b: %s", b.settings(), b.accepted("a"), b.accepted("b"))
		}
		if said := b.Recorder.Take(); len(said) != 2 || !strings.HasPrefix(said[0], "KubeletConfigRefused: ") {
			b.Errorf("Events %q", said)
		}
		b.kubelet("b", `{maxPods: 70}`)
		if b.settings()["maxPods"] != 70.0 || b.accepted("a") != "True Applied" || b.accepted("b") != "True Applied" {
			b.Errorf("after the correction: settings %v, a: %s, b: %s", b.settings(), b.accepted("a"), b.accepted("b"))
		}
	})
}

// An invalid file of the pool's MachineConfigs is reported by each KubeletConfig, without its
// content.
func TestInvalidDefaultIsReported(t *testing.T) {
	run(t, func(b *bench) {
		b.Put("machineconfigs",
			`{apiVersion: fleet.machine.sapcloud.io/v1alpha1, kind: MachineConfig, metadata: {name: 00-p, labels: {role: p}}, spec: {config: {ignition: {version: 3.5.0},
storage: {files: [{path: /etc/kubernetes/kubelet.conf, contents: {source: "data:,secret%3A%20%5B"}}]}}}}`)
		b.kubelet("a", `{maxPods: 50}`)
		c, _ := configtest.Read[v1alpha1.KubeletConfig](b.Bench, "kubeletconfigs", "a")
		if b.settings() != nil || b.accepted("a") != "False Invalid" || strings.Contains(fmt.Sprint(c.Status), "secret") {
			b.Errorf("status %+v", c.Status)
		}
	})
}

// A status is not written before the generated MachineConfig is as it is reported: its writer may
// be another replica, or none.
func TestStatusWaitsForTheOwnerOfThePool(t *testing.T) {
	run(t, func(b *bench) {
		b.Fail(func(write string) bool { return write == "POST machineconfigs" })
		b.kubelet("a", `{maxPods: 50}`)
		if got := b.accepted("a"); got != "unknown" {
			b.Errorf("without the MachineConfig: %s", got)
		}
		b.Fail(nil)
		b.After(time.Minute)
		if got := b.accepted("a"); got != "True Applied" {
			b.Errorf("with the MachineConfig: %s", got)
		}
	})
}
