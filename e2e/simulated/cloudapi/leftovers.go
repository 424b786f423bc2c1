package cloudapi

// LeftoverKind is the kind of a left-over.
type LeftoverKind string

// The kinds of left-over.
const (
	LeftoverNetworkInterface LeftoverKind = "network-interface"
	LeftoverDisk             LeftoverKind = "disk"
)

// Leftover is a resource that a create has created for a VM before it failed. It costs money and
// addresses until it is deleted, or until a create with the same client token creates the VM, which
// then uses it.
type Leftover struct {
	ID   string       `json:"id"`
	Kind LeftoverKind `json:"kind"`
	// Name is that of the VM, and the kind.
	Name   string `json:"name"`
	Region string `json:"region"`
	Zone   string `json:"zone"`
	// Tags and ClientToken are those of the create.
	Tags        map[string]string `json:"tags,omitempty"`
	ClientToken string            `json:"clientToken,omitempty"`
}

// LeftoverList holds left-overs, in the order of their creation. Of GET PathLeftovers it is one
// page.
type LeftoverList struct {
	Items []Leftover `json:"items"`
	// NextPageToken is "" on the last page.
	NextPageToken string `json:"nextPageToken,omitempty"`
}
