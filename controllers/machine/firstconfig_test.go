package machine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/driver"
)

// withFirstConfig has another process run, with a source of configurations, and the class' user
// data name the configuration.
func (b *bench) withFirstConfig(placeholder bool, source func(context.Context, *v1alpha1.Machine) (map[string]string, string, error)) {
	b.Helper()
	b.end()
	if placeholder {
		b.patchSecret(`{"data":{"userData":"PDxNQUNISU5FX0NPTkZJR19OQU1FPj4="}}`) // <<MACHINE_CONFIG_NAME>>
	}
	b.firstConfig = source
	b.start()
}

// No configuration is looked for when the user data has no placeholder for it.
func TestFirstConfigIsNotReadWithoutItsPlaceholder(t *testing.T) {
	onBench(t, func(b *bench) {
		b.withFirstConfig(false, func(context.Context, *v1alpha1.Machine) (map[string]string, string, error) {
			t.Error("the configuration was looked for")
			return nil, "", errors.New("no")
		})
		b.create(withoutDeadline)
		b.becomes(v1alpha1.MachineRunning, bootTime+time.Minute)
	})
}

// A machine without a configuration says why, asks nothing of the cloud, and continues at once when
// a pool has changed.
func TestFirstConfigIsAwaited(t *testing.T) {
	onBench(t, func(b *bench) {
		problem, looks := "no MachineConfigPool refers to it", 0
		b.withFirstConfig(true, func(context.Context, *v1alpha1.Machine) (map[string]string, string, error) {
			looks++
			return map[string]string{v1alpha1.PlaceholderMachineConfigName: "rendered-p-1"}, problem, nil
		})
		b.create(withoutDeadline)
		b.pass(time.Minute)
		looked := looks
		b.pass(time.Hour)
		last := b.get().Status.LastOperation
		if last.ErrorCode != driver.FailedPrecondition.String() || !strings.Contains(last.Description, problem) ||
			len(b.cloud.Calls(driver.OpCreate)) > 0 || looks != looked {
			t.Errorf("%+v, %d requests, %d more looks", last, len(b.cloud.Calls(driver.OpCreate)), looks-looked)
		}
		b.process.FirstConfigChanged("other")
		b.pass(time.Second)
		if looks != looked {
			t.Error("a change in another namespace wakes the machine")
		}
		b.process.FirstConfigChanged("") // and it is not better
		b.pass(time.Second)
		problem = ""
		b.process.FirstConfigChanged("")
		b.becomes(v1alpha1.MachineRunning, bootTime+time.Second)
		if got := b.cloud.Calls(driver.OpCreate)[0].UserData; got != "rendered-p-1" {
			t.Errorf("it boots with %q", got)
		}
		if got := len(b.process.configs.take("")); got > 0 {
			t.Errorf("%d machines still wait", got)
		}
	})
}

func TestFirstConfigWithoutMachineConfiguration(t *testing.T) {
	onBench(t, func(b *bench) {
		b.withFirstConfig(true, nil)
		b.create(withoutDeadline)
		b.pass(time.Minute)
		if last := b.get().Status.LastOperation; !strings.Contains(last.Description, noMachineConfiguration) {
			t.Errorf("%+v", last)
		}
	})
}
