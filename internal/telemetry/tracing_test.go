package telemetry

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
)

func TestExporterIsChosenByTheEnvironment(t *testing.T) {
	for _, tc := range []struct {
		exporter, protocol, tracesProtocol string
		want                               string // what is created, or a part of the error
	}{
		{want: "*otlptracegrpc.client"},
		{protocol: "grpc", want: "*otlptracegrpc.client"},
		{protocol: "http/protobuf", want: "*otlptracehttp.client"},
		{protocol: "grpc", tracesProtocol: "http/protobuf", want: "*otlptracehttp.client"},
		{exporter: "otlp", want: "*otlptracegrpc.client"},
		{exporter: "otlp", protocol: "http/protobuf", want: "*otlptracehttp.client"},
		{exporter: "console", want: "stdout"},
		{protocol: "smoke", want: `or OTEL_EXPORTER_OTLP_PROTOCOL to be grpc or http/protobuf, got "smoke"`},
		{exporter: "smoke", want: `expected OTEL_TRACES_EXPORTER to be otlp, console or none, got "smoke"`},
	} {
		t.Setenv(exporterVariable, tc.exporter)
		t.Setenv(protocolVariable, tc.protocol)
		t.Setenv(tracesProtocolVariable, tc.tracesProtocol)
		exporter, err := newExporter(t.Context())
		got := fmt.Sprintf("%T", exporter)
		if described, ok := exporter.(logr.Marshaler); ok {
			got = fmt.Sprint(described.MarshalLog())
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%+v: got %s", tc, got)
		}
		if exporter != nil {
			if err := exporter.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestResourceNamesReplicaAndVersionUnlessTheEnvironmentDoes(t *testing.T) {
	for env, want := range map[string]map[string]string{
		"": {
			"service.name": ServiceName, "service.namespace": "fleet", "service.instance.id": "fleet-0", "service.version": "v1.2.3",
			"k8s.pod.name": "fleet-0", "k8s.namespace.name": "system",
		},
		"service.version=nightly": {"service.name": ServiceName, "service.instance.id": "fleet-0", "service.version": "nightly"},
	} {
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", env)
		described, err := newResource(t.Context(), Process{Fleet: "fleet", Replica: "fleet-0", Version: "v1.2.3", Namespace: "system"})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, a := range described.Attributes() {
			if _, desired := want[string(a.Key)]; desired {
				got[string(a.Key)] = a.Value.AsString()
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("OTEL_RESOURCE_ATTRIBUTES=%q (-want +got):\n%s", env, diff)
		}
	}
}

func TestErrorsAndLogOfTheSDKAreLogged(t *testing.T) {
	t.Cleanup(func() { LogSDK(logr.Discard()) })
	var logged []string
	LogSDK(funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	otel.Handle(errors.New("the collector refuses"))
	const want = `"OpenTelemetry failed" "error"="the collector refuses"`
	if len(logged) != 1 || !strings.Contains(logged[0], `"msg"=`+want) {
		t.Errorf("want one line with %s, got %q", want, logged)
	}
}
