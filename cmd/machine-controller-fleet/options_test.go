package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/machine-controller-fleet/machine-controller-fleet/controllers/machine/lifecycle"
)

func TestDefaultsAreThoseOfMCM(t *testing.T) {
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	limits := o.Limits()
	if limits.CreationTimeout != 20*time.Minute || limits.ResourceExhaustedRetry != 10*time.Minute || len(limits.NodeConditions) != 4 {
		t.Errorf("limits %+v", limits)
	}
	if o.server.Port != 10258 || o.Namespace != "" {
		t.Errorf("port %d, namespace %q", o.server.Port, o.Namespace)
	}
}

func TestZeroRetryMeansTheDefault(t *testing.T) {
	o, err := parse([]string{"--resource-exhausted-retry=0"})
	if err != nil {
		t.Fatal(err)
	}
	if got := o.Limits().ResourceExhaustedRetry; got != 10*time.Minute {
		t.Errorf("retry after %s", got)
	}
}

func TestWrongFlagsAreNamed(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--address=nowhere", "--address: expected an IP address, got \"nowhere\""},
		{"--port=0", "--port: expected more than 0, got \"0\"; correct it, or leave it out for 10258"},
		{"--port=70000", "--port: expected 1 to 65535, got 70000"},
		{"--port=http", "--port: expected a whole number below 2^63 in decimal digits, without leading zeros, got \"http\""},
		{"--concurrent-syncs=0", "--concurrent-syncs: expected more than 0"},
		{"--kube-api-qps=-1", "--kube-api-qps: expected 0 or more"},
		{"--kube-api-burst=-1", "--kube-api-burst: expected 0 or more"},
		{"--tls-cert-file=/tls.crt", "--tls-cert-file, --tls-private-key-file: expected both or neither, got \"/tls.crt\" and \"\""},
		{"--tls-self-signed --tls-cert-file=/a --tls-private-key-file=/b", "--tls-self-signed: expected none with --tls-cert-file"},
		{"--tls-private-key-file=/tls.key", "--tls-cert-file, --tls-private-key-file: expected both or neither"},
		{"--contention-profiling", "--contention-profiling: expected --profiling with it"},
		{"--target-kubeconfig=none", "--control-kubeconfig: expected a file or inClusterConfig"},
		{"--namespace-switch=lease", "--namespace-switch: expected none or deployment, got \"lease\""},
		{"--namespace-switch=deployment --machine-configuration", "--machine-configuration: expected none with --namespace-switch=deployment"},
		{"--machine-creation-timeout=-1s", "--machine-creation-timeout: expected 0 or more, got \"-1s\"; correct it, or leave it out for 20m"},
		{"--machine-creation-timeout=20", "--machine-creation-timeout: expected a duration such as 30s, 10m or 1h30m, got \"20\""},
		{"--machine-drain-timeout=-1s", "--machine-drain-timeout: expected 0 or more"},
		{"--machine-max-evict-retries=-1", "--machine-max-evict-retries: expected 0 or more"},
		{"--machine-safety-apiserver-statuscheck-period=10s", "statuscheck-period: expected at least 30s"},
		{"--safety-max-deletions-per-hour=501", "--safety-max-deletions-per-hour: expected at most 500, got 501"},
		{"--safety-max-orphan-deletions=501", "--safety-max-orphan-deletions: expected at most 500, got 501"},
		{"--machine-safety-orphan-vms-quarantine=-1s", "--machine-safety-orphan-vms-quarantine: expected 0 or more"},
		{"--safety-up=-1", "--safety-up: expected 0 or more"},
		{"--resource-exhausted-retry=-1s", "--resource-exhausted-retry: expected 0 or more"},
		{"--bootstrap-token-auth-extra-groups=system:masters", "--bootstrap-token-auth-extra-groups: expected groups that match"},
		{"--machine-health-timeout=-1s", "--machine-health-timeout: expected 0 or more"},
		{"--disruption-budget=0", "--disruption-budget: expected a number of at least 1"},
		{"--disruption-budget=101%", "--disruption-budget: expected a number of at least 1"},
		{"--disruption-budget=many", "--disruption-budget: expected a number of at least 1"},
		{"--circuit-breaker-not-ready=0", "--circuit-breaker-not-ready: expected more than 0"},
		{"--circuit-breaker-percent=101", "the percentage that opens a circuit breaker: expected 1 to 100, got 101"},
		{"--circuit-breaker-close-percent=51", "the percentage that closes a circuit breaker: expected 1 to the one that opens it (50)"},
		{"--circuit-breaker-close-after=-1s", "--circuit-breaker-close-after: expected 0 or more"},
		{"--slots=0", "--slots"},
		{"--slots=5000", "--slots"},
		{"--shard-by=weather", "--shard-by"},
		{"--namespace-selector=a==b==c", "--namespace-selector: expected a label selector such as fleet=canary, got \"a==b==c\""},
		{"--namespace-selector=a=b --namespace=c", "--namespace-selector: expected none with --namespace"},
		{"--namespace-selector=a=b --shard-by=deployment", "--shard-by: expected namespace with --namespace-selector, got \"deployment\""},
		{"--capacity=0", "--capacity: expected more than 0"},
		{"--fleet-name=", "--fleet-name: expected a name"},
		{"--lease-fence=15s", "--lease-fence"},
		{"--lease-take-over=5s", "--lease-take-over"},
		{"--leader-elect=perhaps", "--leader-elect: expected true or false, got \"perhaps\""},
		{"--machine-drain-timeuot=2h", "there is no flag --machine-drain-timeuot; the nearest is --machine-drain-timeout"},
		{"word", "expected flags only, got [\"word\"]"},
		{"--driver-socket=/run/azure.sock", "--driver-socket: expected PROVIDER=PATH, got \"/run/azure.sock\""},
		{"--driver-socket=azure=", "--driver-socket: expected PROVIDER=PATH, got \"azure=\""},
		{"--driver-socket==/run/azure.sock", "--driver-socket: expected PROVIDER=PATH"},
		{"--driver-socket=azure=azure.sock", "--driver-socket: expected the absolute path of a unix socket, got \"azure.sock\""},
		{
			"--driver-socket=azure=/" + strings.Repeat("long/", 25),
			"--driver-socket: expected the path of a unix socket of at most 103 bytes, got 126",
		},
		{"--driver-socket=azure=/a,azure=/b", "--driver-socket: expected one driver for a provider, got a second one for \"azure\""},
		{"--port=0 --capacity=0 --address=nowhere", "--port"},
	} {
		if _, err := parse(strings.Fields(tc.args)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: want an error with %s, got: %v", tc.args, tc.want, err)
		}
	}
}

