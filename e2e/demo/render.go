package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/machine/v1alpha1"
)

const (
	// margin is left of everything that belongs to a step.
	margin = "    "
	// barWidth is that of a progress bar, in cells.
	barWidth = 32
)

// outcome is the state of a wait.
type outcome int

const (
	waiting outcome = iota
	reached
	missed
)

// scene contains all that is shown of a wait.
type scene struct {
	progress progress
	facts    []fact
	elapsed  time.Duration
	outcome  outcome
}

// frame draws a scene for a terminal: a bar while it waits, then the outcome, and the facts below.
func frame(k ink, s scene) []string {
	clock := k.dim(seconds(s.elapsed))
	head := map[outcome]string{
		waiting: bar(k, s.progress.Done, s.progress.Total) + "  " + s.progress.String(),
		reached: k.green("✓") + " " + s.progress.String(),
		missed:  k.red("✗") + " " + s.progress.String(),
	}[s.outcome]
	lines := []string{margin + head + "  " + clock}
	labels, symbols := 0, 0
	for _, row := range s.facts {
		labels, symbols = max(labels, utf8.RuneCountInString(row.Label)), max(symbols, len(row.Symbols))
	}
	for _, row := range s.facts {
		line := fmt.Sprintf("%s  %-*s  ", margin, labels, row.Label)
		if row.Symbols != nil && symbols > 0 {
			line += symbolsOf(k, row.Symbols) + strings.Repeat(" ", symbols-len(row.Symbols)) + "  "
		}
		lines = append(lines, line+k.dim(row.Text))
	}
	return lines
}

// line formats a scene as one line, for a log, without the elapsed time.
func line(s scene) string {
	words := []string{s.progress.String()}
	for _, row := range s.facts {
		words = append(words, row.Label+": "+row.Text)
	}
	sign := map[outcome]string{reached: "✓ ", missed: "✗ "}[s.outcome]
	return sign + strings.Join(words, "; ")
}

func bar(k ink, done, total int) string {
	filled := barWidth * min(done, total) / max(total, 1)
	return k.green(strings.Repeat("━", filled)) + k.dim(strings.Repeat("╌", barWidth-filled))
}

// symbolsOf shows each machine as one character: full when it runs, half while it comes up, empty
// before and after, and red when something is wrong.
func symbolsOf(k ink, phases []v1alpha1.MachinePhase) string {
	var text strings.Builder
	for _, phase := range phases {
		text.WriteString(symbol(k, phase))
	}
	return text.String()
}

func symbol(k ink, phase v1alpha1.MachinePhase) string {
	switch phase {
	case v1alpha1.MachineRunning:
		return k.green("●")
	case v1alpha1.MachinePending, v1alpha1.MachineAvailable:
		return k.yellow("◐")
	case "", v1alpha1.MachineTerminating:
		return k.dim("○")
	case v1alpha1.MachineUnknown, v1alpha1.MachineFailed, v1alpha1.MachineCrashLoopBackOff,
		v1alpha1.MachineInPlaceUpdating, v1alpha1.MachineInPlaceUpdateSuccessful, v1alpha1.MachineInPlaceUpdateFailed:
	}
	return k.red("●")
}

// timing is when a step began, and how long it took.
type timing struct {
	Name  string
	Start time.Time
	Took  time.Duration
}

// summary is a table of timings, the longest with the longest bar, and their total.
func summary(k ink, timings []timing, total time.Duration) []string {
	const whole = "in all"
	names, longest := len(whole), time.Duration(0)
	for _, t := range timings {
		names, longest = max(names, utf8.RuneCountInString(t.Name)), max(longest, t.Took)
	}
	var lines []string
	for _, t := range timings {
		cells := int(barWidth * t.Took / max(longest, 1))
		line := fmt.Sprintf("%s%-*s  %7s  ", margin, names, t.Name, seconds(t.Took))
		lines = append(lines, strings.TrimRight(line+k.green(strings.Repeat("━", cells)), " "))
	}
	return append(lines, k.bold(fmt.Sprintf("%s%-*s  %7s", margin, names, whole, seconds(total))))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// whereabouts is a table of pods by the Node that they run on, Nodes with real kubelets first.
func whereabouts(k ink, nodes []node, podsOf map[string][]string) []string {
	width := 0
	for _, n := range nodes {
		width = max(width, utf8.RuneCountInString(n.Name))
	}
	row := func(name, zone, kind, names string) string {
		return fmt.Sprintf("%s  %-*s  %-6s  %-12s  %s", margin, width, name, zone, kind, names)
	}
	lines := []string{k.dim(row("NODE", "ZONE", "KIND", "PODS"))}
	for _, kind := range []nodeKind{kubeletNode, simulatedNode} {
		for _, n := range nodes {
			if n.Kind == kind {
				lines = append(lines, row(n.Name, n.Zone, string(n.Kind), cmp.Or(strings.Join(podsOf[n.Name], " "), "-")))
			}
		}
	}
	return lines
}
