package vm

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// compressed returns the base64 of the gzip of a text, as the placeholders of machine configuration
// have it.
func compressed(tb testing.TB, text string) string {
	tb.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(out.Bytes())
}

// documented returns the form in the documentation, for a machine whose image has the daemon.
func documented(tb testing.TB, config string) string {
	tb.Helper()
	page, err := os.ReadFile("../../../docs/operations/machine-config.md")
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n"+header)
	form, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		tb.Fatal("the documentation has no " + header)
	}
	var kept []string
	for line := range strings.Lines(header + form) {
		if !strings.HasPrefix(line, "- curl ") && !strings.Contains(line, "sha256sum") {
			kept = append(kept, line)
		}
	}
	return strings.ReplaceAll(strings.Join(kept, ""), "<<MACHINE_CONFIG>>", compressed(tb, config))
}

// What is documented is supported, but for the download of the daemon.
func TestParseDocumentedForm(t *testing.T) {
	c, err := ParseCloudConfig([]byte(documented(t, "a configuration")))
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range c.Files {
		paths = append(paths, f.Path)
	}
	const initial, daemon = "machine-config-initial.service", "machine-config-daemon.service"
	want := []string{"/etc/machine-config-daemon/initial.json", "/etc/systemd/system/" + initial, "/etc/systemd/system/" + daemon}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
	if f := c.Files[0]; string(f.Content) != "a configuration" || f.Mode != 0o600 || c.Files[1].Mode != defaultMode {
		t.Errorf("%s: %q, mode %o; mode of the unit %o", f.Path, f.Content, f.Mode, c.Files[1].Mode)
	}
	lines := []Line{
		{{Verb: DaemonReload}},
		{{Verb: Enable, Units: []string{"kubelet.service", initial, daemon}}},
		{{Verb: Start, Units: []string{initial}}, {Verb: Start, Units: []string{"kubelet.service", daemon}}},
	}
	if diff := cmp.Diff(lines, c.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	u, err := ParseUnit(string(c.Files[1].Content))
	unit := Unit{
		IsOneshot: true, Exec: []string{"/usr/local/bin/machine-config-daemon", "--initial=/etc/machine-config-daemon/initial.json"},
		WantedBy: []string{"multi-user.target"}, RequiredBy: []string{"kubelet.service"},
	}
	if diff := cmp.Diff(unit, u); err != nil || diff != "" {
		t.Errorf("%v; unit (-want +got):\n%s", err, diff)
	}
	if _, err := ParseUnit(string(c.Files[2].Content)); err != nil {
		t.Error(err)
	}
}

// Text of which a machine reads the bootstrap token only.
func TestParseOtherText(t *testing.T) {
	for _, text := range []string{"", "join with the token abcdef.0123456789abcdef", "#!/bin/sh\njoin\n", "a: b", "\n#cloud-config"} {
		if c, err := ParseCloudConfig([]byte(text)); c != nil || err != nil {
			t.Errorf("%q: %v, %v; want nothing", text, c, err)
		}
	}
}

func TestParseRefusals(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"Ignition":      {`{"ignition": {"version": "3.5.0"}}`, "no Ignition"},
		"no YAML":       {"#cloud-config\n- [", "expected write_files"},
		"module":        {"#cloud-config\npackages: [curl]", "packages"},
		"owner":         {"#cloud-config\nwrite_files: [{path: /a, owner: root}]", "owner"},
		"list":          {"#cloud-config\nruncmd: [[systemctl, daemon-reload]]", "expected write_files"},
		"relative path": {"#cloud-config\nwrite_files: [{path: a}]", "write_files[0].path"},
		"parent":        {"#cloud-config\nwrite_files: [{path: /a/../b}]", "write_files[0].path"},
		"no path":       {"#cloud-config\nwrite_files: [{content: a}]", "write_files[0].path"},
		"permissions":   {"#cloud-config\nwrite_files: [{path: /a, permissions: '4755'}]", "write_files[0].permissions"},
		"encoding":      {"#cloud-config\nwrite_files: [{path: /a, encoding: b64, content: YQ==}]", "gz+b64"},
		"placeholder": {
			"#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: '<<MACHINE_CONFIG>>'}]", "the content of /a: expected base64",
		},
		"no gzip": {"#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: YQ==}]", "the content of /a: expected gzip"},
		"cut gzip": {
			"#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: " + compressed(t, "text")[:24] + "}]",
			"the content of /a: expected gzip",
		},
		"too much": {
			"#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: " + compressed(t, strings.Repeat(" ", mostContent+1)) + "}]",
			"at most",
		},
		"other command": {
			"#cloud-config\nruncmd: [systemctl daemon-reload, reboot]",
			`runcmd[1]: expected systemctl daemon-reload, enable or start: this machine runs no other command, got "reboot"`,
		},
		"second":  {"#cloud-config\nruncmd: [systemctl daemon-reload && rm -r /]", `got "rm -r /"`},
		"shell":   {"#cloud-config\nruncmd: ['systemctl start a.service; reboot']", "expected names of services"},
		"verb":    {"#cloud-config\nruncmd: [systemctl stop a.service]", "enable or start"},
		"no unit": {"#cloud-config\nruncmd: [systemctl start --no-block]", "expected units"},
		"a unit":  {"#cloud-config\nruncmd: [systemctl daemon-reload a.service]", "expected no unit"},
		"folder":  {"#cloud-config\nruncmd: [systemctl enable ../a.service]", "expected names of services"},
		"target":  {"#cloud-config\nruncmd: [systemctl start a.target]", "expected names of services"},
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := ParseCloudConfig([]byte(test.text)); c != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, error %v; want one with %q", c, err, test.want)
			}
		})
	}
}

func TestParseUnitRefusals(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no file": {"[Unit", "expected a unit file"},
		"setting": {"[Service]\nExecStartPre=/bin/true\n", "Service.ExecStartPre"},
		"type":    {"[Service]\nType=forking\n", "Service.Type"},
		"section": {"[Timer]\nOnBootSec=1\n", "Timer.OnBootSec"},
		"path":    {"[Install]\nWantedBy=../x.target\n", "the section Install"},
		"hidden":  {"[Install]\nWantedBy=.x\n", "the section Install"},
		"order":   {"[Unit]\nBefore=b.service\n[Install]\nRequiredBy=a.service b.service\n", "Unit.Before=a.service"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseUnit(test.text); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v; want one with %q", err, test.want)
			}
		})
	}
}

// What is accepted stays in the root and names services.
func FuzzParse(f *testing.F) {
	f.Add([]byte(documented(f, "x")))
	f.Add([]byte("#cloud-config\nwrite_files: [{path: /a/b, content: c}]\nruncmd: [systemctl enable a.service && systemctl start a.service]"))
	f.Fuzz(func(t *testing.T, userData []byte) {
		c, err := ParseCloudConfig(userData)
		if c == nil {
			return
		}
		if err != nil {
			t.Error("a configuration and an error:", err)
		}
		for _, file := range c.Files {
			if !strings.HasPrefix(file.Path, "/") || strings.Contains(file.Path+"/", "/../") || file.Mode > 0o777 {
				t.Errorf("file %q, mode %o", file.Path, file.Mode)
			}
			_, _ = ParseUnit(string(file.Content))
		}
		for _, line := range c.Lines {
			for _, command := range line {
				for _, name := range command.Units {
					if !IsService(name) || strings.ContainsAny(name, "/. \t") && strings.Count(name, ".") != 1 {
						t.Errorf("unit %q", name)
					}
				}
			}
		}
	})
}
