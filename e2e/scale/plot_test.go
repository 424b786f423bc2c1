//go:build e2e

package scale

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The plot is two panels above each other with one time axis: replicas and load, and machines in
// transition. Lengths in pixels.
const (
	plotWidth, plotHeight = 860, 470
	left, right           = 60, 840 // of the panels
	tickSeconds           = 60

	replicasColor, loadColor, machinesColor, gridColor, textColor = "#1f5fbf", "#c2570c", "#4d7c3a", "#d9d9d9", "#333333"
)

// panel is an area of the plot with an axis from 0.
type panel struct {
	top, bottom, most, step float64
}

func (p panel) y(value float64) float64 { return p.bottom - value/p.most*(p.bottom-p.top) }

// plot draws the samples as SVG.
func plot(samples []sample) string {
	if len(samples) == 0 {
		return `<svg xmlns="http://www.w3.org/2000/svg"/>` + "\n"
	}
	end := math.Ceil(samples[len(samples)-1].At.Seconds()/tickSeconds) * tickSeconds
	x := func(s sample) float64 { return left + s.At.Seconds()/end*(right-left) }
	var b strings.Builder
	draw := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	text := func(x, y float64, anchor, color, content string) {
		draw(`<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`, x, y, anchor, color, html.EscapeString(content))
	}
	draw(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, plotWidth, plotHeight)
	draw(`<rect width="%d" height="%d" fill="#ffffff"/>`, plotWidth, plotHeight)

	upper, lower := panel{40, 240, 5, 1}, panel{290, 430, 500, 100}
	for _, p := range []panel{upper, lower} {
		for value := 0.0; value <= p.most; value += p.step {
			draw(`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s"/>`, left, right, p.y(value), p.y(value), gridColor)
			text(left-8, p.y(value)+4, "end", textColor, fmt.Sprint(value))
		}
	}
	for at := 0.0; at <= end; at += tickSeconds {
		text(left+at/end*(right-left), lower.bottom+18, "middle", textColor, fmt.Sprintf("%g min", at/tickSeconds))
	}
	text(left, 18, "start", replicasColor, "replicas of the StatefulSet")
	text(left+180, 18, "start", loadColor, "load: replicas that the fleet needs")
	text(left, lower.top-10, "start", machinesColor, "machines that do not run yet")

	var steps, load, machines strings.Builder
	for i, s := range samples {
		if i > 0 {
			fmt.Fprintf(&steps, "%.1f,%.1f ", x(s), upper.y(float64(samples[i-1].Replicas)))
		}
		fmt.Fprintf(&steps, "%.1f,%.1f ", x(s), upper.y(float64(s.Replicas)))
		fmt.Fprintf(&load, "%.1f,%.1f ", x(s), upper.y(min(s.Load, upper.most)))
		fmt.Fprintf(&machines, "%.1f,%.1f ", x(s), lower.y(float64(s.Transitions)))
		if s.Event != "" {
			draw(`<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="3 3"/>`,
				x(s), x(s), upper.top, lower.bottom, textColor)
			text(x(s)+4, upper.top-6, "start", textColor, s.Event)
		}
	}
	line := func(points, color string, width float64) {
		draw(`<polyline points="%s" fill="none" stroke="%s" stroke-width="%g"/>`, strings.TrimSpace(points), color, width)
	}
	line(machines.String(), machinesColor, 2)
	line(load.String(), loadColor, 2)
	line(steps.String(), replicasColor, 2.5)
	draw(`</svg>`)
	return b.String()
}
