package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2/textlogger"
)

// mcmFlag is a flag of Machine Controller Manager.
type mcmFlag struct {
	name, value string // its default there
	// ours is our default where it differs on purpose; "-" means empty.
	ours string
	// ignored reports whether the flag is accepted without a meaning.
	ignored bool
}

// mcmFlags are all flags of MCM's two binaries. Where their defaults differ, both are there.
func mcmFlags() []mcmFlag {
	return []mcmFlag{
		{name: "port", value: "10258"},
		{name: "port", value: "10259", ours: "10258"},
		{name: "address", value: "0.0.0.0"},
		{name: "cloud-provider", ignored: true},
		{name: "concurrent-syncs", value: "10", ours: "200"},
		{name: "concurrent-syncs", value: "50", ours: "200"},
		{name: "min-resync-period", value: "12h", ignored: true},
		{name: "profiling", value: "false"},
		{name: "contention-profiling", value: "false"},
		{name: "target-kubeconfig"},
		{name: "control-kubeconfig"},
		{name: "namespace", value: "default", ours: "-"},
		{name: "kube-api-content-type", value: "application/vnd.kubernetes.protobuf", ignored: true},
		{name: "kube-api-qps", value: "20", ours: "0"},
		{name: "kube-api-burst", value: "30"},
		{name: "controller-start-interval", value: "0s", ignored: true},
		{name: "leader-elect", value: "true", ignored: true},
		{name: "leader-elect-lease-duration", value: "15s", ignored: true},
		{name: "leader-elect-renew-deadline", value: "10s", ignored: true},
		{name: "leader-elect-retry-period", value: "2s", ignored: true},
		{name: "leader-elect-resource-lock", value: "leases", ignored: true},
		{name: "v", value: "0"},
		{name: "vmodule"},
		{name: "log-flush-frequency", value: "5s", ignored: true},

		{name: "safety-up", value: "2"},
		{name: "safety-down", value: "1"},
		{name: "machine-safety-overshooting-period", value: "1m"},
		{name: "autoscaler-scaledown-annotation-during-rollout", value: "true"},

		{name: "machine-creation-timeout", value: "20m"},
		{name: "machine-health-timeout", value: "10m"},
		{name: "machine-drain-timeout", value: "2h"},
		{name: "machine-inplace-update-timeout", value: "20m"},
		{name: "machine-max-evict-retries", value: "360"},
		{name: "machine-pv-detach-timeout", value: "2m"},
		{name: "machine-pv-reattach-timeout", value: "1m30s"},
		{name: "machine-preserve-timeout", value: "96h"},
		{name: "machine-safety-apiserver-statuscheck-timeout", value: "30s"},
		{name: "machine-safety-apiserver-statuscheck-period", value: "1m"},
		{name: "machine-safety-orphan-vms-period", value: "15m"},
		{name: "node-conditions", value: "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable"},
		{name: "bootstrap-token-auth-extra-groups"},
		{name: "resource-exhausted-retry", value: "10m"},
	}
}

// reportOfIgnored is the message that is logged when a flag is set that has no meaning, with the
// reason.
var reportOfIgnored = regexp.MustCompile(`"Flag has no effect" flag="--[a-z-]+" why="(replaced by|not needed:) [^"]+"`)

func TestFlagsOfMCMAreAccepted(t *testing.T) {
	known := flagsOfReplica()
	for _, f := range mcmFlags() {
		argument := "--" + f.name + "=" + f.value
		o, err := parse([]string{argument})
		if err != nil {
			t.Errorf("%s: %v", argument, err)
		}
		var logs strings.Builder
		o.reportIneffective(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&logs))))
		if ignored := reportOfIgnored.MatchString(logs.String()); ignored != f.ignored {
			t.Errorf("%s: ignored %t, and logged is %q", argument, f.ignored, logs.String())
		}
		want := f.value
		if f.ours != "" {
			want = strings.Trim(f.ours, "-")
		}
		if flag := known.Lookup(f.name); flag == nil || flag.DefValue != want {
			t.Errorf("want --%s with %q as its default, got %+v", f.name, want, flag)
		}
	}
}

// The whole command lines with which Gardener runs MCM.
func TestCommandLinesOfMCMAreAccepted(t *testing.T) {
	for _, line := range []string{
		"--concurrent-syncs=30 --kube-api-qps=150 --kube-api-burst=200 --safety-up=2 --safety-down=1 --machine-safety-overshooting-period=1m " +
			"--namespace=shoot--a--b --port=10258 --v=3",
		"--control-kubeconfig=inClusterConfig --machine-creation-timeout=20m --machine-drain-timeout=2h --machine-health-timeout=10m " +
			"--machine-safety-apiserver-statuscheck-timeout=30s --machine-safety-apiserver-statuscheck-period=1m " +
			"--machine-safety-orphan-vms-period=30m --kube-api-qps=100 --kube-api-burst=200 --leader-elect --v=3",
	} {
		if _, err := parse(strings.Fields(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestReplacementsExist(t *testing.T) {
	cmd := &cobra.Command{}
	set := new(options).declare(cmd)
	for _, f := range mcmFlags() {
		if err := cmd.ParseFlags([]string{"--" + f.name + "=" + f.value}); err != nil {
			t.Fatal(err)
		}
	}
	named := regexp.MustCompile(`--[a-z-]+`)
	for _, remark := range set.Ineffective() {
		for _, flag := range named.FindAllString(remark.Why, -1) {
			if cmd.Flags().Lookup(strings.TrimPrefix(flag, "--")) == nil {
				t.Errorf("%s names %s, which does not exist", remark.Flag, flag)
			}
		}
	}
}
