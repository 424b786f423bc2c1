package telemetry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResourceNamesReplicaAndVersionUnlessTheEnvironmentDoes(t *testing.T) {
	for env, want := range map[string]map[string]string{
		"":                        {"service.name": ServiceName, "service.instance.id": "fleet-0", "service.version": "v1.2.3"},
		"service.version=nightly": {"service.name": ServiceName, "service.instance.id": "fleet-0", "service.version": "nightly"},
	} {
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", env)
		described, err := newResource(t.Context(), "fleet-0", "v1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, a := range described.Attributes() {
			if _, wanted := want[string(a.Key)]; wanted {
				got[string(a.Key)] = a.Value.AsString()
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("OTEL_RESOURCE_ATTRIBUTES=%q (-want +got):\n%s", env, diff)
		}
	}
}
