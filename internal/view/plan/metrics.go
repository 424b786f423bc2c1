package plan

import (
	"cmp"
	"fmt"
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
	for _, answer := range answers {
		steps := map[string][]cumulated{}
		for line := range strings.Lines(answer) {
			labels, value, ok := stepOf(line)
			if !ok || provider != "" && labelIn(labels, "provider") != provider {
				continue
			}
			bound, err := strconv.ParseFloat(labelIn(labels, "le"), 64)
			if err != nil {
				continue
			}
			key := labelIn(labels, "provider") + "/" + labelIn(labels, "step")
			steps[key] = append(steps[key], cumulated{bound, value})
		}
		for key, buckets := range steps {
			_, step, _ := strings.Cut(key, "/")
			switch of := distributionOf(buckets); step {
			case "create":
				d.Create = d.Create.Add(of)
			case "run":
				d.Run = d.Run.Add(of)
			case "delete":
				d.Delete = d.Delete.Add(of)
			case "drain":
				d.Drain = d.Drain.Add(of)
			}
		}
	}
	d.Source = fmt.Sprintf("histograms of %d replicas since their start: %.0f machines have joined, %.0f were deleted",
		len(answers), d.Run.Count(), d.Delete.Count())
	return d
}

// cumulated is a bucket as a histogram has it: how many values are at most the bound, in seconds.
type cumulated struct{ bound, count float64 }

// stepOf returns the labels and the value of a bucket of the histogram.
func stepOf(line string) (labels string, value float64, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), stepsMetric+"_bucket{")
	if !ok {
		return "", 0, false
	}
	labels, number, ok := strings.Cut(rest, "} ")
	if !ok {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	return labels, value, err == nil
}

// labelIn returns the value of a label. Values with commas and quotes are not expected.
func labelIn(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// distributionOf returns the distribution of a histogram. What is beyond its last bound counts as
// that.
func distributionOf(buckets []cumulated) (d Distribution) {
	slices.SortFunc(buckets, func(a, b cumulated) int { return cmp.Compare(a.bound, b.bound) })
	var from, counted float64
	for _, b := range buckets {
		upTo := b.bound
		if math.IsInf(upTo, 1) {
			upTo = from
		}
		if n := b.count - counted; n > 0 {
			d = append(d, Bucket{From: seconds(from), UpTo: seconds(upTo), Count: n})
		}
		from, counted = upTo, b.count
	}
	return d
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
