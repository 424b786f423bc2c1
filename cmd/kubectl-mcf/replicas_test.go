package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// TestMetricsOfReplicas: top and version read the metrics of replicas that live at the addresses of
// --endpoints, and a replica that refuses that is left out, with the right that is missing.
func TestMetricsOfReplicas(t *testing.T) {
	cpu := 1.0
	serve := func(code int) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" || code != http.StatusOK {
				w.WriteHeader(code)
				return
			}
			cpu += 0.5
			_, _ = fmt.Fprintf(w, "mcf_build_info{commit=\"abc\",go_version=\"go1\",version=\"v0.1.0\"} 1\n"+
				"process_resident_memory_bytes 7.340032e+07\nmcf_in_flight 2\nworkqueue_depth{name=\"machine\"} 3\nprocess_cpu_seconds_total %g\n", cpu)
		}))
		t.Cleanup(server.Close)
		return server.URL
	}
	file := filepath.Join(t.TempDir(), "endpoints.json")
	content, err := json.Marshal(map[string]string{"fleet-0": serve(http.StatusOK), "fleet-1": serve(http.StatusForbidden)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s := cluster(t)
	text := transcript(t, s, "top", "--endpoints="+file) + transcript(t, s, "version", "--endpoints="+file) +
		transcript(t, s, "top", "--endpoints=nothing")
	golden.Compare(t, "testdata/metrics.txt", strings.ReplaceAll(text, file, "endpoints.json"))
}
