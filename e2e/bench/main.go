package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// settings of the cloud during the measurements; the figures of MCM that we compare with were taken with the same.
const settings = `{"latency":{"CreateInstance":{"mean":"200ms","spread":"0s"},"DeleteInstance":{"mean":"200ms","spread":"0s"}},"bootTime":{"mean":"3s","spread":"0s"},"stopTime":{"mean":"0s","spread":"0s"}}`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir := flag.String("lab-dir", ".lab", "`folder` of the lab; one that does not run is started, and stopped at the end")
	runs := flag.Int("runs", 3, "`number` of runs, of which the median counts")
	flag.Parse()
	missed, err := bench(ctx, *dir, *runs)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	if err != nil || missed {
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func bench(ctx context.Context, dir string, runs int) (missed bool, err error) {
	lab, err := harness.Open(ctx, dir)
	if err != nil {
		fmt.Println("Starting a lab in", dir)
		lab, err = harness.Up(ctx, harness.Options{Dir: dir})
		if err == nil {
			defer func() {
				if down := lab.Down(ctx); err == nil {
					err = down
				}
			}()
		}
	}
	if err != nil {
		return false, err
	}
	if err := lab.Cloud.Set(ctx, settings); err != nil {
		return false, err
	}
	var measured []sample
	for run := range runs {
		fmt.Printf("run %d of %d: the fleet", run+1, runs)
		s, err := measureFleet(ctx, lab, fmt.Sprintf("bench-%d-%d", os.Getpid(), run))
		if err != nil {
			return false, err
		}
		fmt.Printf(" (%.2f s, %.2f s), the floor", s["create_100_seconds"].value, s["delete_100_seconds"].value)
		if err := measureFloor(ctx, lab, fmt.Sprintf("floor-%d-%d", os.Getpid(), run), s); err != nil {
			return false, err
		}
		fmt.Printf(" (%.2f s, %.2f s)\n", s["create_100_seconds"].floor, s["delete_100_seconds"].floor)
		measured = append(measured, s)
	}
	rows, err := report(measured)
	if err != nil {
		return false, err
	}
	fmt.Print(table(rows))
	return anyMissed(rows), write(rows, filepath.Join(dir, "bench.json"))
}
