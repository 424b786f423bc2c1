package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/preload"
)

// scrapes is how many scrapes the CPU time of one is measured with.
const scrapes = 10

// measureScrapes measures what a scrape of a replica costs that owns all machines, without series
// by machine, which is the default, and with all of them. Each needs a separate lab, since flags
// are those of a lab.
func measureScrapes(ctx context.Context, dir string, machines int, s sample) error {
	for _, v := range []struct{ name, flags string }{{"scrape", ""}, {"scrape_by_machine", "--metrics-by-machine=all"}} {
		if err := measureScrape(ctx, harness.Options{Dir: filepath.Join(dir, v.name), Replicas: 1, FleetFlags: v.flags}, v.name, machines,
			s); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return nil
}

func measureScrape(ctx context.Context, options harness.Options, name string, machines int, s sample) (err error) {
	lab, err := upWithMachines(ctx, options, machines)
	if lab != nil {
		defer func() { err = errors.Join(err, lab.Down(ctx)) }()
	}
	if err != nil {
		return err
	}
	first, err := scrape(ctx, lab, machines)
	if err != nil {
		return err
	}
	last := first
	for range scrapes {
		if last, err = scrape(ctx, lab, machines); err != nil {
			return err
		}
	}
	s[name+"_mb_of_10000"] = pair{value: float64(last.plain) / 1e6}
	s[name+"_gzip_kb_of_10000"] = pair{value: float64(last.compressed) / 1e3}
	s[name+"_cpu_ms_of_10000"] = pair{value: 1e3 * (last.cpu - first.cpu) / scrapes}
	return nil
}

// upWithMachines starts a lab whose only replica owns the machines, and is at rest. A lab that is
// returned has to be stopped, also with an error.
func upWithMachines(ctx context.Context, options harness.Options, machines int) (*harness.Lab, error) {
	lab, err := harness.Up(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := lab.WaitHeld(ctx, slots); err != nil {
		return lab, err
	}
	load := preload.Load{Namespace: many, Deployments: machines / perDeployment, Machines: perDeployment}
	if _, err := standStill(ctx, lab, func() error { return addMachines(ctx, lab, load) }); err != nil {
		return lab, err
	}
	return lab, rests(ctx, lab, harness.Fleet)
}

// answer is that of one scrape.
type answer struct {
	cpu               float64 // seconds of the replica since its start
	plain, compressed int     // bytes
}

var (
	cpuTotal   = regexp.MustCompile(`(?m)^process_cpu_seconds_total (\S+)$`)
	itemsTotal = regexp.MustCompile(`(?m)^mcm_machine_items_total (\d+)(\.0)?$`)
)

// scrape scrapes the replica as Prometheus does: compressed, with exemplars. A replica that is
// suspended has no series of objects, which is an error.
func scrape(ctx context.Context, lab *harness.Lab, machines int) (a answer, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, lab.Endpoint(harness.Fleet)+"/metrics", http.NoBody)
	if err != nil {
		return a, fmt.Errorf("scrape: %w", err)
	}
	request.Header.Set("Accept-Encoding", "gzip")
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return a, fmt.Errorf("scrape: %w", err)
	}
	defer response.Body.Close()
	compressed, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return a, fmt.Errorf("scrape: expected status 200 and a body, got %s, %w", response.Status, err)
	}
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return a, fmt.Errorf("scrape: %w", err)
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return a, fmt.Errorf("scrape: %w", err)
	}
	if of := itemsTotal.FindSubmatch(text); of == nil || string(of[1]) != strconv.Itoa(machines) {
		return a, fmt.Errorf("scrape: expected the series of %d machines, got %d bytes without them", machines, len(text))
	}
	found := cpuTotal.FindSubmatch(text)
	if found == nil {
		return a, fmt.Errorf("scrape: expected process_cpu_seconds_total, got %d bytes without it", len(text))
	}
	a = answer{plain: len(text), compressed: len(compressed)}
	a.cpu, err = strconv.ParseFloat(string(found[1]), 64)
	return a, err
}
