package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	const rootCommand = "go test -race"
	for name, test := range map[string]struct {
		output                  string
		module, folder, command string
		want                    string
	}{
		"a subtest and another test": {
			output: `{"Action":"run","Package":"m/a","Test":"TestOne"}
				{"Action":"run","Package":"m/a","Test":"TestOne/sub"}
				{"Action":"output","Package":"m/a","Test":"TestOne/sub","Output":"x\n"}
				{"Action":"fail","Package":"m/a","Test":"TestOne/sub"}
				{"Action":"fail","Package":"m/a","Test":"TestOne"}
				{"Action":"run","Package":"m/a","Test":"TestTwo"}
				{"Action":"pass","Package":"m/a","Test":"TestTwo"}
				{"Action":"run","Package":"m/a","Test":"TestThree"}
				{"Action":"fail","Package":"m/a","Test":"TestThree"}
				{"Action":"fail","Package":"m/a"}
				{"Action":"pass","Package":"m/b"}`,
			module: "m", folder: ".", command: rootCommand,
			want: "  ./a TestOne/sub\n  ./a TestThree\n      go test -race -run '^(TestOne|TestThree)$' ./a\n",
		},
		"two packages of a module in a folder": {
			output: `{"Action":"fail","Package":"m/lab/a","Test":"TestOne"}
				{"Action":"fail","Package":"m/lab","Test":"TestTwo"}`,
			module: "m/lab", folder: "lab", command: "go -C lab test",
			want: "  ./lab TestTwo\n      go -C lab test -run '^(TestTwo)$' .\n  ./lab/a TestOne\n      go -C lab test -run '^(TestOne)$' ./a\n",
		},
		"a package that was not built": {
			output: `{"ImportPath":"m/a [m/a.test]","Action":"build-fail"}
				{"Action":"start","Package":"m/a"}
				{"Action":"fail","Package":"m/a","FailedBuild":"m/a [m/a.test]"}`,
			module: "m", folder: ".", command: rootCommand,
			want: "  ./a\n      go test -race ./a\n",
		},
		"a test that ran at the timeout, next to one that waited for its turn": {
			output: `{"Action":"run","Package":"m/a","Test":"TestWaits"}
				{"Action":"pause","Package":"m/a","Test":"TestWaits"}
				{"Action":"run","Package":"m/a","Test":"TestHangs"}
				{"Action":"pause","Package":"m/a","Test":"TestHangs"}
				{"Action":"cont","Package":"m/a","Test":"TestHangs"}
				{"Action":"fail","Package":"m/a"}`,
			module: "m", folder: ".", command: rootCommand,
			want: "  ./a TestHangs\n      go test -race -run '^(TestHangs)$' ./a\n",
		},
		"go test has not begun": {
			module: "m/lab", folder: "lab", command: "go -C lab test -unknown",
			want: "  go test in lab\n      go -C lab test -unknown\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			failed, err := failures(strings.NewReader(test.output))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, report(failed, test.module, test.folder, test.command)); diff != "" {
				t.Errorf("unexpected report (-want +got):\n%s", diff)
			}
		})
	}
}
