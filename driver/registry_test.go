package driver

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// named is a driver that has nothing but a name.
type named struct {
	Driver
	name string
}

func TestRegistry(t *testing.T) {
	drivers := map[string]Driver{"simulated": named{name: "s"}, "AWS": named{name: "a"}}
	registry := NewRegistry(drivers)
	delete(drivers, "AWS")
	if got, err := registry.Get("AWS"); err != nil || got != Checked(named{name: "a"}) {
		t.Errorf("Get(AWS) = %v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"AWS", "simulated"}, registry.Providers()); diff != "" {
		t.Errorf("Providers (-want +got):\n%s", diff)
	}
	for name, c := range map[string]struct {
		registry *Registry
		want     []string
	}{
		"unknown": {registry, []string{`"aws"`, "AWS, simulated"}},
		"empty":   {NewRegistry(nil), []string{`"aws"`, "no driver"}},
	} {
		_, err := c.registry.Get("aws")
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", name, err, part)
			}
		}
	}
}
