package traces

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// branch is a line of the tree, with those below it.
type branch struct {
	text  string
	below []branch
}

// Print prints a life as a tree. Times are since its first span.
func (l Life) Print(out io.Writer) {
	fmt.Fprintf(out, "machine %s/%s, UID %s, sampled by its root's UID %s\n", l.Namespace, l.Name, l.UID, l.Root)
	printBelow(out, "", l.branches())
	if len(l.Missing) > 0 {
		fmt.Fprintf(out, "%d links lead to spans that were not found: Jaeger has dropped them, or they were not sent yet\n", len(l.Missing))
	}
}

func printBelow(out io.Writer, indent string, branches []branch) {
	for i, b := range branches {
		joint, rest := "├─ ", "│  "
		if i == len(branches)-1 {
			joint, rest = "└─ ", "   "
		}
		fmt.Fprintf(out, "%s%s%s\n", indent, joint, b.text)
		printBelow(out, indent+rest, b.below)
	}
}

// branches returns the tenures, and between them how the machine's slot moved.
func (l Life) branches() (branches []branch) {
	began := l.Tenures[0].Passes[0].Start
	for _, t := range l.Tenures {
		if t.Arrival != nil {
			branches = append(branches, t.moved(began))
		}
		b := branch{text: fmt.Sprintf("%s  slot %s  epoch %s  session %s", t.Replica, t.Slot, t.Epoch, t.Session)}
		for _, group := range quiet(t.Passes) {
			b.below = append(b.below, branchOf(group, began))
		}
		if t.Release != nil {
			b.below = append(b.below, branch{text: at(t.Release, began) + "releases the slot  " + took(t.Release.Took), below: stages(t.Release)})
		}
		branches = append(branches, b)
	}
	return branches
}

// moved returns the arrival of a tenure.
func (t Tenure) moved(began time.Time) branch {
	from, _, _ := strings.Cut(t.Arrival.Tags["from"], "_")
	return branch{text: fmt.Sprintf("%s%s  %s → %s  %s", at(t.Arrival, began), t.Arrival.Name, from, t.Replica, took(t.Arrival.Took)), below: stages(t.Arrival)}
}

func stages(s *Span) (branches []branch) {
	for _, stage := range s.Below {
		branches = append(branches, branch{text: strings.TrimPrefix(stage.Name, s.Name+" ") + "  " + took(stage.Took)})
	}
	return branches
}

// quiet groups passes: those in a row that have only looked are one group.
func quiet(passes []*Span) (groups [][]*Span) {
	for _, pass := range passes {
		last := len(groups) - 1
		if last >= 0 && isQuiet(pass) && isQuiet(groups[last][0]) && pass.Name == groups[last][0].Name {
			groups[last] = append(groups[last], pass)
			continue
		}
		groups = append(groups, []*Span{pass})
	}
	return groups
}

// isQuiet reports whether a pass of the machine has made no request and no call, and has not failed.
func isQuiet(pass *Span) bool {
	return pass.Name == passPrefix+"machine" && !slices.ContainsFunc(pass.all(), func(s *Span) bool {
		return s.Failed() || s.Tags["api.server"] != "" || s.Tags["provider"] != ""
	})
}

func branchOf(group []*Span, began time.Time) branch {
	first := group[0]
	if len(group) > 1 {
		last := group[len(group)-1]
		return branch{text: fmt.Sprintf("%s%d passes without a request, until +%s", at(first, began), len(group), seconds(last.Start.Sub(began)))}
	}
	return branch{text: at(first, began) + passText(first), below: steps(first)}
}

// passText returns the line of a pass.
func passText(pass *Span) string {
	text := strings.TrimPrefix(pass.Name, passPrefix)
	if name := cmp.Or(pass.Tags["machinedeployment.name"], pass.Tags["machineset.name"]); name != "" {
		text += " " + name
	}
	if change := pass.Tags["generation"]; change != "" {
		text += ", generation " + change
	}
	waited := time.Duration(0)
	for _, below := range pass.Below {
		if below.Name == "queue" {
			waited = below.Took
		}
	}
	text += "  " + took(pass.Took-waited)
	if waited >= time.Millisecond {
		text += ", after " + took(waited) + " in the queue"
	}
	return text + failure(pass) + decision(pass, "  ")
}

// steps returns what a pass has done.
func steps(pass *Span) (branches []branch) {
	for _, s := range pass.Below {
		switch s.Name {
		case "queue":
		case "observe":
			if len(s.Below) > 0 || s.Took >= time.Millisecond {
				branches = append(branches, branch{text: "observe  " + took(s.Took), below: requests(s.Below)})
			}
		case "step":
			branches = append(branches, branch{text: strings.TrimSpace(decision(s, "")) + "  " + took(s.Took) + failure(s), below: requests(s.Below)})
		default:
			branches = append(branches, requests([]*Span{s})...)
		}
	}
	return branches
}

// decision returns the verdict and the reason on a span; "" when it has none.
func decision(s *Span, before string) string {
	verdict := s.Tags["verdict"]
	if verdict == "" {
		return ""
	}
	if why := s.Tags["reason"]; why != "" {
		verdict += ": " + why
	}
	return before + verdict
}

// requests returns requests and calls. Those in a row that differ only in their object are one line.
func requests(spans []*Span) (branches []branch) {
	type line struct {
		text           string
		number         int
		shortest, most time.Duration
		below          []branch
	}
	var lines []line
	for _, s := range spans {
		text := requestText(s)
		if last := len(lines) - 1; last >= 0 && lines[last].text == text {
			is := &lines[last]
			is.number++
			is.shortest, is.most = min(is.shortest, s.Took), max(is.most, s.Took)
			continue
		}
		lines = append(lines, line{text: text, number: 1, shortest: s.Took, most: s.Took, below: requests(s.Below)})
	}
	for _, is := range lines {
		text := is.text + "  " + took(is.most)
		if is.number > 1 {
			text = fmt.Sprintf("%s  %d times, %s to %s", is.text, is.number, took(is.shortest), took(is.most))
		}
		branches = append(branches, branch{text: text, below: is.below})
	}
	return branches
}

// requestText returns the line of a request or a call, without its duration.
func requestText(s *Span) string {
	text := s.Name
	if server := s.Tags["api.server"]; server != "" {
		text += "  " + server + "  " + s.Tags["http.response.status_code"]
		if sent, err := strconv.Atoi(s.Tags["http.request.body.size"]); err == nil {
			text += fmt.Sprintf("  %.1f kB", float64(sent)/1e3)
		}
	}
	if provider := s.Tags["provider"]; provider != "" {
		text += "  " + provider
		if code := s.Tags["driver.code"]; code != "" {
			text += "  " + code
		}
		if wait := s.Tags["driver.retry_after_seconds"]; wait != "" {
			text += "  retry after " + wait + " s"
		}
	}
	return text + failure(s)
}

func failure(s *Span) string {
	if !s.Failed() {
		return ""
	}
	return "  FAILED " + s.Tags["otel.status_description"]
}

// at returns when a span began.
func at(s *Span, began time.Time) string { return fmt.Sprintf("+%-9s", seconds(s.Start.Sub(began))) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

func took(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%d µs", d.Microseconds())
}
