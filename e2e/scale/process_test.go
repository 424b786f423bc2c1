//go:build e2e

package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// start starts a program of bin, or of the PATH, until the end of the test; its log is in the scene's folder.
func (s *scene) start(program string, args ...string) {
	s.t.Helper()
	bin, err := harness.Bin()
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(bin, program)
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(program); err != nil {
			s.t.Fatalf("expected %s in %s or on the PATH: %v; make scale-e2e names what it needs", program, bin, err)
		}
	}
	log, err := os.Create(filepath.Join(s.dir, filepath.Base(program)+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	process := exec.Command(path, args...)
	process.Stdout, process.Stderr, process.Dir = log, log, s.dir
	// It ends with the test's own process, also when that is killed.
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		err := errors.Join(process.Process.Kill(), log.Close())
		_ = process.Wait() // it was killed
		if err != nil {
			s.t.Error(err)
		}
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// prometheus is a Prometheus that scrapes the lab's replicas.
type prometheus struct {
	lab     *harness.Lab
	targets string // the file with the replicas
	url     string
}

// configuration scrapes more often than an operator would, so that a run is short.
const configuration = `global: {scrape_interval: 2s}
scrape_configs:
- job_name: fleet
  file_sd_configs: [{files: [%s], refresh_interval: 2s}]
`

func (s *scene) startPrometheus() *prometheus {
	s.t.Helper()
	port := freePort(s.t)
	p := &prometheus{lab: s.lab, targets: filepath.Join(s.dir, "targets.json"), url: "http://127.0.0.1:" + port}
	file := filepath.Join(s.dir, "prometheus.yaml")
	err := errors.Join(os.WriteFile(file, fmt.Appendf(nil, configuration, p.targets), 0o600), p.scrape(s.ctx))
	if err != nil {
		s.t.Fatal(err)
	}
	s.start("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(s.dir, "tsdb"), "--web.listen-address=127.0.0.1:"+port)
	return p
}

// scrape makes Prometheus scrape the replicas that run, with the labels that a ServiceMonitor leads to.
func (p *prometheus) scrape(ctx context.Context) error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	replicas, err := p.lab.Replicas(ctx)
	if err != nil {
		return err
	}
	var groups []group
	for _, replica := range replicas {
		groups = append(groups, group{
			Targets: []string{strings.TrimPrefix(p.lab.Endpoint(replica), "http://")},
			Labels:  map[string]string{"namespace": fleet, "service": "fleet", "pod": replica},
		})
	}
	text, err := json.Marshal(groups)
	if err != nil {
		return fmt.Errorf("write the targets of Prometheus: %w", err)
	}
	// Renamed, because Prometheus may read at any time.
	return errors.Join(os.WriteFile(p.targets+".new", text, 0o600), os.Rename(p.targets+".new", p.targets))
}

// value returns the result of a query; without one it is 0, and known is false.
func (p *prometheus) value(ctx context.Context, query string) (value float64, known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?query="+url.QueryEscape(query), http.NoBody)
	if err != nil {
		return 0, false, fmt.Errorf("query Prometheus: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, false, fmt.Errorf("query Prometheus: %w", err)
	}
	defer answer.Body.Close()
	var result struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&result); err != nil {
		return 0, false, fmt.Errorf("read the answer of Prometheus (%s): %w", answer.Status, err)
	}
	if len(result.Data.Result) != 1 {
		return 0, false, nil
	}
	value, err = strconv.ParseFloat(fmt.Sprint(result.Data.Result[0].Value[1]), 64)
	return value, err == nil, err
}
