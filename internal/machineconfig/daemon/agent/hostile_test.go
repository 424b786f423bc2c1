package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/desired"
)

// hostile are texts that could lead out of a folder, through a link, into an option or another
// command, or into another line.
func hostile() []string {
	return []string{
		"../x.service", "../../../../../../outside/x.service", "/x.service", "link/x.service", "..", "", "-rf.service", " x.service",
		"x.service\n/etc/shadow", "x.service\x00", "%n.service", "$(reboot).service", "*", "\u202ex.service",
		strings.Repeat("x", 5000) + ".service",
		"/var/lib/mcd/journal.json", "https://example.com/x",
	}
}

// configuration is an Ignition config without its version, and rules.
type configuration struct {
	ignition string
	rules    []v1alpha1.ActionRule
}

// places are where a configuration has texts. good is one that is applied.
func places() map[string]struct {
	good string
	with func(text string) configuration
} {
	quoted := func(format string) func(text string) configuration {
		return func(text string) configuration {
			value, _ := json.Marshal(text) // of a string
			return configuration{ignition: fmt.Sprintf(format, value)}
		}
	}
	install := func(setting string) func(text string) configuration {
		return func(text string) configuration {
			return quoted(`, "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": %s}]}`)("[Install]\n" + setting + "=" + text +
				"\n")
		}
	}
	rule := func(change func(r *v1alpha1.ActionRule, text string)) func(text string) configuration {
		return func(text string) configuration {
			r := v1alpha1.ActionRule{Action: v1alpha1.ActionRestart, Service: "a.service"}
			change(&r, text)
			return configuration{fileA("1"), []v1alpha1.ActionRule{r}}
		}
	}
	const unit = "good.service"
	return map[string]struct {
		good string
		with func(text string) configuration
	}{
		"path of a file":    {"/etc/good", quoted(`, "storage": {"files": [{"path": %s, "contents": {"source": "data:,x"}}]}`)},
		"name in the path":  {"good", func(text string) configuration { return places()["path of a file"].with("/etc/" + text) }},
		"content of a file": {"data:,x", quoted(`, "storage": {"files": [{"path": "/etc/a", "contents": {"source": %s}}]}`)},
		"owner of a file": {
			"root", quoted(`, "storage": {"files": [{"path": "/etc/a", "user": {"name": %s}, "contents": {"source": "data:,x"}}]}`),
		},
		"name of a unit":        {unit, quoted(`, "systemd": {"units": [{"name": %s, "contents": "[Service]\n"}]}`)},
		"name of a masked unit": {unit, quoted(`, "systemd": {"units": [{"name": %s, "mask": true}]}`)},
		"name of a drop-in": {
			"good.conf", quoted(`, "systemd": {"units": [{"name": "a.service", "dropins": [{"name": %s, "contents": "[Service]\n"}]}]}`),
		},
		"WantedBy":            {"good.target", install("WantedBy")},
		"UpheldBy":            {"good.target", install("UpheldBy")},
		"Alias":               {unit, install("Alias")},
		"name of a user":      {"root", quoted(`, "passwd": {"users": [{"name": %s, "sshAuthorizedKeys": ["key"]}]}`)},
		"key of a user":       {"ssh-rsa A", quoted(`, "passwd": {"users": [{"name": "root", "sshAuthorizedKeys": [%s]}]}`)},
		"path of a rule":      {"/etc", rule(func(r *v1alpha1.ActionRule, text string) { r.Path = text })},
		"unit of a rule":      {unit, rule(func(r *v1alpha1.ActionRule, text string) { r.Unit = text })},
		"service of a rule":   {unit, rule(func(r *v1alpha1.ActionRule, text string) { r.Path, r.Service = "/etc/a", text })},
		"unit of the machine": {"vendor.service", quoted(`, "systemd": {"units": [{"name": %s, "enabled": true}]}`)},
		"instance of a unit": {"good", func(text string) configuration {
			return places()["unit of the machine"].with("inst@" + text + ".service")
		}},
		"unit that is not enabled": {"vendor.service", quoted(`, "systemd": {"units": [{"name": %s, "enabled": false}]}`)},
	}
}

// tree returns what is below a folder: modes, and contents or targets, by path.
func tree(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var content []byte
		if entry.Type().IsRegular() {
			if content, err = os.ReadFile(name); err != nil {
				return err
			}
		}
		target, _ := os.Readlink(name) // only links have one
		found[strings.TrimPrefix(name, folder)] = fmt.Sprintf("%s %q %q", entry.Type(), content, target)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// harmless are the commands that a configuration can cause.
var harmless = regexp.MustCompile(`^(reboot|systemctl daemon-reload|systemctl (restart|reload) -- [\w.@][\w:.\\@-]*)$`)

// prepare puts what configurations could reach onto a machine, and a folder next to its root
// folder, to which links lead.
func (m *machine) prepare() {
	m.Helper()
	m.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
	m.put("/etc/shadow", "secret")
	for _, name := range []string{"vendor.service", "inst@.service"} {
		m.put("/usr/lib/systemd/system/"+name, "[Install]\nWantedBy=x.target\n")
	}
	m.put("/etc/systemd/system/other.service", "")
	if err := errors.Join(
		os.MkdirAll(m.dir+"/../outside/x.service", 0o700),
		os.Symlink("../../outside", m.dir+"/etc/link"), os.Symlink("../../../../outside", m.dir+"/etc/systemd/system/link"),
	); err != nil {
		m.Fatal(err)
	}
}

// Configurations may be hostile: with each text in each place one is refused, or changes what it
// names and nothing else.
func TestHostileConfigurations(t *testing.T) {
	refused, applied := 0, 0
	var before map[string]string // the same of each machine
	for name, place := range places() {
		for _, text := range append(hostile(), place.good) {
			t.Run(fmt.Sprintf("%s/%.30q", name, text), func(t *testing.T) {
				m := newMachine(t)
				m.prepare()
				if before == nil {
					before = tree(t, filepath.Dir(m.dir))
				}
				c := place.with(text)
				config, err := desired.FromObject(object("hostile", c.ignition, actions(c.rules...)))
				if err == nil {
					err = m.once(config)
				}
				switch {
				case text == place.good && err != nil:
					t.Errorf("it is not applied: %v", err)
				case err != nil:
					refused++
				default:
					applied++
				}
				after := tree(t, filepath.Dir(m.dir))
				for at := range before {
					if after[at] == "" {
						t.Errorf("%q is gone", at)
					}
				}
				for at, is := range after {
					if is == before[at] {
						continue
					}
					at, isInside := strings.CutPrefix(at, "/"+filepath.Base(m.dir))
					isOwn := strings.HasPrefix(at+"/", "/var/lib/mcd/") || at == "/var" || at == "/var/lib" || strings.HasPrefix(at+"/", "/root/")
					isNamed := err == nil && at == text || err == nil && strings.HasPrefix(at, "/etc/") && !strings.ContainsFunc(at, unicode.IsControl)
					if !isInside || !isOwn && !isNamed || strings.Contains(is, "secret") {
						t.Errorf("%q is %.200s (%v)", at, is, err)
					}
				}
				if i := slices.IndexFunc(m.commands, func(line string) bool { return !harmless.MatchString(line) }); i >= 0 {
					t.Errorf("it runs %q", m.commands[i])
				}
			})
		}
	}
	t.Logf("%d configurations were refused, and %d changed what they name", refused, applied)
}
