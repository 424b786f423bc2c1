package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestDefaultsAreThoseOfMCM(t *testing.T) {
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	limits := o.limits()
	if limits.CreationTimeout != 20*time.Minute || limits.ResourceExhaustedRetry != 10*time.Minute || len(limits.NodeConditions) != 4 {
		t.Errorf("limits %+v", limits)
	}
	if o.port != 10258 || o.namespace != "" {
		t.Errorf("port %d, namespace %q", o.port, o.namespace)
	}
}

func TestZeroRetryMeansTheDefault(t *testing.T) {
	o, err := parse([]string{"--resource-exhausted-retry=0"})
	if err != nil {
		t.Fatal(err)
	}
	if got := o.limits().ResourceExhaustedRetry; got != 10*time.Minute {
		t.Errorf("retry after %s", got)
	}
}

func TestWrongFlagsAreNamed(t *testing.T) {
	for _, tc := range []struct{ flag, want string }{
		{"--address=nowhere", "--address"},
		{"--port=0", "--port"},
		{"--concurrent-syncs=0", "--concurrent-syncs"},
		{"--kube-api-qps=-1", "--kube-api-qps"},
		{"--machine-creation-timeout=0", "--machine-creation-timeout"},
		{"--resource-exhausted-retry=-1s", "--resource-exhausted-retry"},
		{"--slots=0", "--slots"},
		{"--shard-by=weather", "--shard-by"},
		{"--capacity=0", "--capacity"},
		{"--fleet-name=", "--fleet-name"},
		{"--lease-fence=15s", "--lease-fence"},
		{"--lease-take-over=5s", "--lease-take-over"},
		{"--no-such-flag", "no-such-flag"},
		{"word", "word"},
	} {
		if _, err := parse([]string{tc.flag}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v does not name %s", tc.flag, err, tc.want)
		}
	}
	if _, err := parse([]string{"--help"}); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}
