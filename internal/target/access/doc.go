// Package access decides how the target cluster of a namespace is reached, from the Secrets of that
// namespace. It is pure: the data of Secrets is its input, an Access or the reason for a refusal
// its output.
//
// Anyone who writes Secrets of a namespace may be hostile to the fleet and to other namespaces. So
// only what a connection needs is accepted, by name: a field that is not known is refused.
//
// Guarantees: an Access runs no program and reads no file, and is a connection by TLS to a server
// whose certificate is verified. Its server is neither a Service of another namespace nor an
// address in a refused network. An error names the Secret, the key and the field, what was expected
// and what to do, and contains no credentials.
//
// Not guaranteed: that the server exists, accepts the credentials, or has an address outside of
// refused networks, if the Access names it by DNS: the address has to be checked again when it is
// connected to.
package access
