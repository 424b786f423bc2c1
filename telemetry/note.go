package telemetry

import "strings"

// maxNote is how many bytes an API server takes in the note of an Event; it refuses longer ones whole.
const maxNote = 1024

// Note cuts a text to what fits into an Event, at the end of a character.
func Note(text string) string {
	const more = "…"
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote-len(more)], "") + more
}
