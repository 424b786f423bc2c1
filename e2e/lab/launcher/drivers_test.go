package launcher

import (
	"reflect"
	"testing"
)

func TestDriversOfTheOptions(t *testing.T) {
	for text, want := range map[string][]command{
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

func TestPlacesInFlagsOfDrivers(t *testing.T) {
	l := &Launcher{
		options: Options{Dir: "/lab"}, endpoints: map[string]string{cloudsimName: "http://sim", cloudPrefix + "azure": "https://azure"},
	}
	const flag, want = "--a={cloud},{azure},{azure.pem},{other}", "--a=http://sim,https://azure,/lab/clouds/azure.pem,{other}"
	if got := l.fillIn(flag); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
