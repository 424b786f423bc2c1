package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// use records what the fleet has used within a time. Rates are per second.
type use struct {
	took                     time.Duration
	memory, most             float64 // RSS of all replicas and of the largest, in bytes
	cores                    float64
	goroutines               float64
	leases, control, targets float64 // writes of Leases, other requests to the control cluster, requests to target clusters
	controlWatches           int
	targetWatches            int64
	heap                     float64 // live and garbage, of all replicas, in bytes
	objects, events          int     // Leases, Secrets and MachineSets; Events
	others                   string  // RSS of the processes around the fleet
}

// measure returns what the fleet uses while do runs.
func (l *landscape) measure(ctx context.Context, do func() error) (u use, err error) {
	position, err := l.lab.AuditEnd()
	if err != nil {
		return u, err
	}
	light, _, err := l.lightUsage(ctx)
	if err != nil {
		return u, err
	}
	cpu, err := l.sum(ctx, "process_cpu_seconds_total")
	if err != nil {
		return u, err
	}
	start := time.Now()
	if err := do(); err != nil {
		return u, err
	}
	u.took = time.Since(start)
	after, err := l.sum(ctx, "process_cpu_seconds_total")
	if err != nil {
		return u, err
	}
	u.cores = (after - cpu) / u.took.Seconds()
	if err := l.count(ctx, position, light, &u); err != nil {
		return u, err
	}
	if u.goroutines, err = l.sum(ctx, "go_goroutines"); err != nil {
		return u, err
	}
	return u, l.weigh(ctx, &u)
}

// count sets the requests since a position, and the watches that are open.
func (l *landscape) count(ctx context.Context, position harness.AuditPosition, light int64, u *use) error {
	requests, err := l.lab.Requests(position)
	if err != nil {
		return err
	}
	leases, control, targets := 0, 0, 0
	for _, r := range requests {
		switch {
		case !strings.HasPrefix(r.User, "fleet-"):
		case r.Cluster != "":
			targets++
		case r.Resource == "leases" && r.IsWrite():
			leases++
		default:
			control++
		}
	}
	lightAfter, _, err := l.lightUsage(ctx)
	if err != nil {
		return err
	}
	seconds := u.took.Seconds()
	u.leases, u.control, u.targets = float64(leases)/seconds, float64(control)/seconds, (float64(targets)+float64(lightAfter-light))/seconds
	return l.countWatches(ctx, u)
}

// countWatches sets the watches that are open.
func (l *landscape) countWatches(ctx context.Context, u *use) error {
	_, light, err := l.lightUsage(ctx)
	if err != nil {
		return err
	}
	watches, err := l.lab.OpenWatches(l.from)
	u.targetWatches = light
	for _, r := range watches {
		switch {
		case !strings.HasPrefix(r.User, "fleet-"):
		case r.Cluster != "":
			u.targetWatches++
		default:
			u.controlWatches++
		}
	}
	return err
}

// lightUsage returns the requests of the fleet to light clusters, and the watches that are open.
func (l *landscape) lightUsage(ctx context.Context) (requests, watches int64, err error) {
	if !l.members[len(l.members)-1].IsLight() {
		return 0, 0, nil
	}
	all, err := l.lab.LightUsage(ctx)
	for _, users := range all {
		for user, u := range users {
			if strings.HasPrefix(user, "fleet-") {
				requests, watches = requests+u.Requests, watches+u.Watches
			}
		}
	}
	return requests, watches, err
}

// sum adds a metric of all replicas.
func (l *landscape) sum(ctx context.Context, name string) (all float64, err error) {
	replicas, err := l.lab.Replicas(ctx)
	if err != nil {
		return 0, err
	}
	for _, replica := range replicas {
		value, err := l.lab.Metric(ctx, replica, name)
		if err != nil {
			return 0, err
		}
		all += value
	}
	return all, nil
}

// weigh sets the memory of all processes.
func (l *landscape) weigh(ctx context.Context, u *use) error {
	replicas, err := l.lab.Replicas(ctx)
	if err != nil {
		return err
	}
	pids, err := l.lab.Pids()
	if err != nil {
		return err
	}
	for _, replica := range replicas {
		rss := residentBytes(pids[replica])
		u.memory, u.most = u.memory+rss, max(u.most, rss)
	}
	var parts []string
	for _, name := range []string{"kube-apiserver", "etcd", "light", "cloudsim", "cluster-1-kube-apiserver", "launcher"} {
		if pids[name] > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f MB", name, residentBytes(pids[name])/1e6))
		}
	}
	u.others = strings.Join(parts, ", ")
	return nil
}

// residentBytes returns the RSS of a process; 0 if it has ended.
func residentBytes(pid int) float64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64) // the kernel writes a number
	return pages * float64(os.Getpagesize())
}

// printUse prints a table, and records it under a name.
func (l *landscape) printUse(name, title string, u use) {
	n := float64(len(l.members))
	fmt.Printf("\n%s, in %.0f s, %d target clusters (%s) with %d machines together:\n\n",
		title, u.took.Seconds(), len(l.members), l.kinds(), l.machines())
	fmt.Print("| the fleet | all | for each target cluster |\n|---|---|---|\n")
	for _, row := range []struct {
		what, name, unit string
		value            float64
	}{
		{"RSS, MB", "rss_mb", "MB", u.memory / 1e6},
		{"RSS of the largest replica, MB", "rss_largest_mb", "MB", u.most / 1e6},
		{"CPU, millicores", "cpu_millicores", "mcores", u.cores * 1e3},
		{"goroutines", "goroutines", "goroutines", u.goroutines},
		{"watches at the control cluster", "control_watches", "watches", float64(u.controlWatches)},
		{"watches at target clusters", "target_watches", "watches", float64(u.targetWatches)},
		{"Lease writes a second", "lease_writes_per_second", "1/s", u.leases},
		{"other requests to the control cluster a second", "control_requests_per_second", "1/s", u.control},
		{"requests to target clusters a second", "target_requests_per_second", "1/s", u.targets},
	} {
		fmt.Printf("| %s | %.2f | %.3f |\n", row.what, row.value, row.value/n)
		l.rows.add(name+"_"+row.name, row.value, row.unit)
	}
	fmt.Println("\naround it:", u.others)
}
