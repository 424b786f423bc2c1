package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/worlds"
)

// drawConfigs draws some MachineConfigs whose files, links, directories, units and users often have
// the same keys.
func drawConfigs(t *rapid.T) (configs []*v1alpha1.MachineConfig) {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[0-9]{1,2}-[a-c]`), 1, 6, rapid.ID[string]).Draw(t, "names")
	for _, name := range names {
		spec := v1alpha1.MachineConfigSpec{
			FIPS:            rapid.Bool().Draw(t, "fips"),
			KernelType:      rapid.SampledFrom([]v1alpha1.KernelType{"", "default", "realtime", "64k-pages"}).Draw(t, "kernel"),
			OSImageURL:      rapid.SampledFrom([]string{"", "os:1", "os:2"}).Draw(t, "image"),
			KernelArguments: rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b=1", "c d"}), 0, 2).Draw(t, "arguments"),
		}
		if rapid.Bool().Draw(t, "has Ignition") {
			raw, err := json.Marshal(drawIgnition(t))
			if err != nil {
				t.Fatal(err)
			}
			spec.Config.Raw = raw
		}
		c := &v1alpha1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		configs = append(configs, c)
	}
	return configs
}

func drawIgnition(t *rapid.T) types.Config {
	c := types.Config{Ignition: types.Ignition{Version: "3.5.0"}}
	for _, path := range []string{"/etc/a", "/etc/b", "/etc/c"} {
		node := types.Node{Path: path}
		switch rapid.SampledFrom([]string{"", "file", "file", "file", "link", "directory"}).Draw(t, path) {
		case "file":
			f := types.File{Node: node}
			f.Mode = drawPointer(t, "mode", 0o600, 0o644)
			f.Contents.Source = drawPointer(t, "source", "", "data:,x", "data:,y")
			if f.Contents.Source != nil {
				f.Overwrite = drawPointer(t, "overwrite", true, false)
				f.Contents.Compression = drawPointer(t, "compression", "", "gzip")
				f.Contents.Verification.Hash = drawPointer(t, "hash", "sha256-"+strings.Repeat("0", 64), "sha256-"+strings.Repeat("1", 64))
			}
			c.Storage.Files = append(c.Storage.Files, f)
		case "link":
			target := "/x"
			c.Storage.Links = append(c.Storage.Links, types.Link{Node: node, LinkEmbedded1: types.LinkEmbedded1{Target: &target}})
		case "directory":
			c.Storage.Directories = append(c.Storage.Directories, types.Directory{Node: node})
		}
	}
	if rapid.Bool().Draw(t, "unit") {
		u := types.Unit{
			Name: "a.service", Enabled: drawPointer(t, "enabled", true, false), Contents: drawPointer(t, "contents", "[Unit]\n", "[Service]\n"),
		}
		for _, dropin := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"1.conf", "2.conf"}), 0, 2, rapid.ID[string]).
			Draw(t, "drop-ins") {
			u.Dropins = append(u.Dropins, types.Dropin{Name: dropin})
		}
		c.Systemd.Units = append(c.Systemd.Units, u)
	}
	if keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]types.SSHAuthorizedKey{"k1", "k2"}), 0, 2, rapid.ID[types.SSHAuthorizedKey]).
		Draw(t, "keys"); len(keys) > 0 {
		c.Passwd.Users = []types.PasswdUser{{Name: "core", SSHAuthorizedKeys: keys}}
	}
	return c
}

func drawPointer[T any](t *rapid.T, what string, values ...T) *T {
	if rapid.IntRange(0, 2).Draw(t, "no "+what) == 0 {
		return nil
	}
	value := rapid.SampledFrom(values).Draw(t, what)
	return &value
}

func drawMerged(t *rapid.T, configs []*v1alpha1.MachineConfig) Merged {
	m, err := Merge(configs, nil, Fleet{})
	if err != nil {
		t.Fatalf("valid MachineConfigs: %v", err)
	}
	return m
}

func nameOf(t *rapid.T, spec *v1alpha1.RenderedMachineConfigSpec) string {
	name, err := v1alpha1.RenderedName("p", spec)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// The order of the input has no effect, and neither has the way in which its JSON is written: an
// API server writes it anew.
func TestMergeIsDeterministic(t *testing.T) {
	worlds.Check(t, 2, func(t *rapid.T) {
		configs := drawConfigs(t)
		merged := drawMerged(t, configs)
		name := nameOf(t, &merged.Spec)
		shuffled := rapid.Permutation(configs).Draw(t, "order")
		for i, c := range shuffled {
			c = c.DeepCopy()
			if len(c.Spec.Config.Raw) > 0 {
				var indented bytes.Buffer
				if err := json.Indent(&indented, c.Spec.Config.Raw, "", "  "); err != nil {
					t.Fatal(err)
				}
				c.Spec.Config.Raw = indented.Bytes()
			}
			shuffled[i] = c
		}
		again := drawMerged(t, shuffled)
		if got := nameOf(t, &again.Spec); got != name {
			t.Errorf("in another order %s, was %s", got, name)
		}
		stored := &v1alpha1.RenderedMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
		document, err := json.MarshalIndent(again.Spec, "", " ")
		if err == nil {
			err = json.Unmarshal(document, &stored.Spec)
		}
		if err != nil || !stored.Verify() {
			t.Errorf("stored and read again it does not verify (%v):\n%s", err, document)
		}
		stored.Spec.KernelArguments = append(stored.Spec.KernelArguments, "forged")
		if stored.Verify() {
			t.Error("changed, and it verifies")
		}
	})
}

// Merging a part first, and the result with the rest, is the same as merging all at once.
func TestMergeOfAMerge(t *testing.T) {
	worlds.Check(t, 2, func(t *rapid.T) {
		configs := drawConfigs(t)
		slices.SortFunc(configs, byName)
		all := drawMerged(t, configs)
		cut := rapid.IntRange(1, len(configs)).Draw(t, "cut")
		first := &v1alpha1.MachineConfig{Spec: drawMerged(t, configs[:cut]).Spec.MachineConfigSpec}
		twice := drawMerged(t, append([]*v1alpha1.MachineConfig{first}, configs[cut:]...))
		if diff := cmp.Diff(string(all.Spec.Config.Raw), string(twice.Spec.Config.Raw)); diff != "" {
			t.Errorf("(-at once +in two steps):\n%s", diff)
		}
		if nameOf(t, &all.Spec) != nameOf(t, &twice.Spec) {
			t.Errorf("other fields differ: %+v, in two steps %+v", all.Spec, twice.Spec)
		}
	})
}

// entry is the record of a path in a second, naive implementation.
type entry struct {
	Kind, Source, Compression, Hash string
	Mode                            int
	Overwrite                       bool
}

// TestMergeFilesAsANaiveImplementation walks through the configs in order and remembers, for each
// path, what was said last.
func TestMergeFilesAsANaiveImplementation(t *testing.T) {
	worlds.Check(t, 5, func(t *rapid.T) {
		configs := drawConfigs(t)
		got := entriesOf(t, drawMerged(t, configs).Spec.Config.Raw, map[string]entry{})
		slices.SortFunc(configs, byName)
		want := map[string]entry{}
		for _, c := range configs {
			want = entriesOf(t, c.Spec.Config.Raw, want)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("files (-naive +merged):\n%s", diff)
		}
	})
}

// entriesOf adds what a config says to what is known. A file replaces contents with all that
// belongs to them, and overwrites unless it says otherwise.
func entriesOf(t *rapid.T, raw []byte, known map[string]entry) map[string]entry {
	known = maps.Clone(known)
	if len(raw) == 0 {
		return known
	}
	var c types.Config
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Storage.Files {
		e := known[f.Path]
		if e.Kind != "file" {
			e = entry{Kind: "file", Mode: -1}
		}
		if f.Mode != nil {
			e.Mode = *f.Mode
		}
		if f.Contents.Source != nil {
			if e.Source == "" {
				e.Overwrite = true
			}
			e.Source, e.Compression, e.Hash = "="+*f.Contents.Source, "", ""
			if f.Contents.Compression != nil {
				e.Compression = *f.Contents.Compression
			}
			if f.Contents.Verification.Hash != nil {
				e.Hash = *f.Contents.Verification.Hash
			}
		}
		if f.Overwrite != nil {
			e.Overwrite = *f.Overwrite
		}
		known[f.Path] = e
	}
	for _, l := range c.Storage.Links {
		known[l.Path] = entry{Kind: "link"}
	}
	for _, d := range c.Storage.Directories {
		known[d.Path] = entry{Kind: "directory"}
	}
	return known
}

// A configuration can be reached from itself, and whether a change is possible in place does not
// depend on its direction.
func TestIrreconcilableIsSymmetric(t *testing.T) {
	worlds.Check(t, 2, func(t *rapid.T) {
		a, b := drawMerged(t, drawConfigs(t)), drawMerged(t, drawConfigs(t))
		if p := Irreconcilable(&a.Spec, a); p != nil {
			t.Errorf("from itself: %v", p)
		}
		there, back := Irreconcilable(&a.Spec, b), Irreconcilable(&b.Spec, a)
		if (there == nil) != (back == nil) {
			t.Errorf("there %v, back %v", there, back)
		}
		for _, p := range []*Error{there, back} {
			if p != nil && len(p.Error()) > 1024 {
				t.Errorf("message of %d bytes", len(p.Error()))
			}
		}
	})
}

// Nothing that is used, young, or of a pool that is updating is deleted, and the newest of each
// pool stay.
func TestGarbageKeepsWhatMayBeNeeded(t *testing.T) {
	worlds.Check(t, 5, func(t *rapid.T) {
		var all []*v1alpha1.RenderedMachineConfig
		pools := []string{"a", "b"}
		for i := range rapid.IntRange(0, 20).Draw(t, "count") {
			r := rendered(rapid.SampledFrom(pools).Draw(t, "pool"), fmt.Sprint("r", i),
				time.Duration(rapid.IntRange(0, 72).Draw(t, "hours"))*time.Hour)
			if rapid.IntRange(0, 4).Draw(t, "deleted") == 0 {
				deleting(r)
			}
			all = append(all, r)
		}
		name := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("r", rapid.IntRange(0, 20).Draw(t, "name")) })
		uses := Uses{Names: rapid.SliceOfN(name, 0, 5).Draw(t, "names")}
		for _, p := range pools {
			uses.Pools = append(uses.Pools, status(p, name.Draw(t, "target"), name.Draw(t, "completed")))
		}
		d := Garbage(start, rapid.Permutation(all).Draw(t, "order"), uses)
		if diff := cmp.Diff(Garbage(start, all, uses), d); diff != "" {
			t.Errorf("in another order:\n%s", diff)
		}
		left := map[string]int{}
		standing := map[string]int{}
		for _, r := range all {
			p := uses.Pools[slices.Index(pools, r.Labels[v1alpha1.LabelPool])]
			used := slices.Contains(uses.Names, r.Name) || slices.ContainsFunc(uses.Pools, func(p *v1alpha1.MachineConfigPool) bool {
				return p.Status.CurrentMachineConfig == r.Name || p.Status.CompletedMachineConfig == r.Name
			})
			deleted, released := slices.Contains(d.Delete, r.Name), slices.Contains(d.Release, r.Name)
			updating := p.Status.CurrentMachineConfig != p.Status.CompletedMachineConfig
			if (deleted || released) && used || deleted && (updating || start.Sub(r.CreationTimestamp.Time) < MinAge) {
				t.Errorf("%s is deleted (%t) or released (%t); used %t, pool updating %t", r.Name, deleted, released, used, updating)
			}
			if r.DeletionTimestamp == nil {
				standing[p.Name]++
				if !deleted {
					left[p.Name]++
				}
			}
		}
		for _, p := range pools {
			if left[p] < min(standing[p], KeptResults) {
				t.Errorf("of %d of pool %s %d are left", standing[p], p, left[p])
			}
		}
	})
}
