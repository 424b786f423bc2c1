package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

func TestHelp(t *testing.T) {
	for file, arg := range map[string]string{
		"testdata/help.txt": "--help", "testdata/check-help.txt": "check", "testdata/leave-help.txt": "leave",
	} {
		help, errs, code := executed(t, nil, arg, "--help")
		if code != 0 || errs != "" {
			t.Errorf("%s: exit code %d, %q", file, code, errs)
		}
		golden.Compare(t, file, help)
	}
}

const referenceHead = `# Flags

Generated from the code by ` + "`go test ./cmd/machine-controller-fleet -update`" + `; do not edit. What ` + "`--help`" + ` prints, as
tables. How to set flags in a file, and which defaults differ from Machine Controller Manager's, is in [configure](operations/configure.md).

`

func TestReference(t *testing.T) {
	of := func(command string, declare func(*cobra.Command) *flags.Set) string {
		return strings.Replace(declare(&cobra.Command{}).Markdown(), "## Flags", "## Flags of `machine-controller-fleet "+command+"`", 1)
	}
	golden.Compare(t, "../../docs/flags.md", referenceHead+new(options).declare(&cobra.Command{}).Markdown()+
		"\n"+of(checkCommand, new(checkOptions).declare)+"\n"+of(leaveCommand, new(leaveOptions).declare))
}

// The chart's flags are the binary's: those of its template, and those that its examples add.
func TestChartPassesFlagsThatExist(t *testing.T) {
	const chart = "../../charts/machine-controller-fleet/"
	test, err := os.ReadFile(chart + "templates/tests/check.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^ *- --([a-z-]+)=`).FindAllStringSubmatch(string(test), -1) {
		if newCheckCommand().Flags().Lookup(found[1]) == nil {
			t.Errorf("the chart's test passes --%s, which does not exist", found[1])
		}
	}
	template, err := os.ReadFile(chart + "templates/_args.tpl")
	if err != nil {
		t.Fatal(err)
	}
	passed := regexp.MustCompile(`(?m)^- \{name: ([a-z-]+),`).FindAllStringSubmatch(string(template), -1)
	if len(passed) < 10 {
		t.Fatalf("the template passes %d flags; want at least 10, or another way to find them", len(passed))
	}
	known := flagsOfReplica()
	for _, found := range passed {
		if known.Lookup(found[1]) == nil {
			t.Errorf("the chart passes --%s, which does not exist", found[1])
		}
	}
	examples, err := filepath.Glob(chart + "ci/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples {
		var values struct{ ExtraFlags []string }
		content, err := os.ReadFile(example)
		if err == nil {
			err = yaml.Unmarshal(content, &values)
		}
		if err == nil {
			_, err = parse(values.ExtraFlags)
		}
		if err != nil {
			t.Errorf("%s: %v", example, err)
		}
	}
}
