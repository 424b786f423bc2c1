package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/harness"
)

// measureHibernation deletes all machines of some clusters, waits until the fleet has closed their
// connections, and creates the machines again.
func (l *landscape) measureHibernation(ctx context.Context) error {
	var asleep []string
	for i, m := range l.members { // real ones are first: some of each kind
		if len(asleep) < l.o.hibernate && i%max(len(l.members)/l.o.hibernate, 1) == 0 {
			asleep = append(asleep, m.Name)
		}
	}
	before := map[string]pool{}
	for _, namespace := range asleep {
		before[namespace] = l.pool(namespace)
	}
	fmt.Printf("\n%d of %d clusters hibernate:\n\n", len(asleep), len(l.members))
	fmt.Print("| | connections | watches at the control cluster | at target clusters |\n|---|---|---|---|\n")
	if err := l.countOpen(ctx, "before"); err != nil {
		return err
	}
	begun := time.Now()
	gone, err := l.changeEach(ctx, asleep, func(_ string, now pool) pool { return pool{0, now.round} })
	if err != nil {
		return err
	}
	if err := l.openTargets(ctx, len(l.members)-len(asleep)); err != nil {
		return err
	}
	closed := time.Since(begun)
	if err := l.countOpen(ctx, "between"); err != nil {
		return err
	}
	begun = time.Now()
	awake, err := l.changeEach(ctx, asleep, func(namespace string, now pool) pool { return pool{before[namespace].size, now.round} })
	if err != nil {
		return err
	}
	woken := time.Since(begun)
	if err := l.openTargets(ctx, len(l.members)); err != nil {
		return err
	}
	if err := l.countOpen(ctx, "after"); err != nil {
		return err
	}
	fmt.Printf("\nall machines of a cluster gone: %s; all connections closed after %.1f s\n", gone, closed.Seconds())
	fmt.Printf("all machines of a cluster run again: %s; of all %.1f s\n", awake, woken.Seconds())
	l.rows.addDurations("hibernate_cluster", gone)
	l.rows.add("hibernate_closed_seconds", closed.Seconds(), "s")
	l.rows.addDurations("wake_cluster", awake)
	l.rows.add("wake_all_seconds", woken.Seconds(), "s")
	return nil
}

// openTargets waits until the replicas have so many targets open.
func (l *landscape) openTargets(ctx context.Context, n int) error {
	return harness.Eventually(ctx, fmt.Sprintf("%d targets are open", n), func(ctx context.Context) error {
		open, err := l.sum(ctx, "mcf_open_targets")
		if err == nil && int(open) != n {
			err = fmt.Errorf("%.0f are", open)
		}
		return err
	})
}

// countOpen prints the connections and watches that the fleet has open.
func (l *landscape) countOpen(ctx context.Context, when string) error {
	connections, err := l.connections()
	if err != nil {
		return err
	}
	var u use
	if err := l.countWatches(ctx, &u); err != nil {
		return err
	}
	fmt.Printf("| %s | %d | %d | %d |\n", when, connections, u.controlWatches, u.targetWatches)
	l.rows.add("hibernate_connections_"+when, float64(connections), "connections")
	l.rows.add("hibernate_control_watches_"+when, float64(u.controlWatches), "watches")
	l.rows.add("hibernate_target_watches_"+when, float64(u.targetWatches), "watches")
	return nil
}

// connections counts the connections to target clusters, which only the fleet reaches by proxies.
func (l *landscape) connections() (n int, err error) {
	ports := map[string]bool{}
	for _, m := range l.members {
		proxy, err := url.Parse(m.Proxy)
		if err != nil {
			return 0, fmt.Errorf("proxy of %s: %w", m.Name, err)
		}
		ports[proxy.Port()] = true
	}
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, fmt.Errorf("count connections: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // number, local and remote address, state
		if len(fields) < 4 || fields[3] != "01" {
			continue
		}
		_, port, _ := strings.Cut(fields[2], ":")
		if bytes, err := hex.DecodeString(port); err == nil && len(bytes) == 2 && ports[strconv.Itoa(int(bytes[0])<<8|int(bytes[1]))] {
			n++
		}
	}
	return n, nil
}
