package serving

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
)

func TestBuildInfoMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newBuildInfo(buildinfo.Info{Version: "v1.2.3", Commit: "abc", Go: "go1.26"}))
	const want = `
# HELP mcf_build_info Always 1; the labels are the version, the commit and the version of Go that the binary was built from.
# TYPE mcf_build_info gauge
mcf_build_info{commit="abc",go_version="go1.26",version="v1.2.3"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
