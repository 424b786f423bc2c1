package plan

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1/crds"
)

func TestActions(t *testing.T) {
	policy := Policy{
		{Path: "/etc", Action: v1alpha1.ActionRestart, Service: "all.service"},
		{Path: "/etc/motd", Action: v1alpha1.ActionNone},
		{Path: "/etc/ssh", Action: v1alpha1.ActionReload, Service: "sshd.service"},
		{Path: "/etc/both", Action: v1alpha1.ActionReload, Service: "all.service"},
		{Path: "/etc/big", Action: v1alpha1.ActionReboot},
		{Path: "/etc/units", Action: v1alpha1.ActionDaemonReload},
		{Unit: "a.service", Action: v1alpha1.ActionReload, Service: "a.service"},
		{Unit: "a.service", Action: v1alpha1.ActionRestart, Service: "b.service"},
		{SSHKeys: true, Action: v1alpha1.ActionNone},
	}
	for _, tc := range []struct {
		name   string
		steps  []Step
		claims []Claim
		want   Actions
	}{
		{name: "nothing"},
		{name: "no rule", steps: []Step{{Path: "/usr/x"}}, want: Actions{Reboot: true}},
		{name: "a path is no prefix of a longer name", steps: []Step{{Path: "/etcetera"}}, want: Actions{Reboot: true}},
		{name: "none", steps: []Step{{Path: "/etc/motd"}, {Path: "/home/u/.ssh/authorized_keys", Keys: true}}},
		{name: "the longest path", steps: []Step{{Path: "/etc/ssh/sshd_config"}}, want: Actions{Reload: []string{"sshd.service"}}},
		{
			name: "a restart includes a reload", steps: []Step{{Path: "/etc/x"}, {Path: "/etc/both"}},
			want: Actions{Restart: []string{"all.service"}},
		},
		{
			name: "a unit wins over its path", steps: []Step{{Path: "/etc/systemd/system/a.service", Unit: "a.service"}},
			want: Actions{DaemonReload: true, Restart: []string{"b.service"}, Reload: []string{"a.service"}},
		},
		{
			name: "another unit has its path", steps: []Step{{Path: "/etc/systemd/system/x.service", Unit: "x.service"}},
			want: Actions{DaemonReload: true, Restart: []string{"all.service"}},
		},
		{name: "units only", steps: []Step{{Path: "/etc/units/x"}}, want: Actions{DaemonReload: true}},
		{name: "a reboot includes all", steps: []Step{{Path: "/etc/x", Unit: "x"}, {Path: "/etc/big"}}, want: Actions{Reboot: true}},
		{name: "a hook", claims: []Claim{{Field: "osImageURL"}}, want: Actions{Reboot: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := policy.Actions(tc.steps, tc.claims)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.IsNone() != cmp.Equal(got, Actions{}, cmpopts.EquateEmpty()) {
				t.Errorf("IsNone is %v of %+v", got.IsNone(), got)
			}
		})
	}
}

func TestPolicyCheck(t *testing.T) {
	for _, tc := range []struct {
		rule v1alpha1.ActionRule
		ok   bool
	}{
		{v1alpha1.ActionRule{Path: "/etc", Action: v1alpha1.ActionNone}, true},
		{v1alpha1.ActionRule{SSHKeys: true, Action: v1alpha1.ActionRestart, Service: "s"}, true},
		{v1alpha1.ActionRule{Action: v1alpha1.ActionNone}, false},
		{v1alpha1.ActionRule{Path: "/etc", Unit: "u", Action: v1alpha1.ActionNone}, false},
		{v1alpha1.ActionRule{Path: "etc", Action: v1alpha1.ActionNone}, false},
		{v1alpha1.ActionRule{Path: "/etc/..", Action: v1alpha1.ActionNone}, false},
		{v1alpha1.ActionRule{Path: "/etc", Action: "Explode"}, false},
		{v1alpha1.ActionRule{Path: "/etc", Action: v1alpha1.ActionRestart}, false},
		{v1alpha1.ActionRule{Path: "/etc", Action: v1alpha1.ActionReboot, Service: "s"}, false},
		{v1alpha1.ActionRule{Path: "/etc", Action: v1alpha1.ActionRestart, Service: "*"}, false},
		{v1alpha1.ActionRule{Path: "/etc", Action: v1alpha1.ActionReload, Service: "--now"}, false},
	} {
		if err := (Policy{tc.rule}).Check(); (err == nil) != tc.ok {
			t.Errorf("%+v: %v", tc.rule, err)
		}
	}
}

func TestUnitNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a.service": true, `dev-disk-by\x2dlabel.device`: true, "foo@bar:baz_1.service": true, "10-a.conf": true,
		"-rf.service": false, "-.mount": false, "--now.service": false, " a.service": false, "\ta.service": false, "a .service": false,
		"a\u00a0.service": false, "a.service\n": false, "..": false, ".a.service": false, "../a.service": false, "a/b.service": false,
		"%n.service": false, "a;b.service": false, "$(a).service": false, "a\x00.service": false, "\u202ea.service": false, "\xff.service": false,
		"": false,
	} {
		if got := IsUnitName(name); got != want {
			t.Errorf("%q is the name of a unit: %t, want %t", name, got, want)
		}
		// A name in a MachineConfigPool that is accepted and not understood would keep its Nodes from
		// being updated.
		for _, field := range []string{"service", "unit"} {
			if got := patternOf(t, field).MatchString(name); got != want {
				t.Errorf("the API server accepts %q as %s: %t, want %t", name, field, got, want)
			}
		}
	}
}

// patternOf returns the pattern that the API server requires of a field of an action.
func patternOf(t *testing.T, field string) *regexp.Regexp {
	t.Helper()
	raw, err := crds.FS.ReadFile("fleet.machine.sapcloud.io_machineconfigpools.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition map[string]any
	if err := yaml.Unmarshal(raw, &definition); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(definition, "spec", "versions")
	version, _ := versions[0].(map[string]any) // it has one
	pattern, found, err := unstructured.NestedString(version, "schema", "openAPIV3Schema", "properties", "spec", "properties", "actions",
		"items", "properties", field, "pattern")
	if err != nil || !found {
		t.Fatalf("no pattern of %s: %v", field, err)
	}
	return regexp.MustCompile(pattern)
}
