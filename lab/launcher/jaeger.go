package launcher

import (
	"context"
)

const (
	jaegerName   = "jaeger"
	jaegerBinary = "jaeger"
	// maxTraces bounds Jaeger's memory: a trace has some 10 kB.
	maxTraces = "50000"
)

// bootJaeger starts Jaeger, and makes the replicas send their traces there.
func (l *Launcher) bootJaeger(ctx context.Context) error {
	// All listeners, since most would listen on every interface. Those without a name here are not used in a lab.
	const query, otlp = "query.http-server.host-port", "collector.otlp.grpc.host-port"
	listeners := []string{
		query, otlp,
		"query.grpc-server.host-port", "collector.otlp.http.host-port", "collector.grpc-server.host-port", "collector.http-server.host-port",
		"admin.http.host-port", "http-server.host-port", // 6 more, over TCP
		"processor.jaeger-binary.server-host-port", "processor.jaeger-compact.server-host-port", "processor.zipkin-compact.server-host-port",
	}
	ports, err := freePorts(ctx, len(listeners))
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
	l.tracing = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + addresses[otlp], "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
	return l.bootProcess(ctx, spec, url, httpProbe(url+"/api/services"))
}