// MCM accepts 0 for each of its durations and limits, and so existing command lines may have it.
func TestZeroIsAcceptedWhereMCMAcceptsIt(t *testing.T) {
	var line []string
	for _, f := range mcmFlags() {
		_, notADuration := time.ParseDuration(f.value)
		isLimit := f.name == "machine-max-evict-retries" || f.name == "safety-up" || f.name == "safety-down"
		if notADuration == nil && f.value != "0" || isLimit {
			line = append(line, "--"+f.name+"=0")
		}
	}
	o, err := parse(line)
	if err != nil {
		t.Fatal(err)
	}
	want := lifecycle.Limits{ResourceExhaustedRetry: 10 * time.Minute, NodeConditions: o.Health.NodeConditions}
	want.Drain.VolumeParallelism = 4
	if diff := cmp.Diff(want, o.Limits()); diff != "" || len(line) != 21 {
		t.Errorf("%d flags are 0, and the limits are (-want +got):\n%s", len(line), diff)
	}
}

func TestNamesFromTheEnvironment(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "from-the-pod")
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if hostname, _ := os.Hostname(); o.Name != hostname || o.Fleet.Namespace != "from-the-pod" {
		t.Errorf("replica %q, namespace %q", o.Name, o.Fleet.Namespace)
	}
	t.Setenv("POD_NAMESPACE", "")
	o, err = parse([]string{"--replica-name=fleet-0"})
	if err != nil || o.Name != "fleet-0" || o.Fleet.Namespace != defaultFleetNamespace {
		t.Errorf("replica %q, namespace %q, %v", o.Name, o.Fleet.Namespace, err)
	}
}

func TestMachineConfigFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--machine-config-templates=a":                "--machine-config-templates: expected NAMESPACE/NAME",
		"--machine-config-templates=a/b/c":            "--machine-config-templates: expected NAMESPACE/NAME",
		"--machine-config-templates=a/b":              "",
		"--machine-config-templates=/etc/templates":   "",
		"--machine-config-annotation-prefix=":         "--machine-config-annotation-prefix: expected",
		"--machine-config-annotation-prefix=a.org/b":  "--machine-config-annotation-prefix: expected",
		"--machine-config-annotation-prefix=some.org": "",
	} {
		_, err := parse([]string{"--control-kubeconfig=control", "--target-kubeconfig=target", flag})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

func TestFlagzShowsAllFlags(t *testing.T) {
	o, err := parse([]string{"--control-kubeconfig=control", "--slots=16", "--v=3"})
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, row := range o.values {
		shown[row.Name] = row.Value
	}
	for name, want := range map[string]string{"v": "3", "slots": "16", "logging-format": "text", "disruption-budget": "1"} {
		if shown[name] != want {
			t.Errorf("flag %s is %q, want %q", name, shown[name], want)
		}
	}
	if len(shown) < 40 {
		t.Error(fmt.Sprint(len(shown), " flags are shown"))
	}
}
