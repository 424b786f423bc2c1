package plan

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stepsMetric is the histogram of steps of machines, as docs/operations/metrics.md describes it.
const stepsMetric = "mcf_machine_step_seconds"

// ReadDurations returns the durations in the answers of /metrics of replicas, which are text: those
// of machines of a provider, or of all if it is "". What no replica has measured since its start is
// not known.
func ReadDurations(answers []string, provider string) (d Durations) {
	steps := map[string]*histogram{}
	for _, answer := range answers {
		for line := range strings.Lines(answer) {
			part, labels, value, ok := stepOf(line)
			if !ok || provider != "" && labelIn(labels, "provider") != provider {
				continue
			}
			step := labelIn(labels, "step")
			if steps[step] == nil {
				steps[step] = &histogram{below: map[float64]float64{}}
			}
			if part == "sum" {
				steps[step].sum += value
			} else if bound, err := strconv.ParseFloat(labelIn(labels, "le"), 64); err == nil {
				steps[step].below[bound] += value
			}
		}
	}
	for step, of := range map[string]*Distribution{"create": &d.Create, "run": &d.Run, "delete": &d.Delete, "drain": &d.Drain} {
		if h := steps[step]; h != nil {
			*of = h.distribution()
		}
	}
	d.Source = fmt.Sprintf("histograms of %d replicas since their start: %.0f machines have joined, %.0f were deleted",
		len(answers), d.Run.Count(), d.Delete.Count())
	return d
}

// histogram has how many durations are at most each bound, in seconds, and the sum of all.
type histogram struct {
	below map[float64]float64
	sum   float64
}

// stepOf returns a bucket, or the sum, of the histogram.
func stepOf(line string) (part, labels string, value float64, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), stepsMetric+"_")
	if !ok {
		return "", "", 0, false
	}
	part, rest, _ = strings.Cut(rest, "{")
	labels, number, ok := strings.Cut(rest, "} ")
	if !ok || part != "bucket" && part != "sum" {
		return "", "", 0, false
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	return part, labels, value, err == nil
}

// labelIn returns the value of a label. Values with commas and quotes are not expected.
func labelIn(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// distribution returns the distribution of a histogram. What is beyond its last bound counts as
// that. Buckets are wide; where in them durations are on average follows from the sum.
func (h *histogram) distribution() (d Distribution) {
	var from, counted, least, width float64
	for _, bound := range slices.Sorted(maps.Keys(h.below)) {
		upTo := bound
		if math.IsInf(bound, 1) {
			upTo = from
		}
		if n := h.below[bound] - counted; n > 0 {
			d = append(d, Bucket{From: seconds(from), UpTo: seconds(upTo), Count: n})
			least, width = least+n*from, width+n*(upTo-from)
		}
		from, counted = upTo, max(counted, h.below[bound]) // replicas of other versions may have other bounds
	}
	isBounded := len(d) > 0 && d[len(d)-1].UpTo > d[len(d)-1].From
	if !isBounded || h.sum <= 0 {
		return d
	}
	mean := math.Min(math.Max((h.sum-least)/width, 0.01), 0.99)
	for i := range d {
		d[i].Mean = mean
	}
	return d
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
