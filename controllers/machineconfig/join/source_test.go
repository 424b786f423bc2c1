package join

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	machinev1alpha1 "github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/objectcache"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/apiserver"
)

// rendered is a RenderedMachineConfig of pool "p" with one file.
func rendered(t *testing.T, content string) *v1alpha1.RenderedMachineConfig {
	t.Helper()
	o := &v1alpha1.RenderedMachineConfig{}
	o.Spec.Config.Raw = fmt.Appendf(nil,
		`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"contents":{"source":"data:,%s"},"path":"/etc/a"}]}}`, content)
	name, err := v1alpha1.RenderedName("p", &o.Spec)
	if err != nil {
		t.Fatal(err)
	}
	o.Name = name
	return o
}

// plain returns what a placeholder's value stands for.
func plain(t *testing.T, value string) []byte {
	t.Helper()
	content, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		t.Fatal(err)
	}
	unzip, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if content, err = io.ReadAll(unzip); err != nil {
		t.Fatal(err)
	}
	return content
}

// pools are Pools.
type pools struct {
	all      []*v1alpha1.MachineConfigPool
	unlisted bool
}

func (p *pools) Ready() bool                          { return !p.unlisted }
func (p *pools) Pools() []*v1alpha1.MachineConfigPool { return p.all }
func (p *pools) target(config string)                 { p.all[0].Status.CurrentMachineConfig = config }

// world is a Source before a machine of the MachineDeployment n/d.
type world struct {
	pools   *pools
	view    *objectcache.View
	server  *apiserver.Server
	source  *Source
	machine *machinev1alpha1.Machine
}

func newWorld(configs ...*v1alpha1.RenderedMachineConfig) *world {
	w := &world{pools: &pools{}, view: objectcache.NewView(), server: apiserver.Recording()}
	for _, o := range configs {
		apiserver.Add(w.server, o)
	}
	pool := &v1alpha1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid-p"}}
	pool.Spec.MachineRef = &v1alpha1.MachineReference{Kind: "MachineDeployment", Namespace: "n", Name: "d"}
	w.pools.all = append(w.pools.all, pool)
	d := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d", UID: "uid-d", ResourceVersion: "1"}}
	set := &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "s", UID: "uid-s", ResourceVersion: "1", OwnerReferences: []metav1.OwnerReference{owner("MachineDeployment", "d")},
	}}
	w.machine = &machinev1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", OwnerReferences: []metav1.OwnerReference{owner("MachineSet", "s")}},
	}
	w.view.Deployments.Apply(d, false)
	w.view.Sets.Apply(set, false)
	var err error
	if w.source, err = NewSource(SourceConfig{Fleet: w.server.Configs(), Pools: w.pools, View: w.view}); err != nil {
		panic(err)
	}
	return w
}

func owner(kind, name string) metav1.OwnerReference {
	return metav1.OwnerReference{Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: new(true)}
}

// gets counts the requests since the last call.
func (w *world) gets() int {
	defer w.server.Forget()
	return len(w.server.Requests())
}

// A daemon accepts what the placeholders stand for, and the values are the same each time: they are
// read once for all machines of a set.
func TestValues(t *testing.T) {
	o := rendered(t, "x")
	w := newWorld(o)
	w.pools.target(o.Name)
	contents := map[string]bool{}
	for range 3 {
		values, problem, err := w.source.Values(t.Context(), w.machine)
		if err != nil || problem != "" {
			t.Fatal(problem, err)
		}
		contents[values[machinev1alpha1.PlaceholderMachineConfig]] = true
		values[machinev1alpha1.PlaceholderMachineConfig] = "a caller may change them"
	}
	if len(contents) != 1 {
		t.Errorf("%d different values", len(contents))
	}
	first, _, _ := w.source.Values(t.Context(), w.machine)
	if got := w.gets(); got != 1 {
		t.Errorf("%d requests, want 1", got)
	}
	config, err := desired.Parse(plain(t, first[machinev1alpha1.PlaceholderMachineConfig]))
	if err != nil || config.Name != o.Name || first[machinev1alpha1.PlaceholderMachineConfigName] != o.Name {
		t.Errorf("the daemon reads %q (%v), the name is %q, want %q",
			config.Name, err, first[machinev1alpha1.PlaceholderMachineConfigName], o.Name)
	}
	if got := string(plain(t, first[machinev1alpha1.PlaceholderMachineConfigIgnition])); got != string(o.Spec.Config.Raw) {
		t.Errorf("the Ignition config is %s", got)
	}
}

