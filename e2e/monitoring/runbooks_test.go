//go:build e2e

package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// checks are the commands of a runbook's section Check.
var checks = regexp.MustCompile("(?s)\n## Check\n.*?```sh\n(.*?)```")

// runbooks runs the checks of all runbooks as they are written there: each must succeed, also where it finds nothing.
func (s *scene) runbooks() {
	s.Helper()
	repository, err := harness.Repository()
	s.must(err)
	bin, err := harness.Bin()
	s.must(err)
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "runbooks", prefix+"*.md"))
	if err != nil || len(pages) == 0 {
		s.Fatalf("want runbooks, got %v, %v", pages, err)
	}
	ran := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		s.must(err)
		found := checks.FindSubmatch(text)
		if found == nil {
			s.Errorf("%s: want commands in the section Check, got none", page)
			continue
		}
		for command := range strings.Lines(string(found[1])) {
			if ran[command] {
				continue
			}
			ran[command] = true
			shell := exec.CommandContext(s.ctx, "bash", "-euo", "pipefail", "-c", command)
			shell.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.lab.Dir, "admin.kubeconfig"), "PATH="+bin+":"+os.Getenv("PATH"))
			if out, err := shell.CombinedOutput(); err != nil {
				s.Errorf("%s: %s%v\n%s", filepath.Base(page), command, err, out)
			}
		}
	}
	s.Logf("%d commands of %d runbooks work", len(ran), len(pages))
}
