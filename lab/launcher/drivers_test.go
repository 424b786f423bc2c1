package launcher

import (
	"reflect"
	"testing"
)

func TestDriversOfTheOptions(t *testing.T) {
	for text, want := range map[string][]driverProcess{
		"":  nil,
		";": nil,
		"side=simulated-driver --provider=side --endpoints={cloud}; azure=bridge": {
			{"side", "simulated-driver", []string{"--provider=side", "--endpoints={cloud}"}}, {"azure", "bridge", []string{}},
		},
	} {
		got, err := (&Options{Drivers: text}).driverProcesses()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"simulated-driver", "side=", "=simulated-driver", "side= ;"} {
		if _, err := (&Options{Drivers: text}).driverProcesses(); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
