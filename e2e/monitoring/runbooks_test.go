//go:build e2e

package monitoring

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

var (
	// section is a runbook's section Check, and checks are its commands.
	section = regexp.MustCompile("(?s)\n## Check\n(.*?)\n## ")
	checks  = regexp.MustCompile("(?s)```sh\n(.*?)```")
)

// shown has what the checks of an alert's runbook show during the fault of the test that causes it.
// Alerts that are not here are about pods and logs of replicas, which are plain processes in the
// lab, or about facts that last too short.
func shown() map[string]string {
	return map[string]string{
		"MachinesDoNotJoin": "no-join", "JoinSLO": "no-join", "MachinesNotCreated": "no-quota/", "CloudErrors": "no-quota/",
		"MachinesNotDeleted": "not-deleted/", "RolloutStalled": "stalled/stalled True", "CircuitBreakerOpen": "not-ready/pool True",
		"DeletionsHeld": "hold/pool True", "ReceiptsLost": "hold", "MassDeletion": "mass", "CreatesNoMachines": "True FreezeLabel",
		"OrphansHeld": "orphans", "OrphansSuspected": "missing", "ObjectsUndecodable": "undecodable", "NamespacesRefused": "refused",
		"ObjectsUnlabeled": "refused", "KeysFail": "stuck", "DeletionSLO": "late", "AccountUnreached": "unreached",
		"TargetUnavailable": "light-1/pool", "ManyTargetsUnavailable": "light-2",
	}
}

// runbooks runs the checks of all runbooks as they are written there: each must succeed, also where
// it finds nothing.
func (s *scene) runbooks() {
	s.Helper()
	repository, err := harness.Repository()
	s.must(err)
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "runbooks", prefix+"*.md"))
	if err != nil || len(pages) == 0 {
		s.Fatalf("want runbooks, got %v, %v", pages, err)
	}
	ran := map[string]bool{}
	for _, page := range pages {
		for _, command := range s.checksOf(page) {
			if ran[command] {
				continue
			}
			ran[command] = true
			if out, err := s.check(s.ctx, command); err != nil {
				s.Errorf("%s: %s%v\n%s", filepath.Base(page), command, err, out)
			}
		}
	}
	s.Logf("%d commands of %d runbooks work", len(ran), len(pages))
}

// show waits until the checks of an alert's runbook show a text.
func (s *scene) show(alert, text string) {
	s.Helper()
	repository, err := harness.Repository()
	s.must(err)
	commands := s.checksOf(filepath.Join(repository, "docs", "runbooks", prefix+alert+".md"))
	s.eventually(fmt.Sprintf("the checks of %s show %q", alert, text), func(ctx context.Context) error {
		var all strings.Builder
		for _, command := range commands {
			out, err := s.check(ctx, command)
			if err != nil {
				return fmt.Errorf("%s: %w", command, err)
			}
			all.WriteString(out)
		}
		if !strings.Contains(all.String(), text) {
			return fmt.Errorf("they show\n%s", &all)
		}
		return nil
	})
}

// checksOf returns the commands of a runbook's section Check, without those that a person has to
// complete.
func (s *scene) checksOf(page string) (commands []string) {
	s.Helper()
	text, err := os.ReadFile(page)
	s.must(err)
	if found := section.FindSubmatch(text); found != nil {
		for _, block := range checks.FindAllSubmatch(found[1], -1) {
			for command := range strings.Lines(string(block[1])) {
				if !strings.Contains(command, "<") {
					commands = append(commands, command)
				}
			}
		}
	}
	if len(commands) == 0 {
		s.Fatalf("%s: want commands in the section Check, got none", page)
	}
	return commands
}

// check runs a command of a runbook.
func (s *scene) check(ctx context.Context, command string) (out string, err error) {
	bin, err := harness.Bin()
	if err != nil {
		return "", err
	}
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	shell.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.lab.Dir, "admin.kubeconfig"), "PATH="+bin+":"+os.Getenv("PATH"))
	content, err := shell.CombinedOutput()
	return string(content), err
}
