package target

// None is for fleets without a target cluster: their machines become no Nodes.
type None struct{}

// For returns nil.
func (None) For(string) (*Cluster, error) { return nil, nil } //nolint:nilnil // nil says that there is none, see Resolver
