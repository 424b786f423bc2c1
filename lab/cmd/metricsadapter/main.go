// Command metricsadapter serves the results of queries to Prometheus as external metrics, for the HorizontalPodAutoscaler
// controller. It stands for KEDA, or for another adapter of a cluster, in a lab: building one takes much longer than the lab
// itself. The server, its authentication and authorization are those of sigs.k8s.io/custom-metrics-apiserver.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"
)

func main() {
	klog.InitFlags(nil)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "metricsadapter:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// queryTimeout is shorter than the time for which the API server's aggregator waits.
const queryTimeout = 5 * time.Second

// run serves until ctx ends.
func run(ctx context.Context, args []string) error {
	adapter := &cmd.AdapterBase{Name: "metricsadapter"}
	flags := adapter.Flags()
	flags.AddGoFlagSet(flag.CommandLine)
	address := flags.String("prometheus", "", "URL of Prometheus (required)")
	definitions := flags.StringArray("metric", nil, "a metric and its query in PromQL, as name=query; it has one value or none (required)")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("read the flags: %w", err)
	}
	p := &prometheus{address: *address, client: &http.Client{Timeout: queryTimeout}, queries: map[string]string{}}
	for _, definition := range *definitions {
		name, query, ok := strings.Cut(definition, "=")
		if !ok {
			return fmt.Errorf("--metric: expected name=query, got %q", definition)
		}
		p.queries[name] = query
	}
	if p.address == "" || len(p.queries) == 0 {
		return fmt.Errorf("expected --prometheus and --metric, got %q and %d metrics", p.address, len(p.queries))
	}
	adapter.WithExternalMetrics(p)
	return adapter.Run(ctx)
}
