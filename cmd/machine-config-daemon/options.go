package main

import (
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
)

// The values of --systemd and --drift.
const (
	systemdSystemctl, systemdNone = "systemctl", "none"
	driftReport, driftRepair      = "report", "repair"
)

// options are the flags.
type options struct {
	configFile, initialFile, kubeconfig, node, prefix string

	root, stateDir, bootIDFile, hookDir string
	systemd, drift                      string
	rebootCommand                       []string
	provisioned                         bool
	healthURL                           string
	healthWithin, driftInterval         time.Duration
}

func (o *options) declare(set *flags.Set) {
	g := set.Group("Desired configuration")
	g.String(&o.configFile, "config", "", "file with a RenderedMachineConfig, a MachineConfig or an Ignition config to apply once; "+
		"without it the desired configuration is that of the Node")
	g.String(&o.initialFile, "initial", "",
		"file like that of --config to apply at the first boot, before the kubelet starts: nothing is done on a machine that has a configuration")
	g.String(&o.kubeconfig, "kubeconfig", "",
		"kubeconfig with the Node's own identity, such as that of the kubelet; required without --config and --initial")
	g.String(&o.node, "node-name", "", "name of the Node; required without --config and --initial")
	g.String(&o.prefix, "annotation-prefix", string(v1alpha1.DaemonPrefix),
		"prefix of the annotations through which controllers and daemon work together")
	g.Bool(&o.provisioned, "provisioned", false, "the machine was provisioned with its first configuration: "+
		"fields of it that the daemon does not apply are taken as they are on the machine")

	g = set.Group("Machine")
	g.String(&o.root, "root", "/", "folder with the machine's file system")
	g.String(&o.stateDir, "state-dir", "/var/lib/machine-config-daemon", "folder in the machine's file system for the records of the daemon")
	g.String(&o.systemd, "systemd", systemdSystemctl,
		"how units are reloaded and restarted: systemctl, or none, which only writes their files")
	g.List(&o.rebootCommand, "reboot-command", nil, "program that reboots the machine, and its arguments; "+
		"by default systemctl,reboot with --systemd=systemctl, and none else, which ends the daemon when a reboot is needed")
	g.String(&o.bootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id",
		"file, not below --root, whose content differs from boot to boot")
	g.String(&o.hookDir, "hook-dir", "",
		"folder, not below --root, with programs that apply fields which the daemon does not apply; each has the name of its field")

	g = set.Group("Checks")
	g.String(&o.healthURL, "health-url", "", "URL that answers 200 when the machine works after a change, "+
		"such as http://127.0.0.1:10248/healthz of the kubelet; empty means that it is not checked")
	g.Duration(&o.healthWithin, "health-timeout", 5*time.Minute, "after this long without an answer a change is undone")
	g.String(&o.drift, "drift", driftReport, "what is done about files that differ from the configuration: report or repair")
	g.Duration(&o.driftInterval, "drift-interval", time.Minute, "how often files are compared with the configuration")
}

// check returns the errors of flags that the type of their value does not exclude, and sets
// defaults that depend on others.
func (o *options) check() error {
	var errs []error
	if o.systemd != systemdSystemctl && o.systemd != systemdNone {
		errs = append(errs, fmt.Errorf("--systemd: expected %s or %s, got %q", systemdSystemctl, systemdNone, o.systemd))
	}
	if o.systemd == systemdSystemctl && path.Clean(o.root) != "/" {
		errs = append(errs,
			fmt.Errorf("--systemd: expected %s with --root=%s, because systemctl acts on the system that it runs in", systemdNone, o.root))
	}
	if o.drift != driftReport && o.drift != driftRepair {
		errs = append(errs, fmt.Errorf("--drift: expected %s or %s, got %q", driftReport, driftRepair, o.drift))
	}
	if !path.IsAbs(o.stateDir) || path.Clean(o.stateDir) != o.stateDir || o.stateDir == "/" {
		errs = append(errs, fmt.Errorf("--state-dir: expected an absolute path below the root, got %q", o.stateDir))
	}
	files, follows := 0, o.kubeconfig != "" && o.node != ""
	for _, file := range []string{o.configFile, o.initialFile} {
		if file != "" {
			files++
		}
	}
	switch isNode := o.kubeconfig != "" || o.node != ""; {
	case files == 0 && !follows:
		errs = append(errs, errors.New("expected --config, or --initial, or --kubeconfig and --node-name"))
	case files > 1 || files == 1 && isNode:
		errs = append(errs, errors.New("expected --config, or --initial, or --kubeconfig and --node-name, and not several"))
	}
	if o.systemd == systemdSystemctl && len(o.rebootCommand) == 0 {
		o.rebootCommand = []string{"systemctl", "reboot"}
	}
	return errors.Join(errs...)
}
