package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
)

func TestVersionIsPrintedByFlagAndCommand(t *testing.T) {
	want := buildinfo.Read().String() + "\n"
	for _, arg := range []string{"version", "--version"} {
		if out, errs, code := executed(t, nil, arg); out != want || errs != "" || code != 0 {
			t.Errorf("%s: want %q, got %q, %q, exit code %d", arg, want, out, errs, code)
		}
	}
}

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
