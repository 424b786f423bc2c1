package launcher

import (
	"context"
	"errors"
	"fmt"
)

const (
	jaegerName   = "jaeger"
	jaegerBinary = "jaeger"
	// maxTraces bounds Jaeger's memory: a trace has some 10 kB.
	maxTraces = "50000"
)

// bootJaeger starts Jaeger, and makes the replicas send their traces there.
func (l *Launcher) bootJaeger(ctx context.Context) error {
	// All listeners, since most would listen on every interface. Those without a name here are not
	// used in a lab.
	const query, otlp = "query.http-server.host-port", "collector.otlp.grpc.host-port"
	listeners := []string{
		query, otlp,
		"query.grpc-server.host-port", "collector.otlp.http.host-port", "collector.grpc-server.host-port", "collector.http-server.host-port",
		"admin.http.host-port", "http-server.host-port", // 6 more, over TCP
		"processor.jaeger-binary.server-host-port", "processor.jaeger-compact.server-host-port", "processor.zipkin-compact.server-host-port",
	}
	ports, err := l.ports.take(ctx, len(listeners))
	if err != nil {
		return err
	}
	addresses := map[string]string{}
	args := []string{"--log-level=warn", "--metrics-backend=none", "--memory.max-traces=" + maxTraces}
	for i, listener := range listeners {
		addresses[listener] = loopback(ports[i])
		args = append(args, "--"+listener+"="+addresses[listener])
	}
	spec := l.spec(jaegerName, jaegerBinary, args)
	spec.Env = []string{"SPAN_STORAGE_TYPE=memory"}
	url := "http://" + addresses[query]
	l.tracing = []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + addresses[otlp], "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_TRACES_SAMPLER=traceidratio", fmt.Sprintf("OTEL_TRACES_SAMPLER_ARG=%g", l.options.TraceRatio),
	}
	return l.bootProcess(ctx, spec, url, httpProbe(url+"/api/services"))
}

// Jaeger returns the URL of the query API of a lab's Jaeger. Errors: no lab runs, or one without
// tracing.
func Jaeger(folder Folder) (string, error) {
	var endpoints map[string]string
	if err := folder.readJSON(endpointsFile, &endpoints); err != nil {
		return "", fmt.Errorf("find the lab's Jaeger: %w", err)
	}
	url := endpoints[jaegerName]
	if url == "" {
		return "", errors.New("find the lab's Jaeger: the lab has none; start one with `make lab-up TRACING=1`")
	}
	return url, nil
}
