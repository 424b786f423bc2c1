package driver

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds on data from a cloud and to one. A cloud's answers are written to objects of the API
// server, to Events, to logs and to the memory of a replica that serves many others, so the size of
// each part is bounded. The bounds on bodies of HTTP are in package httpclient. The data of a
// Secret is bounded by the API server, at 1 MiB.
const (
	// MaxRetryAfter caps a cloud's retry-after: a larger one is treated as a fault of the cloud.
	MaxRetryAfter = time.Hour
	// MaxMessage is how many bytes of the text of an Error are shown. An Event takes 1 KiB in all.
	MaxMessage = 1024
	// MaxUserData is how many bytes of user data a VM is created with, its placeholders filled in.
	// Clouds accept 16 KiB (AWS) to 64 KiB (Azure, OpenStack), or more where it is metadata.
	MaxUserData = 64 << 10
	// MaxProviderID is the longest provider ID. Those of clouds are paths of some hundred bytes.
	MaxProviderID = 1024
	// MaxAddresses is how many addresses a VM has at most.
	MaxAddresses = 64
	// MaxAddress is how many bytes an address has at most: a DNS name has 253.
	MaxAddress = 253
	// MaxVMState is how many bytes the state of a VM has at most. A longer one is not shown.
	MaxVMState = 64
	// MaxLastKnownState is how many bytes of a driver's own note are kept. It is stored on the
	// Machine, which every write and every watch carries.
	MaxLastKnownState = 16 << 10
	// MaxOwned is how many VMs with the UID of one Machine a driver reads in one call. There is one,
	// or a second one after a fault: a call that looks for the VM is OutOfRange as soon as there are
	// two, and DeleteMachine removes that many and is called again.
	MaxOwned = 10
	// MaxListed is how many VMs one answer of ListMachines holds: more than any account of a cloud
	// has.
	MaxListed = 100_000
	// MaxResources is how many resources one page of ListResources has: two thirds of a MiB with the
	// longest provider IDs.
	MaxResources = 500
	// MaxUnknownFields is how many fields of a provider spec are reported as unknown.
	MaxUnknownFields = 100
	// MaxFieldPath is how many bytes the path of one has.
	MaxFieldPath = 256
	// MaxContinue is how many bytes the token for the next page has.
	MaxContinue = 4 << 10
)

// Clean returns a text of a cloud as it may be shown: one line of printable characters, at most
// MaxMessage bytes. Each run of spaces and of others, which could break a line of a log or reorder
// what a terminal shows, becomes one space. A text that is cut ends with the length of the whole.
func Clean(text string) string {
	var shown strings.Builder
	gap := false
	for i, r := range text {
		if shown.Len() > MaxMessage {
			return cut(shown.String(), len(text))
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1, !unicode.IsPrint(r), r == ' ':
			gap = shown.Len() > 0
			continue
		case gap:
			shown.WriteByte(' ')
			gap = false
		}
		shown.WriteRune(r)
	}
	if shown.Len() > MaxMessage {
		return cut(shown.String(), len(text))
	}
	return shown.String()
}

// cut shortens a text that is too long, at the end of a character, and adds the length of the
// whole.
func cut(text string, whole int) string {
	more := fmt.Sprintf("… (%d bytes in all)", whole)
	return strings.ToValidUTF8(text[:MaxMessage-len(more)], "") + more
}
