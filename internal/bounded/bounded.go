package bounded

import "strings"

// Message is how many bytes a message in a status or an Event has at most. API servers reject notes
// of Events that are longer, and whole objects of more than 1.5 MiB: a message of a cloud, a
// kubelet or a user must not prevent a status from being written.
const Message = 1024

// ellipsis is the end of a text that was cut.
const ellipsis = "…"

// Text returns a text, cut at the end of a character to at most that many bytes.
func Text(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:max(most-len(ellipsis), 0)], "") + ellipsis
}
