// Command compiletimes prints what builds have compiled, from the graphs that `go build
// -debug-actiongraph=FILE` writes: for each group of packages their number and the CPU seconds of
// the compiler, a column for each file. What came from the cache is not in it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"text/tabwriter"
)

// group is of packages whose path matches its pattern, and no earlier one.
type group struct {
	name    string
	pattern *regexp.Regexp
}

func (g group) contains(a action) bool { return g.pattern.MatchString(a.Package) }

var groups = []group{
	{"this repository", regexp.MustCompile(`^github\.com/machine-controller-fleet/`)},
	{"standard library", regexp.MustCompile(`^[^./]+(/|$)`)},
	{"scheduler", regexp.MustCompile(`^k8s\.io/(kubernetes/(pkg|cmd)/(kube-)?scheduler|kube-scheduler)`)},
	{"kubelet", regexp.MustCompile(`^k8s\.io/(kubernetes/(pkg|cmd)/kubelet|kubelet|cri-)|cadvisor|containerd|opencontainers`)},
	{
		"controller manager",
		regexp.MustCompile(`^k8s\.io/(kubernetes/(pkg/controller|cmd/kube-controller-manager)|cloud-provider|controller-manager)`),
	},
	{"volume plug-ins", regexp.MustCompile(`^k8s\.io/(kubernetes/pkg/volume|csi-|mount-utils)`)},
	{"kubectl", regexp.MustCompile(`^(k8s\.io/(kubectl|cli-runtime)|sigs\.k8s\.io/kustomize)`)},
	{
		"API server",
		regexp.MustCompile(`^k8s\.io/(kubernetes|apiserver|apiextensions-apiserver|kube-aggregator|kms|pod-security-admission)/|cel-go`),
	},
	{"etcd", regexp.MustCompile(`^go\.etcd\.io/`)},
	{"client-go, APIs", regexp.MustCompile(`^(sigs\.)?k8s\.io/`)},
	{"telemetry, gRPC", regexp.MustCompile(`^(go\.opentelemetry\.io|google\.golang\.org)/`)},
	{"others", regexp.MustCompile(``)},
}

// action is a step of a build. Times are in nanoseconds.
type action struct {
	Mode, Package   string
	Cmd             []string
	CmdUser, CmdSys int64
}

// cost is that of a group.
type cost struct {
	packages int
	seconds  float64
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: compiletimes FILE... (of go build -debug-actiongraph=FILE)")
		os.Exit(2)
	}
	var columns []map[string]cost
	for _, name := range os.Args[1:] {
		column, err := read(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, "compiletimes:", err)
			os.Exit(1)
		}
		columns = append(columns, column)
	}
	if err := write(os.Stdout, os.Args[1:], columns); err != nil {
		fmt.Fprintln(os.Stderr, "compiletimes:", err)
		os.Exit(1)
	}
}

// read returns the costs in a graph by group.
func read(name string) (map[string]cost, error) {
	content, err := os.ReadFile(name) //nolint:gosec // who runs the command names the files
	if err != nil {
		return nil, err
	}
	var actions []action
	if err := json.Unmarshal(content, &actions); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	costs := map[string]cost{}
	for _, a := range actions {
		if len(a.Cmd) == 0 {
			continue
		}
		row := "linking"
		if a.Mode != "link" {
			row = groups[slices.IndexFunc(groups, func(g group) bool { return g.contains(a) })].name
		}
		for _, sum := range []string{row, "all"} {
			c := costs[sum]
			costs[sum] = cost{c.packages + 1, c.seconds + float64(a.CmdUser+a.CmdSys)/1e9}
		}
	}
	return costs, nil
}

// write prints a row for each group.
func write(out io.Writer, names []string, columns []map[string]cost) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range names {
		fmt.Fprintf(table, "\t%s", filepath.Base(name))
	}
	fmt.Fprintln(table, "\t")
	rows := []string{"all"}
	for _, g := range groups {
		rows = append(rows, g.name)
	}
	for _, row := range append(rows, "linking") {
		fmt.Fprint(table, row)
		for _, column := range columns {
			fmt.Fprintf(table, "\t%.0f s (%d)", column[row].seconds, column[row].packages)
		}
		fmt.Fprintln(table, "\t")
	}
	return table.Flush()
}
