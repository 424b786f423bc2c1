package desired

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

func zipped(content []byte) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(content) // a buffer does not fail
	_ = w.Close()
	return "data:;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

func sha(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// parse returns the config of an Ignition config without its version.
func parse(t *testing.T, ignition string) *Config {
	t.Helper()
	c, err := Parse([]byte(`{"ignition": {"version": "3.5.0"}, ` + ignition + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func root() Machine {
	return Machine{
		Users: map[string]User{
			"core": {UID: 1000, GID: 1001, Home: "/home/core"}, "twin": {UID: 1000, GID: 1001, Home: "/home/core"}, "bad": {Home: "home"},
		},
		Groups: map[string]int{"wheel": 10},
		Units: map[string]string{
			"vendor.service": "[Install]\nWantedBy=multi-user.target\nAlias=other.service\n", "static.service": "[Service]\n",
			"inst@.service": "[Install]\nWantedBy=%i.target\n",
		},
		Places: map[string]string{
			"vendor.service": "/usr/lib/systemd/system/vendor.service", "static.service": "/usr/lib/systemd/system/static.service",
			"inst@.service": "/usr/lib/systemd/system/inst@.service",
		},
		Links: map[string]string{
			UnitFolder + "/timers.target.wants/vendor.service": "/usr/lib/systemd/system/vendor.service",
			UnitFolder + "/alias.service":                      "/usr/lib/systemd/system/vendor.service",
			UnitFolder + "/timers.target.wants/x.service":      "/usr/lib/systemd/system/x.service",
			UnitFolder + "/vendor.service":                     "/dev/null",
		},
	}
}

// describe returns entries in a short form.
func describe(tree Tree) map[string]string {
	all := map[string]string{}
	for name, e := range tree.Entries {
		switch e.Want.Kind { //nolint:exhaustive // the others have only a kind
		case plan.File:
			all[name] = fmt.Sprintf("%04o %d:%d %q", e.Want.Mode, e.Want.UID, e.Want.GID, tree.Contents[e.Want.Digest])
		case plan.Link:
			all[name] = "-> " + e.Want.Target
		default:
			all[name] = string(e.Want.Kind)
		}
	}
	return all
}

func TestTree(t *testing.T) {
	for _, tc := range []struct {
		name, ignition string
		want           map[string]string
	}{
		{
			"files",
			`"storage": {"files": [
				{"path": "/a", "contents": {"source": "data:,x%20y"}},
				{"path": "/b", "mode": 384, "user": {"name": "core"}, "group": {"name": "wheel"}, "contents": {"source": "data:;base64,eg=="}},
				{"path": "/c", "user": {"id": 5}, "group": {"id": 6}, "contents": {
					"compression": "gzip", "source": "` + zipped([]byte("zip")) + `", "verification": {"hash": "` + sha("zip") + `"}}},
				{"path": "/d", "contents": {"source": "data:,"}}]}`,
			map[string]string{"/a": `0644 0:0 "x y"`, "/b": `0600 1000:10 "z"`, "/c": `0644 5:6 "zip"`, "/d": `0644 0:0 ""`},
		},
		{
			"a unit with a drop-in",
			`"systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "[Install]\nWantedBy=x.target y.target\nRequiredBy=z.target\n",
				"dropins": [{"name": "1.conf", "contents": "[Service]\n"}, {"name": "2.conf", "contents": ""}]}]}`,
			map[string]string{
				"/etc/systemd/system/a.service":                   `0644 0:0 "[Install]\nWantedBy=x.target y.target\nRequiredBy=z.target\n"`,
				"/etc/systemd/system/a.service.d/1.conf":          `0644 0:0 "[Service]\n"`,
				"/etc/systemd/system/x.target.wants/a.service":    "-> /etc/systemd/system/a.service",
				"/etc/systemd/system/y.target.wants/a.service":    "-> /etc/systemd/system/a.service",
				"/etc/systemd/system/z.target.requires/a.service": "-> /etc/systemd/system/a.service",
			},
		},
		{
			"a unit of the machine is enabled", `"systemd": {"units": [{"name": "vendor.service", "enabled": true}]}`,
			map[string]string{
				"/etc/systemd/system/multi-user.target.wants/vendor.service": "-> /usr/lib/systemd/system/vendor.service",
				"/etc/systemd/system/other.service":                          "-> /usr/lib/systemd/system/vendor.service",
			},
		},
		{
			"a unit of the machine is disabled: all of its links, and no other",
			`"systemd": {"units": [{"name": "vendor.service", "enabled": false}]}`,
			map[string]string{
				"/etc/systemd/system/multi-user.target.wants/vendor.service": "absent", "/etc/systemd/system/other.service": "absent",
				"/etc/systemd/system/timers.target.wants/vendor.service": "absent", "/etc/systemd/system/alias.service": "absent",
			},
		},
		{
			"an instance of a template", `"systemd": {"units": [{"name": "inst@x.service", "enabled": true}]}`,
			map[string]string{"/etc/systemd/system/x.target.wants/inst@x.service": "-> /usr/lib/systemd/system/inst@.service"},
		},
		{"a unit without an [Install] section", `"systemd": {"units": [{"name": "static.service", "enabled": true}]}`, map[string]string{}},
		{
			"a unit that the machine does not have is disabled", `"systemd": {"units": [{"name": "gone.service", "enabled": false}]}`,
			map[string]string{},
		},
		{
			"masked", `"systemd": {"units": [{"name": "a.service", "mask": true, "enabled": true, "contents": "[Service]\n"}]}`,
			map[string]string{"/etc/systemd/system/a.service": "-> /dev/null"},
		},
		{
			"SSH keys", `"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a", "b"]}]}`,
			map[string]string{"/home/core/.ssh/authorized_keys": `0600 1000:1001 "a\nb\n"`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tree := parse(t, tc.ignition).Tree(root())
			if len(tree.Refused) > 0 {
				t.Errorf("refused: %v", tree.Refused)
			}
			if diff := cmp.Diff(tc.want, describe(tree)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTreeRefuses(t *testing.T) {
	bomb := zipped(make([]byte, maxContent+1))
	for _, tc := range []struct{ name, ignition, field, message string }{
		{
			"a unit that the machine does not have", `"systemd": {"units": [{"name": "gone.service", "enabled": true}]}`,
			"config.systemd.units[gone.service].enabled", "no unit of that name",
		},
		{
			"Also", `"systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "[Install]\nAlso=b.service\n"}]}`,
			"config.systemd.units[a.service].enabled", "Also",
		},
		{
			"a specifier", `"systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "[Install]\nWantedBy=%H.target\n"}]}`,
			"config.systemd.units[a.service].enabled", "WantedBy",
		},
		{
			"a target that is a path",
			`"systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "[Install]\nWantedBy=../../x.target\n"}]}`,
			"config.systemd.units[a.service].enabled", "WantedBy",
		},
		{
			"a template", `"systemd": {"units": [{"name": "inst@.service", "enabled": true}]}`, "config.systemd.units[inst@.service].enabled",
			"instance",
		},
		{
			"a unit that is a path", `"systemd": {"units": [{"name": "../x.service", "contents": "[Service]\n"}]}`,
			"config.systemd.units[../x.service]", "file name",
		},
		{
			"a drop-in that is a path",
			`"systemd": {"units": [{"name": "x.service", "dropins": [{"name": "../x.conf", "contents": "[Service]\n"}]}]}`,
			"config.systemd.units[x.service].dropins[../x.conf]", "file name",
		},
		{
			"an unknown user", `"storage": {"files": [{"path": "/a", "user": {"name": "x"}, "contents": {"source": "data:,"}}]}`,
			"config.storage.files[/a].user", "name that the machine has",
		},
		{
			"an unknown group", `"storage": {"files": [{"path": "/a", "group": {"name": "x"}, "contents": {"source": "data:,"}}]}`,
			"config.storage.files[/a].group", "name that the machine has",
		},
		{"no source", `"storage": {"files": [{"path": "/a"}]}`, "config.storage.files[/a].contents", "source"},
		{"another hash", `"storage": {"files": [{"path": "/a", "contents": {"source": "data:,secret", "verification": {"hash": "` + sha("x") +
			`"}}}]}`, "config.storage.files[/a].contents", "another hash"},
		{
			"not compressed", `"storage": {"files": [{"path": "/a", "contents": {"source": "data:,secret", "compression": "gzip"}}]}`,
			"config.storage.files[/a].contents", "gzip",
		},
		{
			"much when decompressed", `"storage": {"files": [{"path": "/a", "contents": {"source": "` + bomb + `", "compression": "gzip"}}]}`,
			"config.storage.files[/a].contents", "at most",
		},
		{
			"keys of an unknown user", `"passwd": {"users": [{"name": "x", "sshAuthorizedKeys": ["a"]}]}`,
			"config.passwd.users[x].sshAuthorizedKeys", "no user",
		},
		{
			"a home that is no path", `"passwd": {"users": [{"name": "bad", "sshAuthorizedKeys": ["a"]}]}`,
			"config.passwd.users[bad].sshAuthorizedKeys", "home",
		},
		{
			"a key of two lines", `"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a\nb"]}]}`,
			"config.passwd.users[core].sshAuthorizedKeys", "one line",
		},
		{
			"two fields, one path",
			`"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a"]}, {"name": "twin", "sshAuthorizedKeys": ["b"]}]}`,
			"config.passwd.users[twin].sshAuthorizedKeys", "something else",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused := parse(t, tc.ignition).Tree(root()).Refused
			if len(refused) != 1 || refused[0].Field != tc.field || !strings.Contains(refused[0].Message, tc.message) {
				t.Errorf("expected the refusal of %s with %q, got %v", tc.field, tc.message, refused)
			}
			if strings.Contains(fmt.Sprint(refused), "secret") {
				t.Errorf("a message has content: %v", refused)
			}
		})
	}
}

func TestTreeWithoutRootOwnsEverythingItself(t *testing.T) {
	c := parse(t,
		`"storage": {"files": [{"path": "/a", "user": {"name": "root"}, "contents": {"source": "data:,"}}, {"path": "/b", "user": {"id": 5}, "contents": {"source": "data:,"}}]}`)
	m := root()
	m.UID, m.GID = 1000, 1001
	tree := c.Tree(m)
	if diff := cmp.Diff(map[string]string{"/a": `0644 1000:1001 ""`}, describe(tree)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(tree.Refused) != 1 || tree.Refused[0].Field != "config.storage.files[/b].user" {
		t.Errorf("refused: %v", tree.Refused)
	}
}

func TestFieldsAreAllThatIsNotApplied(t *testing.T) {
	content := `
apiVersion: fleet.machine.sapcloud.io/v1alpha1
kind: RenderedMachineConfig
metadata: {name: rendered-a}
spec:
  kernelArguments: [quiet]
  extensions: [x]
  fips: true
  kernelType: realtime
  osImageURL: image
  config:
    ignition: {version: 3.5.0, timeouts: {httpTotal: 5}}
    kernelArguments: {shouldExist: [a]}
    passwd: {groups: [{name: g}], users: [{name: u, shell: /bin/sh, sshAuthorizedKeys: [k]}, {name: v, sshAuthorizedKeys: [k]}]}
    storage:
      directories: [{path: /dir}]
      links: [{path: /l, target: x}]
      disks: [{device: /dev/a, wipeTable: true}]
      filesystems: [{device: /dev/a1, format: ext4, path: /m}]
      luks: [{name: l, device: /dev/b}]
      raid: [{name: r, level: raid1, devices: [/dev/c, /dev/d]}]
      files: [{path: /f, append: [{source: "data:,x"}]}, {path: /g, contents: {source: "https://example.com/x"}}]
`
	c, err := Parse([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"config.ignition.timeouts", "config.kernelArguments", "config.passwd.groups", "config.passwd.users[u]",
		"config.storage.directories", "config.storage.disks", "config.storage.files[/f].append", "config.storage.files[/g].contents.source",
		"config.storage.filesystems", "config.storage.links", "config.storage.luks", "config.storage.raid",
		"extensions", "fips", "kernelArguments", "kernelType", "osImageURL",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(c.Fields))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if entries := c.Tree(root()).Entries; len(entries) != 0 {
		t.Errorf("expected files that are not applied to be left out, got %v", entries)
	}
}

func TestDefaultsAreNotReportedAsFields(t *testing.T) {
	c, err := Parse([]byte(`{"metadata": {"name": "a"}, "spec": {"kernelType": "default", "fips": false, "kernelArguments": []}}`))
	if err != nil || len(c.Fields) != 0 || c.Name != "a" {
		t.Errorf("%+v %v", c, err)
	}
}

func TestParseRejects(t *testing.T) {
	for name, content := range map[string]string{
		"nothing":             "",
		"no name":             `{"spec": {}}`,
		"a new field":         `{"metadata": {"name": "a"}, "spec": {"secret": 1}}`,
		"another type":        `{"metadata": {"name": "a"}, "spec": {"fips": "secret"}}`,
		"a wrong policy":      `{"metadata": {"name": "a"}, "spec": {"actions": [{"path": "/x", "action": "secret2"}]}}`,
		"Ignition 2":          `{"ignition": {"version": "2.2.0"}}`,
		"a wrong Ignition":    `{"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "secret"}]}}`,
		"two files, one path": `{"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/a"}, {"path": "/a"}]}}`,
		"no YAML":             "{secret",
		"much":                strings.Repeat(" ", MaxConfig+1),
	} {
		_, err := Parse([]byte(content))
		if err == nil {
			t.Errorf("%s: expected an error", name)
			continue
		}
		if strings.Contains(err.Error(), "secret\"") {
			t.Errorf("%s: the error has content: %v", name, err)
		}
	}
}

func TestFromObjectIsReadFromItsCopy(t *testing.T) {
	o := &v1alpha1.RenderedMachineConfig{}
	o.Name, o.ResourceVersion = "rendered-a", "7"
	o.Spec.Config.Raw = []byte(`{"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "/a", "contents": {"source": "data:,1"}}]}}`)
	o.Spec.Actions = []v1alpha1.ActionRule{{Path: "/a", Action: v1alpha1.ActionNone}}
	c, err := FromObject(o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(c.Content)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(describe(c.Tree(root())), describe(again.Tree(root()))); diff != "" || again.Name != "rendered-a" ||
		len(again.Policy) != 1 {
		t.Errorf("%+v\n%s", again, diff)
	}
	o.ResourceVersion = "8"
	if later, err := FromObject(o); err != nil || !bytes.Equal(later.Content, c.Content) {
		t.Errorf("expected the copy to depend on the spec only: %v", err)
	}
}

func TestUnitsOfMachine(t *testing.T) {
	c := parse(t,
		`"systemd": {"units": [{"name": "a@b.service", "enabled": true}, {"name": "c.service", "enabled": false}, {"name": "d.service"}, {"name": "e.service", "enabled": true, "contents": "[Service]\n"}]}`)
	if diff := cmp.Diff([]string{"a@.service", "a@b.service", "c.service"}, c.UnitsOfMachine()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseUsersAndGroups(t *testing.T) {
	users := ParseUsers([]byte("root:x:0:0:root:/root:/bin/sh\nroot:x:7:7::/evil:/bin/sh\n# comment\nshort:x:1\nbad:x:-1:0::/:/bin/sh\n" +
		"none:x:4294967295:0::/:/bin/sh\ncore:x:1000:1001::/home/core:/bin/sh"))
	if diff := cmp.Diff(map[string]User{"root": {0, 0, "/root"}, "core": {1000, 1001, "/home/core"}}, users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
	groups := ParseGroups([]byte("root:x:0:\nwheel:x:10:a,b\nwheel:x:0:\nbad:x:x:\n"))
	if diff := cmp.Diff(map[string]int{"root": 0, "wheel": 10}, groups); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// FuzzParse: what is accepted has a tree whose states can be recorded, and no path of a unit or of
// keys leaves its folder.
func FuzzParse(f *testing.F) {
	f.Add([]byte(
		`{"ignition": {"version": "3.5.0"}, "systemd": {"units": [{"name": "a.service", "enabled": true, "mask": false, "contents": "[Install]\nWantedBy=x.target\n"}]}, "storage": {"files": [{"path": "/a", "contents": {"source": "data:,x"}}]}, "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]}}`,
	))
	f.Add([]byte("metadata: {name: a}\nspec: {fips: true, actions: [{path: /x, action: None}]}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := Parse(content)
		if err != nil {
			return
		}
		for _, value := range c.Fields {
			if !json.Valid([]byte(value)) {
				t.Errorf("a field is no JSON: %q", value)
			}
		}
		tree := c.Tree(root())
		for name, e := range tree.Entries {
			if e.Want.Kind == plan.File && plan.Digest(tree.Contents[e.Want.Digest]) != e.Want.Digest {
				t.Errorf("%q has no content", name)
			}
			if e.Unit != "" && (plan.CheckPath(name) != "" || !strings.HasPrefix(name, UnitFolder+"/")) ||
				e.Keys && name != "/home/core/.ssh/authorized_keys" {
				t.Errorf("%s is at %q", e.Field, name)
			}
		}
	})
}

// FuzzAccounts: no line adds a user or a group that the file does not have.
func FuzzAccounts(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\n")
	f.Add("wheel:x:10:a,b\n")
	f.Fuzz(func(t *testing.T, content string) {
		for name := range ParseUsers([]byte(content)) {
			if !strings.Contains(content, name+":") {
				t.Errorf("user %q", name)
			}
		}
		for name, gid := range ParseGroups([]byte(content)) {
			if !strings.Contains(content, name+":") || gid < 0 {
				t.Errorf("group %q %d", name, gid)
			}
		}
	})
}
