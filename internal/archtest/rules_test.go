package archtest

import (
	"strings"
	"testing"
)

// rule is one sentence that holds for all Go code of the repository.
type rule struct {
	name  string
	check func(files []goFile) (findings []string)
	// bad are pieces of code that break the rule, each once.
	bad []snippet
}

// snippet is a file that does not exist.
type snippet struct{ path, source string }

func rules() []rule {
	return []rule{
		{"controllers are independent", controllersStandAlone, []snippet{
			{"controllers/machine/a.go", importing("machine", module+"/controllers/machineset")},
			{"controllers/machine/a.go", importing("machine", module+"/shard/assignment")},
		}},
		{"imports point one way", importsPointOneWay, []snippet{
			{"shard/slotlabel/a.go", importing("slotlabel", module+"/controllers/machine")},
			{"membership/a.go", importing("membership", module+"/shard/assignment")},
			{"shard/fence/a.go", importing("fence", module+"/shard/session")},
			{"controllers/machine/credentials/a.go", importing("credentials", module+"/controllers/machine")},
			{"controllers/machine/cloud/a.go", importing("cloud", module+"/controllers/machine/lifecycle")},
			{"controllers/machine/credentials/a.go", importing("credentials", module+"/controllers/machine/nodesync")},
			{"internal/runner/a.go", importing("runner", module+"/controllers/machine")},
			{"internal/runner/a.go", importing("runner", module+"/membership/leases")},
		}},
		{"no arrow points up", noArrowPointsUp, []snippet{
			{"internal/runner/a.go", importing("runner", module+"/shard/fence")},
			{"shard/fence/a.go", importing("fence", module+"/internal/replica")},
			{"driver/plugin/a.go", importing("plugin", module+"/internal/patch")},
			{"controllers/node/a.go", importing("node", module+"/cmd/machine-controller-fleet")},
		}},
		{"rooms are in no circle", noRoomsInCircles, nil}, // TestRoomsInACircleAreFound
		{"runners are named in one place", runnersAreNamedInOnePlace, []snippet{
			{"controllers/machine/a.go", "package machine\nvar c = runner.Config[string]{Name: \"mine\"}\n"},
		}},
		{"binaries are not imported", binariesAreLeaves, []snippet{
			{"internal/target/a.go", importing("target", module+"/cmd/machine-controller-fleet")},
			{"internal/serving/a.go", importing("serving", module+"/internal/replica")},
		}},
		{"product code imports neither lab nor e2e", productStandsAlone, []snippet{
			{"driver/a.go", importing("driver", module+"/e2e/lab/cloudsim")},
			{"cmd/x/a.go", importing("main", module+"/e2e")},
		}},
		{"the product links no cloud", productLinksNoCloud, []snippet{
			{"internal/replica/a.go", importing("replica", module+"/driver/aws")},
			{"driver/plugin/a.go", importing("plugin", module+"/driver/httpclient")},
		}},
		{"only the runner has queues", onlyRunnerQueues, []snippet{
			{"controllers/machine/a.go", importing("machine", "k8s.io/client-go/util/workqueue")},
		}},
		{"clients are created with the fence below them", clientsAreFenced, []snippet{
			{"controllers/machine/a.go", "package machine\nvar c = kubernetes.NewForConfigOrDie(nil)\n"},
			{"internal/target/a.go", "package target\nfunc f() { rest.InClusterConfig() }\n"},
			{"internal/target/a.go", "package target\nfunc f() { kubeclient.New(config) }\n"},
		}},
		{"clients reject answers of others than API servers", answersAreChecked, []snippet{
			{"cmd/x/a.go", "package main\nfunc f() { clientcmd.BuildConfigFromFlags(\"\", file) }\n"},
			{"cmd/x/a.go", "package main\nfunc f() { rest.InClusterConfig(); other.Check(config) }\n"},
		}},
		{"lists are paged", listsArePaged, []snippet{
			{"controllers/machine/a.go", "package machine\nfunc f() { c.Machines(ns).List(ctx, metav1.ListOptions{}) }\n"},
			{"controllers/machine/a.go", "package machine\nfunc f() { c.Machines(ns).List(ctx, metav1.ListOptions{LabelSelector: s}) }\n"},
			{"controllers/machine/a.go", "package machine\nfunc f() { c.Machines(ns).List(ctx, selecting(name)) }\n"},
			{"controllers/machine/a.go", "package machine\nfunc f() {\n\toptions := metav1.ListOptions{}\n\tc.Machines(ns).List(ctx, options)\n}\n"},
		}},
		{"configurations are validated", configsAreValidated, []snippet{
			{"controllers/machine/a.go", "package machine\ntype Config struct{}\nfunc New(c Config) error { return nil }\n"},
			{
				"controllers/machine/a.go",
				"package machine\ntype Config struct{}\nfunc (c Config) Validate() error { return nil }\nfunc New(c Config) error { return nil }\n",
			},
		}},
		{"pure packages import little", pureImports, []snippet{
			{"controllers/machine/lifecycle/a.go", importing("lifecycle", "os")},
			{"controllers/machine/lifecycle/a.go", importing("lifecycle", "k8s.io/klog/v2")},
			{"controllers/machine/lifecycle/a.go", importing("lifecycle", module+"/driver/plugin")},
		}},
		{"pure signatures take values", pureSignatures, []snippet{
			{"controllers/machine/lifecycle/a.go", "package lifecycle\nfunc Decide(now func() time.Time) {}\n"},
			{"controllers/machine/lifecycle/a.go", "package lifecycle\ntype World struct { Clock clock.PassiveClock }\n"},
		}},
		{"names of the API are written once", apiNamesWrittenOnce, []snippet{
			{"internal/target/a.go", "package target\nconst label = \"node.machine.sapcloud.io/preserve\"\n"},
			{"internal/target/a.go", "package target\nconst label = v1alpha1.FleetDomain + \"new\"\n"},
		}},
		{"nothing is decided on the text of a message", noMeaningInMessages, []snippet{
			{"internal/target/a.go", "package target\nfunc f(err error) bool { return strings.Contains(err.Error(), \"gone\") }\n"},
			{"internal/target/a.go", "package target\nfunc f(o op) bool { return strings.HasPrefix(o.Description, \"Creating\") }\n"},
		}},
		{"Events are emitted in one way", eventsReportedInOneWay, []snippet{
			{
				"controllers/machine/a.go", "package machine\nfunc f() { recorder.Eventf(m, nil, \"Warning\", \"Reason\", \"Reconcile\", \"text\") }\n",
			},
		}},
		{"deletions have receipts", deletionsHaveReceipts, []snippet{
			{"controllers/machine/a.go", "package machine\nfunc f() { c.Machines(ns).Delete(ctx, name, o) }\n"},
			{"controllers/node/a.go", "package node\nfunc f() { c.Client.CoreV1().Nodes().Delete(ctx, name, o) }\n"},
			{"controllers/machine/a.go", "package machine\nfunc f() { d.DeleteMachine(ctx, request) }\n"},
			{"controllers/orphans/a.go", "package orphans\nfunc f() { sweeper.DeleteResource(ctx, request) }\n"},
			{"controllers/machine/a.go", "package machine\nfunc f() { c.Machines(ns).DeleteCollection(ctx, o, l) }\n"},
			{"controllers/machine/a.go", "package machine\nfunc f() { c.tokens.Delete(ctx, e, d, func() { c.Nodes().Delete(ctx, name, o) }) }\n"},
		}},
		{"golden files have one flag", goldenFilesHaveOneFlag, []snippet{
			{"internal/target/a_test.go", "package target\nvar rewrite = flag.Bool(\"rewrite\", false, \"write testdata\")\n"},
		}},
		{"files are short", filesAreShort, []snippet{
			{"internal/target/a.go", "package target\n" + strings.Repeat("// more\n", maxFileLines)},
		}},
		{"comments are wrapped", commentsAreWrapped, []snippet{
			{"internal/target/a.go", "package target\n// F " + strings.Repeat("x ", maxCommentColumns) + "\n"},
		}},
		{"functions are short", functionsAreShort, []snippet{
			{"internal/target/a.go", "package target\nfunc f() {" + strings.Repeat("\n", maxFunctionLines) + "}\n"},
		}},
		{"names of packages are specific", packagesHaveNames, []snippet{
			{"internal/target/util/a.go", "package util\n"},
		}},
		{"comments and texts are plain", plainWords, []snippet{
			{"internal/target/a.go", "package target\n// nobody waits\nfunc F() {}\n"},
			{"internal/target/a.go", "package target\nconst text = \"the user is told\"\n"},
		}},
		{"code uses the field's terms", termsOfTheField, []snippet{
			{"internal/target/a.go", "package target\n// F works whatever happens\nfunc F() {}\n"},
			{"internal/target/a.go", "package target\nconst text = \"a comment beside it\"\n"},
			{"internal/target/a.go", "package target\nvar rivals = 1\n"},
			{"e2e/a_test.go", "package e2e\nfunc TestStrangersWait(t *testing.T) {}\n"},
			{"e2e/lab/a.go", "package lab\n// start has a lab of its own.\nfunc start() {}\n"},
			{"hack/a.go", "package hack\n// The page is made by a test.\n"},
			{"driver/a.go", "package driver\n// F makes a request.\nfunc F() {}\n"},
			{"driver/a.go", "package driver\nconst listPatience = 1\n"},
			{"shard/a.go", "package shard\nconst text = \"the session gives up\"\n"},
			{"shard/a.go", "package shard\n// State is what was observed.\ntype State struct{}\n"},
		}},
		{"tests are named alike", testsAreNamedAlike, []snippet{
			{"internal/target/a_test.go", "package target\nfunc TestRead_Fails(t *testing.T) {}\n"},
		}},
		{"packages are used", packagesAreUsed, []snippet{
			{"internal/unused/a.go", "package unused\nfunc F() {}\n"},
		}},
		{"packages have a comment", packagesHaveComments, []snippet{
			{"internal/target/a.go", "package target\n"},
		}},
	}
}

// importing is the source of a file with one import.
func importing(pkg, imported string) string {
	return "package " + pkg + "\nimport _ \"" + imported + "\"\n"
}

func TestRules(t *testing.T) {
	files := load(t)
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			for _, finding := range r.check(files) {
				t.Error(finding)
			}
		})
	}
}

func TestRulesFindWhatBreaksThem(t *testing.T) {
	for _, r := range rules() {
		for _, bad := range r.bad {
			t.Run(r.name, func(t *testing.T) {
				file, err := parse(bad.path, []byte(bad.source))
				if err != nil {
					t.Fatal(err)
				}
				if findings := r.check([]goFile{file}); len(findings) != 1 {
					t.Errorf("want one finding in %q, got %q", bad.source, findings)
				}
			})
		}
	}
}
