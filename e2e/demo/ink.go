package main

import "strings"

// ink colours text, or not.
type ink bool

func (k ink) paint(code, text string) string {
	if !k || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (k ink) bold(text string) string   { return k.paint("1", text) }
func (k ink) dim(text string) string    { return k.paint("2", text) }
func (k ink) red(text string) string    { return k.paint("31", text) }
func (k ink) green(text string) string  { return k.paint("32", text) }
func (k ink) yellow(text string) string { return k.paint("33", text) }
func (k ink) cyan(text string) string   { return k.paint("36", text) }

// clip cuts a line so that it is at most so many cells wide. Escape sequences take no cells, and
// stay.
func clip(line string, width int) string {
	var clipped strings.Builder
	cells, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			if cells++; cells > width {
				continue
			}
		}
		clipped.WriteRune(r)
	}
	return clipped.String()
}
