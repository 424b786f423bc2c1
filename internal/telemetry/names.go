package telemetry

import "sync"

// OtherName stands for all names beyond the bound of Names.
const OtherName = "other"

// Names bounds how many names of other authors there are in labels of metrics: the first ones are
// kept, and all later ones are OtherName. It is safe for concurrent use.
type Names struct {
	most int
	mu   sync.Mutex
	kept map[string]bool
}

// NewNames returns Names that keeps at most that many.
func NewNames(most int) *Names { return &Names{most: most, kept: map[string]bool{}} }

// Name returns the name if it is kept, or OtherName.
func (n *Names) Name(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.kept[name]:
	case len(n.kept) == n.most:
		return OtherName
	default:
		n.kept[name] = true
	}
	return name
}