func TestValuesProblems(t *testing.T) {
	noise, random := make([]byte, 160<<10), rand.New(rand.NewPCG(1, 1))
	for i := range noise {
		noise[i] = "0123456789abcdef"[random.IntN(16)]
	}
	large := rendered(t, string(noise)+string(noise[:1<<10]))
	for _, tc := range []struct {
		name           string
		change         func(w *world)
		problem, wrong string
	}{
		{"no pool", func(w *world) { w.pools.all = nil }, "no MachineConfigPool refers to MachineDeployment n/d", ""},
		{"no target", func(*world) {}, "nothing was rendered", ""},
		{"no controller", func(w *world) { w.machine.OwnerReferences = nil }, "belongs to no MachineDeployment", ""},
		{"too large", func(w *world) { w.pools.target(large.Name) }, "make its MachineConfigs smaller", ""},
		{"pools are not listed", func(w *world) { w.pools.unlisted = true }, "", "not listed yet"},
		{"the set is not shown", func(w *world) {
			w.machine.OwnerReferences = []metav1.OwnerReference{owner("MachineSet", "t")}
		}, "", "not shown yet"},
		{"it does not exist", func(w *world) { w.pools.target("rendered-p-1") }, "", "not found"},
		{"it has another content", func(w *world) {
			forged := rendered(t, "forged")
			forged.Name = rendered(t, "x").Name
			apiserver.Add(w.server, forged)
			w.pools.target(forged.Name)
		}, "", "has not the content"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(large)
			tc.change(w)
			values, problem, err := w.source.Values(t.Context(), w.machine)
			if values != nil || (problem == "") != (tc.problem == "") || !strings.Contains(problem, tc.problem) {
				t.Errorf("problem %q, want %q", problem, tc.problem)
			}
			if (err == nil) != (tc.wrong == "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
				t.Errorf("error %v, want %q", err, tc.wrong)
			}
		})
	}
}

// A MachineSet without a MachineDeployment can be referred to.
func TestValuesOfAMachineSet(t *testing.T) {
	o := rendered(t, "x")
	w := newWorld(o)
	w.pools.target(o.Name)
	w.pools.all[0].Spec.MachineRef = &v1alpha1.MachineReference{Kind: "MachineSet", Namespace: "n", Name: "lone"}
	w.view.Sets.Apply(
		&machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "lone", UID: "uid-lone", ResourceVersion: "1"}}, false,
	)
	w.machine.OwnerReferences = []metav1.OwnerReference{owner("MachineSet", "lone")}
	if values, problem, err := w.source.Values(t.Context(), w.machine); err != nil ||
		values[machinev1alpha1.PlaceholderMachineConfigName] != o.Name {
		t.Error(values, problem, err)
	}
}

// As many contents are remembered as pools create machines at a time, and not all that ever were.
func TestFewValuesAreCached(t *testing.T) {
	var all []*v1alpha1.RenderedMachineConfig
	for i := range mostRemembered + 1 {
		all = append(all, rendered(t, fmt.Sprint(i)))
	}
	w := newWorld(all...)
	read := func(o *v1alpha1.RenderedMachineConfig) int {
		w.pools.target(o.Name)
		if _, problem, err := w.source.Values(t.Context(), w.machine); err != nil || problem != "" {
			t.Fatal(problem, err)
		}
		return w.gets()
	}
	for _, o := range all {
		if read(o) != 1 {
			t.Error("it was remembered before it was read")
		}
	}
	if read(all[1]) != 0 || read(all[0]) != 1 || len(w.source.remembered) != mostRemembered {
		t.Errorf("%d are remembered", len(w.source.remembered))
	}
}
